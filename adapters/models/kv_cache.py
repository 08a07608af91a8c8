"""Keys and values of tokens that were read: of the rows of a batch, and of episodes for their next turn.

One tensor for all layers: a row is copied out or in by one operation. A row's tokens stand from position 0
on without gaps; what stands behind its end is padding that no query sees, for a query sees positions up to
its own, and what it would see is written before it is read.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

_STEP = 64  # positions that room grows by, at least
_TURNS = 4  # a key: branches of one episode that may go on
_KEYS = 1024  # of episodes that nobody said the end of: 4 prompts of each, in text and ids


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


class CacheRows:
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

    def put(self, row: int, prefix: KeptRow, length: int) -> None:
        """Begin a row with the first `length` tokens of another."""
        self.keys[:, row, :, :length] = prefix.keys[:, :, :length]
        self.values[:, row, :, :length] = prefix.values[:, :, :length]

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

    def join(self, others: "CacheRows") -> None:
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


@dataclass(frozen=True, slots=True)
class FinishedTurn:
    """One turn as it ended."""

    text: str  # prompt and answer, with the token that ended it
    ids: tuple[int, ...]  # that spell it
    ended: bool  # by a token of its own: what follows is tokenised apart from it
    row: KeptRow | None  # of all ids but the last


class PrefixCache:
    """The last turns of each episode: the ids they read and said, and keys and values of them. Thread-safe.

    Keys and values go when new weights come, when the episode ends, and when there are too many bytes of
    them: those that were used longest ago first. Ids stay until the episode ends: they are what was said,
    whatever the weights.

    Args:
        most_bytes: of keys and values.
        ends: ids that are tokenised apart from what stands before them.
    """

    def __init__(self, *, most_bytes: int, ends: frozenset[int]) -> None:
        self._most = most_bytes
        self._marks = {(end,) for end in ends}
        self._lock = threading.Lock()
        self._turns: OrderedDict[str, list[FinishedTurn]] = OrderedDict()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Of keys and values."""
        return self._bytes

    def keep(self, key: str, turn: FinishedTurn) -> None:
        """Keep a turn; without a key there is no next turn."""
        if not key:
            return
        with self._lock:
            turns = self._turns.setdefault(key, [])
            self._turns.move_to_end(key)
            turns.append(turn)
            self._bytes += _size(turn)
            while len(turns) > _TURNS:
                self._bytes -= _size(turns.pop(0))
            while len(self._turns) > _KEYS:
                self._bytes -= sum(map(_size, self._turns.popitem(last=False)[1]))
            for old in list(self._turns):
                if self._bytes <= self._most:
                    break
                self._strip(old)

    def ids(self, key: str, text: str, encode: Callable[[str], tuple[int, ...]]) -> tuple[int, ...]:
        """The ids of a prompt: what the episode said itself is not tokenised again."""
        with self._lock:
            begun = [turn for turn in self._turns.get(key, ()) if text.startswith(turn.text)]
        if not begun:
            return encode(text)
        longest = max(begun, key=lambda turn: len(turn.text))
        rest = encode(text[len(longest.text) :])
        apart = longest.ended or rest[:1] in self._marks
        return longest.ids + rest if apart else encode(text)

    def find(self, key: str, prompt: Sequence[int]) -> tuple[KeptRow | None, int]:
        """Keys and values of the longest beginning of `prompt`, and how many tokens of them hold."""
        best: KeptRow | None = None
        length = 0
        with self._lock:
            for turn in self._turns.get(key, ()):
                if turn.row is None:
                    continue
                common = min(_common(turn.ids, prompt), turn.row.length, len(prompt) - 1)
                if common > length:
                    best, length = turn.row, common
            if best is not None:
                self._turns.move_to_end(key)
        return best, length

    def forget(self, key: str) -> None:
        """The episode is over."""
        with self._lock:
            self._bytes -= sum(map(_size, self._turns.pop(key, ())))

    def new_weights(self) -> None:
        """What was computed with the old ones is worth nothing."""
        with self._lock:
            for key in self._turns:
                self._strip(key)

    def _strip(self, key: str) -> None:
        turns = self._turns[key]
        self._bytes -= sum(map(_size, turns))
        turns[:] = [replace(turn, row=None) for turn in turns]


def _size(turn: FinishedTurn) -> int:
    return turn.row.size if turn.row is not None else 0


def _common(ids: Sequence[int], other: Sequence[int]) -> int:
    if tuple(ids) == tuple(other[: len(ids)]):
        return len(ids)
    return next(
        (at for at, (a, b) in enumerate(zip(ids, other, strict=False)) if a != b), min(len(ids), len(other))
    )
