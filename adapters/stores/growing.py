"""Arrays that grow at their end without being copied for every row."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Growing:
    """A numpy array with room at its end: the room doubles when it is used up.

    The first filling takes just what it needs, so that a buffer that is only read wastes nothing.
    """

    def __init__(self, dtype: type[np.generic], width: int | None = None) -> None:
        self._room: NDArray[Any] = np.empty((0,) if width is None else (0, width), dtype=dtype)
        self._size = 0

    @property
    def used(self) -> NDArray[Any]:
        """What was put in so far; stays what it is while more is added."""
        return self._room[: self._size]

    def extend(self, values: NDArray[Any]) -> None:
        """Add rows at the end."""
        size = self._size + len(values)
        if size > len(self._room):
            room = np.empty((max(size, 2 * self._size), *self._room.shape[1:]), dtype=self._room.dtype)
            room[: self._size] = self.used
            self._room = room
        self._room[self._size : size] = values
        self._size = size
