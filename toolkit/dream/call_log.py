"""The episode's calls and answers in order, and what later answers must agree with.

Here: who called what, what they were told, which calls changed (or would have changed) the world,
and one answer per repeated request. Different parallel calls of one model turn do not see each other: the
state a call met is named by the world-changing calls of *earlier* turns, so that it does not
depend on which thread was faster. Equal ones follow each other in the order that the model asked for. That
name (`types.history_digest`) is kept as a running hash: an episode of n writes costs n steps, not n squared.
"""

import hashlib
import threading
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import overload

from dreamgym_kit.dream.faults import took_effect
from dreamgym_kit.types import Answer, Call, Effect, Environment, Split, Transition, history_digest


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
    within: "CallPosition | None" = field(default=None, compare=False)  # the call whose body makes it


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

    def keys(self, turn: int) -> list[str]:
        """The keys of all turns before this one."""
        return self._keys[: bisect_left(self._places, CallPosition(turn, -1, -1))]

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
        self._within: defaultdict[int, list[str]] = defaultdict(list)  # writes, by arrival of the call around
        self._announced: dict[str, tuple[int, int, int]] = {}
        self._left: dict[int, tuple[list[str], Counter[str]]] = {}  # all ids, ids left
        self._runs: dict[int, int] = {}  # by turn: the turn of its node's latest run
        self._earlier: dict[int, int] = {}  # by such a turn: that of the run before it
        self._open: Counter[int] = Counter()  # calls of a turn that have not ended
        self._under_way: set[CallPosition] = set()  # the places of these calls
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
            self._left[self._turn] = list(call_ids), Counter(call_ids)
            for index, call_id in enumerate(call_ids):
                twin = requests[:index].count(requests[index]) if requests else 0
                self._announced[call_id] = (self._turn, index, twin)
                self._steps += 1
                self._reserved[call_id] = self._steps
        return True

    def turn(self, call_id: str | None) -> tuple[int, int]:
        """Return the turn in which a model requested this call, and its number of calls; else (0, 1)."""
        with self._lock:
            turn = self._announced.get(call_id, (0, 0, 0))[0] if call_id is not None else 0
            return turn, sum(position[0] == turn for position in self._announced.values()) if turn else 1

    def place(self, call: Call, within: CallPosition | None = None) -> CallPosition:
        """Return a call's position; a call that no model requested is a turn of its own.

        LangGraph runs a node again after an interrupt and for a retry policy: its calls are made again, and
        those of one run are a turn of their own, after what the earlier run did.

        Args:
            call: the call.
            within: the call whose real body makes this one.
        """
        with self._lock:
            self._arrivals += 1
            self._unclaimed = ()
            position = self._announced.get(call.call_id) if call.call_id is not None else None
            if position is None:
                self._turn += 1
                position = (self._turn, 0, 0)
            # the step that was reserved when the model asked; a new one for a repeat or an unasked call
            step = self._reserved.pop(call.call_id, None) if call.call_id is not None else None
            if step is None:
                step = self._steps = self._steps + 1
            turn, index, twin = position
            if position[0] in self._left:
                turn = self._run(turn, str(call.call_id))
            self._open[turn] += 1
            place = CallPosition(turn, index, self._arrivals, twin, step, within)
            self._under_way.add(place)
            return place

    def _run(self, turn: int, call_id: str) -> int:
        """The turn of a node's run that a call is made in; a call that is made again begins a new run."""
        ids, left = self._left[turn]
        if left[call_id] < 1:
            self._turn += 1
            self._earlier[self._turn] = self._runs.get(turn, turn)
            self._runs[turn] = self._turn
            left.clear()
            left.update(ids)
        left[call_id] -= 1
        return self._runs.get(turn, turn)

    def awaits(self, call_id: str | None) -> bool:
        """Whether calls that a model asked for together with this one are still to be made."""
        with self._lock:
            turn = self._announced.get(call_id, (0, 0, 0))[0] if call_id is not None else 0
            return turn in self._left and self._left[turn][1].total() > 0

    def end(self, place: CallPosition) -> None:
        """The call at a place has an answer, or is broken off."""
        with self._lock:
            self._open[place.turn] -= 1
            self._under_way.discard(place)

    def overlaps(self, place: CallPosition) -> bool:
        """Whether calls of an earlier run of the same node are still under way: LangGraph leaves threads."""
        with self._lock:
            return self._open[self._earlier.get(place.turn, 0)] > 0

    def after(self, place: CallPosition) -> str:
        """Name the state that a call at this place meets (`vocabulary.history_digest`)."""
        with self._lock:
            if place.within is None:
                return self._writes.before(place.turn)
            keys: list[str] = []
            outer = place
            while outer.within is not None:
                outer = outer.within
                keys[:0] = self._within[outer.arrival]
            return history_digest([*self._writes.keys(outer.turn), *keys])

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
        keep: bool = True,
    ) -> Transition:
        """Keep an answered call, or only make its entry. Steps are numbered by place in `transitions`."""
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
                within=place.within.step if place.within is not None else 0,
            )
            if not keep:
                return entry
            self._entries.append((place, entry))
            if place.within is not None:
                if effect.changes_environment and took_effect(answer):
                    self._within[place.within.arrival].append(call.key)
                return entry
            insort(self._turns_seen[call.key, after], place.turn)
            if effect.changes_environment and took_effect(answer):
                self._writes.add(place, call.key)
        return entry

    def history(self, place: CallPosition, call: Call) -> Sequence[Transition]:
        """The entries of earlier turns and of equal calls before it in its own, by place.

        They are put together only when somebody looks.
        """
        return _Earlier(self, place.turn, self._twins(place, call) if place.twin else ())

    def awaits_twins(self, place: CallPosition, call: Call) -> bool:
        """Whether equal calls before this one in its turn have no answer yet."""
        return len(self._twins(place, call)) < place.twin

    def twin_under_way(self, place: CallPosition) -> bool:
        """Whether a call that may be an earlier equal one of its turn has begun and not ended."""
        with self._lock:
            return any(other.turn == place.turn and other.twin < place.twin for other in self._under_way)

    def _twins(self, place: CallPosition, call: Call) -> tuple[Transition, ...]:
        with self._lock:
            before = [
                (other, entry)
                for other, entry in self._entries
                if other.turn == place.turn and other.twin < place.twin and entry.call.key == call.key
            ]
        return tuple(entry for _, entry in sorted(before, key=lambda item: item[0]))

    def remember(self, identity: tuple[str, str], answer: Answer) -> None:
        """Keep an answer for a request that a resumed node may make again; failures are asked anew."""
        if answer.error is None:
            self._answered[identity] = answer

    def remembered(self, identity: tuple[str, str]) -> Answer | None:
        """The answer that exactly this request got before."""
        return self._answered.get(identity)

    def transitions(self, *, before_turn: int | None = None) -> tuple[Transition, ...]:
        """All entries by place, steps numbered from 1.

        Calls that a model asked for have one order whatever their threads do; others have that of arrival.
        """
        with self._lock:
            ordered = sorted(self._entries, key=lambda item: item[0])
        numbers = {place.step: number for number, (place, _) in enumerate(ordered, start=1)}
        return tuple(
            replace(
                entry,
                step=numbers[place.step],  # a call around that a person was asked about has no entry yet
                within=numbers.get(entry.within, numbers[place.step]) if entry.within else 0,
            )
            if place.step != numbers[place.step] or entry.within
            else entry
            for place, entry in ordered
            if before_turn is None or place.turn < before_turn
        )

    def __len__(self) -> int:
        return len(self._entries)


class _Earlier(Sequence[Transition]):
    """What an episode knew before a turn. Most answers do not need it, so it is not copied for each."""

    def __init__(self, ledger: CallLog, turn: int, twins: tuple[Transition, ...]) -> None:
        self._ledger = ledger
        self._turn = turn
        self._twins = twins
        self._entries_before: tuple[Transition, ...] | None = None

    def _all(self) -> tuple[Transition, ...]:
        if self._entries_before is None:
            self._entries_before = (*self._ledger.transitions(before_turn=self._turn), *self._twins)
        return self._entries_before

    @overload
    def __getitem__(self, index: int) -> Transition: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Transition]: ...
    def __getitem__(self, index: int | slice) -> Transition | Sequence[Transition]:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())
