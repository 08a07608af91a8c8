"""Several processes of one training, begun by torchrun: the first one runs it, the others lend a hand.

The first one reads, asks, collects, judges and writes, as if it were alone. The others are told what to open
and when to learn, compute their share of each update, and hear at last what came of it. They read no
settings, open no graph and call no tool. What the first one raises ends the others too, instead of leaving
them to wait for it.

At its end a process leaves their group while the interpreter is still whole (`part_at_exit`). Otherwise
gloo's threads may hold tensors when the interpreter goes, and abort the process ("terminate called without an
active exception", https://github.com/pytorch/pytorch/pull/179291); torchrun then ends the others too. After
an update that failed the group is not left: that would wait for processes that wait for this one.
"""

import atexit
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from dreamgym_kit.adapters.trainers.options import GrpoOptions
from dreamgym_kit.errors import DreamgymError, TrainingStopped, UserError

if TYPE_CHECKING:
    from dreamgym_kit.adapters.trainers.trainer import TrlTrainer

T = TypeVar("T")
_PATIENCE = timedelta(days=1)  # the others wait while the first one collects


class FirstStopped(DreamgymError):
    """Raised in the other processes: the first one stopped, and says itself why."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the first process stopped: {why}")


def processes() -> int:
    """How many learn together, as torchrun or `accelerate launch` told this one."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def lends_a_hand() -> bool:
    """Whether this process is one of several, and not the first."""
    return processes() > 1 and int(os.environ.get("RANK") or 0) > 0


def require_alone(command: str) -> None:
    """Refuse to be one of several processes where each would do the whole work.

    Raises:
        UserError: it is one of several.
    """
    if processes() > 1:
        raise UserError(
            f"{command}: runs in one process, and was started as {processes()}: each would make calls of its "
            "own; start it without torchrun. Nothing was run."
        )


class Ranks:
    """The processes of one training, as accelerate sees them."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self.rank = int(accelerator.process_index)
        self.number = int(accelerator.num_processes)
        self.shared_failure: BaseException | None = None  # what failed here, and was told to the others

    @property
    def first(self) -> bool:
        """Whether this process is the one that collects."""
        return self.rank == 0

    def shared(self, make: Callable[[], T]) -> T:
        """Call `make` in the first process only, and give what it gave in all of them.

        Raises:
            FirstStopped: in the others, where it failed in the first; there, what `make` raised.
        """
        if self.number == 1:
            return make()
        made: T | None = None
        if self.first:
            try:
                made = make()
            except BaseException as error:
                self.shared_failure = error
                _broadcast((None, f"{type(error).__name__}: {error}"))
                raise
        made, why = _broadcast((made, ""))
        if why:
            raise FirstStopped(why)
        return cast("T", made)

    def total(self, values: Sequence[float]) -> list[float]:
        """The sum over all processes of each value."""
        if self.number == 1:
            return list(values)
        import torch

        given = torch.tensor(values, dtype=torch.float64, device=self._accelerator.device)
        return [float(value) for value in self._accelerator.reduce(given, reduction="sum")]

    def largest(self, value: float) -> float:
        """The largest value of any process; one that is no number does not count."""
        if self.number == 1:
            return value
        import torch

        given = torch.tensor([value], dtype=torch.float64, device=self._accelerator.device)
        values = [float(item) for item in self._accelerator.gather(given) if not isnan(float(item))]
        return max(values, default=nan)


def part_at_exit() -> None:
    """Leave the group when this process ends, if there is one."""
    atexit.unregister(_part)
    atexit.register(_part)


@contextmanager
def in_touch() -> Iterator[None]:
    """The processes speak to each other in the block; only if it ends well does this one leave properly."""
    atexit.unregister(_part)
    yield
    part_at_exit()


def _part() -> None:
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def _broadcast(said: Any) -> Any:
    """What the first process says, in every process."""
    from accelerate.utils import broadcast_object_list

    box = [said]
    broadcast_object_list(box, from_process=0)
    return box[0]


class Others:
    """The other processes, as the first one speaks to them; where there are none, nobody hears it."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._listen = True
        if number > 1:
            _meet()

    def trainer(self, model: Path, checkpoints: Path, options: GrpoOptions, *, logs: Path) -> "TrlTrainer":
        """A trainer here, and one in each of the others, which begin to learn when it does."""
        from dreamgym_kit.adapters.trainers.trainer import TrlTrainer

        self._tell("open", model, checkpoints, replace(options, report_to=()))
        return TrlTrainer(model, checkpoints, options, logs=logs, learning=self.learning)

    def done(self, result: T) -> T:
        """Let all of them have the result."""
        self._tell("done", result)
        return result

    def failed(self, why: str) -> None:
        """Let them go, unless they are in the midst of an update: then they go with this process."""
        if self._listen:
            self._tell("failed", why)

    @contextmanager
    def learning(self, steps: int, others_know: Callable[[], bool]) -> Iterator[None]:
        """In the block they learn; `others_know`: whether what ended it early was told to them, too."""
        self._tell("fit", steps)
        self._listen = False
        try:
            yield
        except BaseException as error:
            self._listen = others_know()
            if _is_lost(error):
                raise UserError(
                    "another process of this training is gone; steps up to the last checkpoint are kept: "
                    "go on with --resume and as many processes."
                ) from error
            raise
        self._listen = True

    def _tell(self, *order: object) -> None:
        """Orders: "open", MODEL, CHECKPOINTS, OPTIONS; "fit", STEPS; "done", RESULT; "failed", WHY."""
        if self._number > 1:
            _broadcast(order)


@contextmanager
def leading() -> Iterator[Others]:
    """The first process's side of a training; what ends it here ends it in the others."""
    others = Others(processes())
    try:
        yield others
    except BaseException as error:
        others.failed(f"{type(error).__name__}: {error}")
        raise


def run_rank() -> object:
    """The side of another process: do as the first one says, and give what came of it.

    Raises:
        FirstStopped: the first one failed, and says itself why; or it is gone.
        UserError: the model or the last checkpoint cannot be used here.
    """
    _meet()
    try:
        return _obey()
    except RuntimeError as error:
        if _is_lost(error):
            raise FirstStopped("it is gone") from error
        raise


def _obey() -> object:
    from dreamgym_kit.adapters.trainers.trainer import TrlTrainer

    trainer: TrlTrainer | None = None
    while True:
        match _broadcast(None):
            case "open", model, checkpoints, options:
                trainer = TrlTrainer(model, checkpoints, options)
            case "fit", steps if trainer is not None:
                _learn(trainer, steps)
            case "done", result:
                return result
            case "failed", why:
                raise FirstStopped(why)


def _learn(trainer: "TrlTrainer", steps: int) -> None:
    try:
        trainer.fit(_never, steps=steps, after=_never)
    except (FirstStopped, TrainingStopped):  # the latter: each of them finds it by itself
        return  # whether that is a failure is for the first one to say


def _never(_: object) -> NoReturn:
    raise AssertionError("only the first process collects")


def _is_lost(error: BaseException) -> bool:
    """Whether this says that another process is gone; gloo has only words for it."""
    from torch.distributed import DistError

    text = str(error)
    lost = any(words in text for words in ("reset by peer", "closed by peer", "Broken pipe"))
    return isinstance(error, DistError) or (isinstance(error, RuntimeError) and lost)


def _meet() -> None:
    """Wait until all processes are there."""
    import torch
    from accelerate import PartialState

    PartialState(cpu=not torch.cuda.is_available(), timeout=_PATIENCE)
    part_at_exit()
