"""Several processes that learn together: the first one collects and decides, the others hear of it.

What the first one raises ends the others too, instead of leaving them to wait for it. At its end a process
leaves their group while the interpreter is still whole (`part_at_exit`). Otherwise gloo's threads may hold
tensors when the interpreter goes, and abort the process ("terminate called without an active exception",
https://github.com/pytorch/pytorch/pull/179291); torchrun then ends the others too. After an update that
failed the group is not left: that would wait for processes that wait for this one.
"""

import atexit
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isnan, nan
from typing import Any, TypeVar

from dreamgym_kit.errors import DreamgymError, UserError

T = TypeVar("T")


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
        from accelerate.utils import broadcast_object_list

        box: list[Any] = [None, ""]
        failure: BaseException | None = None
        if self.first:
            try:
                box[0] = make()
            except BaseException as error:  # noqa: BLE001 - raised below, when the others know
                failure = error
                box[1] = f"{type(error).__name__}: {error}"
        broadcast_object_list(box, from_process=0)
        if failure is not None:
            self.shared_failure = failure
            raise failure
        if box[1]:
            raise FirstStopped(box[1])
        made: T = box[0]
        return made

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
