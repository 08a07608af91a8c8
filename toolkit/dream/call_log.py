"""The episode's calls and answers in order, and what later answers must agree with.

Here: who called what, what they were told, which calls changed (or would have changed) the world,
and one answer per repeated request. Parallel calls of one model turn do not see each other: the
state a call met is named by the world-changing calls of *earlier* turns, so that it does not
depend on which thread was faster. That name (`types.history_digest`) is kept as a running hash: an episode of
n writes costs n steps, not n squared.
"""

import hashlib
import threading
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import overload

from dreamgym_kit.dream.faults import took_effect
from dreamgym_kit.types import Answer, Call, Effect, Environment, Split, Transition


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


class CallLog:
    """Thread-safe; one per session."""

    def __init__(
        self, *, episode: str, task: str, environment: Environment, tenant: str, split: Split = Split.TRAIN
    ) -> None:
        self._lock = threading.Lock()
        self._episode, self._task, self._environment = episode, task, environment
        self._tenant, self._split = tenant, split
        self._entries: list[tuple[CallPosition, Transition]] = []
        self._writes = WriteLog()
        self._turns_seen: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._announced: dict[str, tuple[int, int, int]] = {}
        self._reserved: dict[str, int] = {}
        self._steps = 0
        self._answered: dict[tuple[str, str], Answer] = {}
        self._unclaimed: tuple[str, ...] = ()
        self._turn = 0
        self._arrivals = 0

    def announce(self, call_ids: Sequence[str], requests: Sequence[str] = ()) -> bool:
        """A model asked for these calls, in this order, in one turn.

        Args:
            call_ids: the framework's ids.
            requests: what each call asks for, equal for equal calls; parallel twins are told apart by it.

        Returns False for an echo: a model's `_generate` may itself stream, and both are heard.
        """
        with self._lock:
            if self._unclaimed and self._unclaimed == tuple(call_ids):
                return False
            self._unclaimed = tuple(call_ids)
            self._turn += 1
            for index, call_id in enumerate(call_ids):
                twin = requests[:index].count(requests[index]) if requests else 0
                self._announced[call_id] = (self._turn, index, twin)
                self._steps += 1
                self._reserved[call_id] = self._steps
        return True

    def turn(self, call_id: str | None) -> tuple[int, int]:
        """The turn in which a model asked for this call, and with how many calls; (0, 1) if none did."""
        with self._lock:
            turn = self._announced.get(call_id, (0, 0, 0))[0] if call_id is not None else 0
            return turn, sum(known[0] == turn for known in self._announced.values()) if turn else 1

    def place(self, call: Call) -> CallPosition:
        """Give a call its place; a call that no model asked for is a turn of its own."""
        with self._lock:
            self._arrivals += 1
            self._unclaimed = ()
            known = self._announced.get(call.call_id) if call.call_id is not None else None
            if known is None:
                self._turn += 1
                known = (self._turn, 0, 0)
            # the step that was reserved when the model asked; a new one for a repeat or an unasked call
            step = self._reserved.pop(call.call_id, None) if call.call_id is not None else None
            if step is None:
                step = self._steps = self._steps + 1
            turn, index, twin = known
            return CallPosition(turn, index, self._arrivals, twin, step)

    def after(self, place: CallPosition) -> str:
        """Name the state that a call at this place meets (`vocabulary.history_digest`)."""
        with self._lock:
            return self._writes.before(place.turn)

    def seen(self, call: Call, after: str, place: CallPosition) -> int:
        """How often this very call was answered in this very state before this place."""
        with self._lock:
            return bisect_left(self._turns_seen[call.key, after], place.turn) + place.twin

    def commit(
        self,
        place: CallPosition,
        call: Call,
        answer: Answer,
        effect: Effect,
        *,
        after: str,
        elapsed_s: float,
        at: float,
    ) -> Transition:
        """Keep an answered call. Steps are numbered by place in `transitions`."""
        with self._lock:
            entry = Transition(
                call=call,
                answer=answer,
                effect=effect,
                episode=self._episode,
                step=place.step,
                environment=self._environment,
                task=self._task,
                after=after,
                tenant=self._tenant,
                split=self._split,
                elapsed_s=elapsed_s,
                recorded_at=at,
            )
            self._entries.append((place, entry))
            insort(self._turns_seen[call.key, after], place.turn)
            if effect.changes_environment and took_effect(answer):
                self._writes.add(place, call.key)
        return entry

    def history(self, place: CallPosition) -> Sequence[Transition]:
        """The entries of earlier turns, by place; put together only when somebody looks."""
        return _Earlier(self, place.turn)

    def remember(self, identity: tuple[str, str], answer: Answer) -> None:
        """Keep an answer for a request that a resumed node may make again; failures are asked anew."""
        if answer.error is None:
            self._answered[identity] = answer

    def remembered(self, identity: tuple[str, str]) -> Answer | None:
        """The answer that exactly this request got before."""
        return self._answered.get(identity)

    def transitions(self, *, before_turn: int | None = None) -> tuple[Transition, ...]:
        """All entries by place, steps numbered from 1: the same for every thread timing."""
        with self._lock:
            ordered = sorted(self._entries, key=lambda item: item[0])
        return tuple(
            entry if entry.step == number else replace(entry, step=number)
            for number, (place, entry) in enumerate(ordered, start=1)
            if before_turn is None or place.turn < before_turn
        )

    def __len__(self) -> int:
        return len(self._entries)


class _Earlier(Sequence[Transition]):
    """What an episode knew before a turn. Most answers do not need it, so it is not copied for each."""

    def __init__(self, ledger: CallLog, turn: int) -> None:
        self._ledger = ledger
        self._turn = turn
        self._known: tuple[Transition, ...] | None = None

    def _all(self) -> tuple[Transition, ...]:
        if self._known is None:
            self._known = self._ledger.transitions(before_turn=self._turn)
        return self._known

    @overload
    def __getitem__(self, index: int) -> Transition: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Transition]: ...
    def __getitem__(self, index: int | slice) -> Transition | Sequence[Transition]:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())
