"""Several processes of one training, started by torchrun: the first runs it, the others help with updates.

The first process reads settings, calls, collects, grades and writes, as if it were alone. The others are told
what to load and when to train, compute their share of each update, and receive the result at the end. They
read no settings, load no graph and call no tool. An error in the first process also ends the others, so that
they do not wait for it.

At its end a process leaves the group before the interpreter shuts down (`part_at_exit`). Otherwise gloo's
threads may hold tensors during shutdown and abort the process ("terminate called without an active
exception", https://github.com/pytorch/pytorch/pull/179291); torchrun then ends the others too. After a failed
update the group is not left, because that would wait for processes that wait for this one.
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
    """Raised in the other processes: the first process stopped and reports the reason."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the first process stopped: {why}")


def processes() -> int:
    """Return the number of training processes, from torchrun or `accelerate launch`."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def lends_a_hand() -> bool:
    """Return whether this process is one of several, but not the first."""
    return processes() > 1 and int(os.environ.get("RANK") or 0) > 0


def require_alone(command: str) -> None:
    """Refuse to run as one of several processes, each of which would do all the work.

    Raises:
        UserError: the process is one of several.
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
        self.shared_failure: BaseException | None = None  # an error here that the others know

    @property
    def first(self) -> bool:
        """Whether this process is the one that collects rollouts."""
        return self.rank == 0

    def shared(self, make: Callable[[], T]) -> T:
        """Call `make` in the first process only, and return its result in all of them.

        Raises:
            FirstStopped: in the others if `make` failed; the first raises its error.
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
        """Return the sum of each value over all processes."""
        if self.number == 1:
            return list(values)
        import torch

        given = torch.tensor(values, dtype=torch.float64, device=self._accelerator.device)
        return [float(value) for value in self._accelerator.reduce(given, reduction="sum")]

    def largest(self, value: float) -> float:
        """Return the largest value of all processes; ignores NaN."""
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
    """Let the processes communicate in the block; leave the group only if it ends without error."""
    atexit.unregister(_part)
    yield
    part_at_exit()


def _part() -> None:
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def _broadcast(value: Any) -> Any:
    """Broadcast a value of the first process to all."""
    from accelerate.utils import broadcast_object_list

    box = [value]
    broadcast_object_list(box, from_process=0)
    return box[0]


class Others:
    """The first process's link to the others; does nothing if there are none."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._listen = True
        if number > 1:
            _meet()

    def trainer(self, model: Path, checkpoints: Path, options: GrpoOptions, *, logs: Path) -> "TrlTrainer":
        """Open a trainer here, and one in each other process, which trains when this one does."""
        from dreamgym_kit.adapters.trainers.trainer import TrlTrainer

        self._tell("open", model, checkpoints, replace(options, report_to=()))
        return TrlTrainer(model, checkpoints, options, logs=logs, learning=self.learning)

    def done(self, result: T) -> T:
        """Send the result to the others and return it."""
        self._tell("done", result)
        return result

    def failed(self, why: str) -> None:
        """End the others, unless an update runs: then they end with this process."""
        if self._listen:
            self._tell("failed", why)

    @contextmanager
    def learning(self, steps: int, others_know: Callable[[], bool]) -> Iterator[None]:
        """Let the others train in the block; `others_know`: whether they know an early end."""
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
    """The first process's side of a training; an error here also ends the others."""
    others = Others(processes())
    try:
        yield others
    except BaseException as error:
        others.failed(f"{type(error).__name__}: {error}")
        raise


def run_rank() -> object:
    """The other processes' side: follow the first process and return the result.

    Raises:
        FirstStopped: the first process failed and reports why, or it is gone.
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
    except (FirstStopped, TrainingStopped):  # TrainingStopped: each process detects it itself
        return  # the first process reports it


def _never(_: object) -> NoReturn:
    raise AssertionError("only the first process collects")


def _is_lost(error: BaseException) -> bool:
    """Return whether an error means that another process is gone; gloo has only messages for it."""
    from torch.distributed import DistError

    text = str(error)
    lost = any(words in text for words in ("reset by peer", "closed by peer", "Broken pipe"))
    return isinstance(error, DistError) or (isinstance(error, RuntimeError) and lost)


def _meet() -> None:
    """Wait until all processes have joined."""
    import torch
    from accelerate import PartialState

    PartialState(cpu=not torch.cuda.is_available(), timeout=_PATIENCE)
    part_at_exit()
