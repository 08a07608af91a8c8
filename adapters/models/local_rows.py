"""Keys and values of the tokens that the rows of a batch have read, each row at positions of its own.

One tensor for all layers: a row is copied out or in by one operation. A row's tokens stand from position 0
on without gaps; what stands behind its end is padding that no query sees, for a query sees positions up to
its own, and what it would see is written before it is read.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_STEP = 64  # positions that room grows by, at least


@dataclass(frozen=True, slots=True)
class RowShape:
    """What a model keeps of one token in each layer."""

    layers: int
    heads: int
    key_width: int
    value_width: int


@dataclass(frozen=True, slots=True)
class KeptRow:
    """Keys and values of one row, shape [layers, heads, tokens, width]."""

    keys: Tensor
    values: Tensor

    @property
    def length(self) -> int:
        """How many tokens."""
        return int(self.keys.shape[2])

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self.keys.nbytes + self.values.nbytes)


class Rows:
    """Tensors [layers, rows, heads, room, width]; zeros where nothing was written, for NaN would spread."""

    def __init__(
        self, shape: RowShape, rows: int, room: int, *, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.shape = shape
        room = _rounded(room)
        heads = (shape.layers, rows, shape.heads, room)
        self.keys = torch.zeros(*heads, shape.key_width, device=device, dtype=dtype)
        self.values = torch.zeros(*heads, shape.value_width, device=device, dtype=dtype)

    @property
    def count(self) -> int:
        """How many rows."""
        return int(self.keys.shape[1])

    @property
    def room(self) -> int:
        """How many positions a row has."""
        return int(self.keys.shape[3])

    def write(self, layer: int, at: "Places", keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Put in what a layer made of the new tokens, [rows, heads, tokens, width]; give all there is."""
        mine, own = self.keys[layer], self.values[layer]
        mine[at.rows, :, at.positions] = keys.transpose(1, 2)
        own[at.rows, :, at.positions] = values.transpose(1, 2)
        return mine[:, :, : at.end], own[:, :, : at.end]

    def put(self, row: int, kept: KeptRow, length: int) -> None:
        """Begin a row with the first `length` tokens of another."""
        self.keys[:, row, :, :length] = kept.keys[:, :, :length]
        self.values[:, row, :, :length] = kept.values[:, :, :length]

    def view(self, row: int, length: int) -> KeptRow:
        """The first `length` tokens of a row, in place."""
        return KeptRow(self.keys[:, row, :, :length], self.values[:, row, :, :length])

    def copy(self, row: int, length: int) -> KeptRow:
        """The first `length` tokens of a row, as they are now."""
        return KeptRow(self.keys[:, row, :, :length].clone(), self.values[:, row, :, :length].clone())

    def only(self, rows: list[int]) -> None:
        """Let the other rows go."""
        index = torch.tensor(rows, device=self.keys.device, dtype=torch.long)
        self.keys, self.values = self.keys.index_select(1, index), self.values.index_select(1, index)

    def grow(self, room: int) -> None:
        """Have room for at least so many positions."""
        if room > self.room:
            more = _rounded(max(room, min(2 * self.room, room + 4 * _STEP))) - self.room
            self.keys = torch.nn.functional.pad(self.keys, (0, 0, 0, more))
            self.values = torch.nn.functional.pad(self.values, (0, 0, 0, more))

    def join(self, others: "Rows") -> None:
        """Take the rows of another batch behind one's own."""
        self.grow(others.room)
        others.grow(self.room)
        self.keys = torch.cat([self.keys, others.keys[:, :, :, : self.room]], 1)
        self.values = torch.cat([self.values, others.values[:, :, :, : self.room]], 1)


class Places:
    """Where the tokens of one pass go: [rows, tokens] positions, and which of them each query sees."""

    def __init__(self, positions: Tensor, end: int, *, window: int | None = None) -> None:
        self.positions = positions
        self.end = end  # one past the last position in use
        self.rows = torch.arange(positions.shape[0], device=positions.device)[:, None]
        self._window = window
        self._every: Tensor | None = None

    def mask(self, *, sliding: bool = False) -> Tensor:
        """[rows, 1, tokens, end]: True where a query sees a position."""
        if self._every is None:
            self._every = (
                torch.arange(self.end, device=self.positions.device) <= self.positions[:, None, :, None]
            )
        if not sliding or self._window is None:
            return self._every
        reach = self.positions[:, None, :, None] - self._window
        return self._every & (torch.arange(self.end, device=self.positions.device) > reach)


def _rounded(room: int) -> int:
    return -(-room // _STEP) * _STEP
