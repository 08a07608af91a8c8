"""Several processes of one training, begun by torchrun: the first one runs it, the others lend a hand.

The first one reads, asks, collects, judges and writes, as if it were alone. The others are told what to open
and when to learn, compute their share of each update, and hear at last what came of it. They read no
settings, open no graph and call no tool.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from dreamgym_kit.adapters.trainers.options import GrpoOptions
from dreamgym_kit.adapters.trainers.ranks import FirstStopped, part_at_exit, processes
from dreamgym_kit.adapters.trainers.trainer import TrlTrainer
from dreamgym_kit.errors import TrainingStopped, UserError
from dreamgym_kit.training.batching import version_of
from dreamgym_kit.turns import Batch, UpdateFacts

T = TypeVar("T")
_PATIENCE = timedelta(days=1)  # the others wait while the first one collects


class Others:
    """The other processes, as the first one speaks to them; where there are none, nobody hears it."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._listen = True
        if number > 1:
            _meet()

    def trainer(self, model: Path, checkpoints: Path, options: GrpoOptions, *, logs: Path) -> TrlTrainer:
        """A trainer here, and one in each of the others."""
        self._tell("open", model, checkpoints, replace(options, report_to=()))
        return _Led(self, model, checkpoints, options, logs=logs, version_of=version_of)

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
            _passed(order)


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
    trainer: TrlTrainer | None = None
    while True:
        match _passed(None):
            case "open", model, checkpoints, options:
                trainer = TrlTrainer(model, checkpoints, options, version_of=version_of)
            case "fit", steps if trainer is not None:
                _learn(trainer, steps)
            case "done", result:
                return result
            case "failed", why:
                raise FirstStopped(why)


class _Led(TrlTrainer):
    """The first process's trainer: the others begin to learn when it does."""

    def __init__(self, others: Others, *given: Any, **named: Any) -> None:
        self._others = others
        super().__init__(*given, **named)

    def fit(
        self, source: Callable[[int], Batch], *, steps: int, after: Callable[[UpdateFacts], None]
    ) -> None:
        """See `TrlTrainer.fit`."""
        with self._others.learning(steps, lambda: self.others_know):
            super().fit(source, steps=steps, after=after)


def _learn(trainer: TrlTrainer, steps: int) -> None:
    try:
        trainer.fit(cast("Callable[[int], Batch]", _never), steps=steps, after=_never)
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


def _passed(order: Any) -> Any:
    """What the first process says, in every process."""
    from accelerate.utils import broadcast_object_list

    box = [order]
    broadcast_object_list(box, from_process=0)
    return box[0]
