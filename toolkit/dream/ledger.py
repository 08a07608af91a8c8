"""The episode's calls and answers in order, and what later answers must agree with.

Here: who called what, what they were told, which calls changed (or would have changed) the world,
and one answer per repeated request. Parallel calls of one model turn do not see each other: the
state a call met is named by the world-changing calls of *earlier* turns, so that it does not
depend on which thread was faster.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dreamgym_kit.vocabulary import Answer, Call, Effect, Transition, World, history_digest


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a call stands in its episode: the model turn that asked for it, its index there, arrival."""

    turn: int
    index: int
    arrival: int


class Ledger:
    """Thread-safe; one per session."""

    def __init__(self, *, episode: str, task: str, world: World, tenant: str) -> None:
        self._lock = threading.Lock()
        self._episode, self._task, self._world, self._tenant = episode, task, world, tenant
        self._entries: list[tuple[Place, Transition]] = []
        self._writes: list[tuple[Place, str]] = []
        self._times_seen: Counter[tuple[str, str]] = Counter()
        self._announced: dict[str, tuple[int, int]] = {}
        self._answered: dict[tuple[str, str], Answer] = {}
        self._unclaimed: tuple[str, ...] = ()
        self._turn = 0
        self._arrivals = 0

    def announce(self, call_ids: Sequence[str]) -> bool:
        """A model asked for these calls, in this order, in one turn.

        Returns False for an echo: a model's `_generate` may itself stream, and both are heard.
        """
        with self._lock:
            if self._unclaimed and self._unclaimed == tuple(call_ids):
                return False
            self._unclaimed = tuple(call_ids)
            self._turn += 1
            for index, call_id in enumerate(call_ids):
                self._announced[call_id] = (self._turn, index)
        return True

    def place(self, call: Call) -> Place:
        """Give a call its place; a call that no model asked for is a turn of its own."""
        with self._lock:
            self._arrivals += 1
            self._unclaimed = ()
            known = self._announced.get(call.call_id) if call.call_id is not None else None
            if known is None:
                self._turn += 1
                known = (self._turn, 0)
            return Place(*known, self._arrivals)

    def after(self, place: Place) -> str:
        """Name the state that a call at this place meets (`vocabulary.history_digest`)."""
        with self._lock:
            earlier = sorted(write for write in self._writes if write[0].turn < place.turn)
        return history_digest([key for _, key in earlier])

    def seen(self, call: Call, after: str) -> int:
        """How often this very call was answered in this very state."""
        return self._times_seen[call.key, after]

    def commit(
        self,
        place: Place,
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
                step=len(self._entries) + 1,
                world=self._world,
                task=self._task,
                after=after,
                tenant=self._tenant,
                elapsed_s=elapsed_s,
                recorded_at=at,
            )
            self._entries.append((place, entry))
            self._times_seen[call.key, after] += 1
            if effect.changes_world:
                self._writes.append((place, call.key))
        return entry

    def history(self) -> Sequence[Transition]:
        """All entries as they arrived."""
        with self._lock:
            return [entry for _, entry in self._entries]

    def remember(self, identity: tuple[str, str], answer: Answer) -> None:
        """Keep an answer for a request that a resumed node may make again; failures are asked anew."""
        if answer.error is None:
            self._answered[identity] = answer

    def remembered(self, identity: tuple[str, str]) -> Answer | None:
        """The answer that exactly this request got before."""
        return self._answered.get(identity)

    def transitions(self) -> tuple[Transition, ...]:
        """All entries by place, steps numbered from 1: the same for every thread timing."""
        with self._lock:
            ordered = sorted(self._entries, key=lambda item: item[0])
        return tuple(replace(entry, step=number) for number, (_, entry) in enumerate(ordered, start=1))

    def __len__(self) -> int:
        return len(self._entries)
