"""Several processes that learn together: the first one collects and decides, the others hear of it.

What the first one raises ends the others too, instead of leaving them to wait for it.
"""

from collections.abc import Callable, Sequence
from math import isnan, nan
from typing import Any, TypeVar

from dreamgym_kit.errors import DreamgymError

T = TypeVar("T")


class FirstStopped(DreamgymError):
    """Raised in the other processes: the first one stopped, and says itself why."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the first process stopped: {why}")


class Ranks:
    """The processes of one training, as accelerate sees them."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self.rank = int(accelerator.process_index)
        self.number = int(accelerator.num_processes)
        self.told: BaseException | None = None  # what failed here, and was told to the others

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
            self.told = failure
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
        found = [float(one) for one in self._accelerator.gather(given) if not isnan(float(one))]
        return max(found, default=nan)
