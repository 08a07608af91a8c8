"""Where calls stand in an episode, and the name of the state that a place meets.

Places are ordered by model turn and by index in it, so the order does not depend on which of several
parallel calls was faster. The state before a turn is named by the world-changing calls of earlier turns
(`vocabulary.history_digest`), kept as a running hash: an episode of n writes costs n steps, not n squared.
"""

import hashlib
from bisect import bisect_left
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class CallPosition:
    """A call's model turn, its index there, its arrival; `twin`: equal calls before it in that turn.

    `step` numbers the call as the model asked, whichever of several parallel ones is faster.
    """

    turn: int
    index: int
    arrival: int
    twin: int = 0
    step: int = field(default=0, compare=False)


class WriteLog:
    """Environment-changing calls (their keys) in order of place. Not thread-safe; the ledger locks."""

    def __init__(self) -> None:
        self._places: list[CallPosition] = []
        self._keys: list[str] = []
        self._forget_digests()

    def add(self, place: CallPosition, key: str) -> None:
        """Keep one; it may come late, behind others of a later turn."""
        position = bisect_left(self._places, place)
        self._places.insert(position, place)
        self._keys.insert(position, key)
        if position < len(self._digests) - 1:
            self._forget_digests()

    def before(self, turn: int) -> str:
        """`history_digest` of the keys of all turns before this one."""
        count = bisect_left(self._places, CallPosition(turn, -1, -1))
        for position in range(len(self._digests) - 1, count):
            # the canonical spelling of a list of hex digests, one item at a time
            self._hasher.update(f'{"," if position else ""}"{self._keys[position]}"'.encode("ascii"))
            ended = self._hasher.copy()
            ended.update(b"]")
            self._digests.append(ended.hexdigest())
        return self._digests[count]

    def _forget_digests(self) -> None:
        self._hasher = hashlib.sha256(b"[")
        self._digests = [""]  # by number of keys
