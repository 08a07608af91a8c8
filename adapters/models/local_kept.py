"""What episodes leave behind for their next turn: the ids they read and said, and keys and values of them.

Keys and values go when new weights come, when the episode ends, and when there are too many bytes of them:
those that were used longest ago first. Ids stay until the episode ends: they are what was said, whatever
the weights.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dreamgym_kit.adapters.models.local_rows import KeptRow

_TURNS = 4  # a key: branches of one episode that may go on
_KEYS = 1024  # of episodes that nobody said the end of: 4 prompts of each, in text and ids


@dataclass(frozen=True, slots=True)
class Told:
    """One turn as it ended."""

    text: str  # prompt and answer, with the token that ended it
    ids: tuple[int, ...]  # that spell it
    ended: bool  # by a token of its own: what follows is tokenised apart from it
    row: KeptRow | None  # of all ids but the last


class KeptTurns:
    """The last turns of each episode. Thread-safe.

    Args:
        most_bytes: of keys and values.
        ends: ids that are tokenised apart from what stands before them.
    """

    def __init__(self, *, most_bytes: int, ends: frozenset[int]) -> None:
        self._most = most_bytes
        self._marks = {(one,) for one in ends}
        self._lock = threading.Lock()
        self._turns: OrderedDict[str, list[Told]] = OrderedDict()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Of keys and values."""
        return self._bytes

    def keep(self, key: str, told: Told) -> None:
        """Keep a turn; without a key there is no next turn."""
        if not key:
            return
        with self._lock:
            turns = self._turns.setdefault(key, [])
            self._turns.move_to_end(key)
            turns.append(told)
            self._bytes += _size(told)
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
            begun = [told for told in self._turns.get(key, ()) if text.startswith(told.text)]
        if not begun:
            return encode(text)
        longest = max(begun, key=lambda told: len(told.text))
        rest = encode(text[len(longest.text) :])
        apart = longest.ended or rest[:1] in self._marks
        return longest.ids + rest if apart else encode(text)

    def find(self, key: str, prompt: Sequence[int]) -> tuple[KeptRow | None, int]:
        """Keys and values of the longest beginning of `prompt`, and how many tokens of them hold."""
        best: KeptRow | None = None
        length = 0
        with self._lock:
            for told in self._turns.get(key, ()):
                if told.row is None:
                    continue
                common = min(_common(told.ids, prompt), told.row.length, len(prompt) - 1)
                if common > length:
                    best, length = told.row, common
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
        turns[:] = [replace(told, row=None) for told in turns]


def _size(told: Told) -> int:
    return told.row.size if told.row is not None else 0


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    if tuple(one) == tuple(other[: len(one)]):
        return len(one)
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
