"""Bar S6: whatever is done to a store, in whatever order, it answers as a dict in insertion order would.

Put, a put that fails, get, search, evict, export and import, reopen; over the SQLite file (also when it was
written by an older version), over memory and over Weaviate, on its double and on a live server where there is
one. 50 sequences in CI, 1,000 of 50 steps nightly; over a wire fewer, since each step asks several times.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from each_row import each_row
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import StoreError
from dreamgym_kit.interfaces import HybridQuery, Room, TransitionStore
from dreamgym_kit.replay.eviction import StoredRow, to_evict
from dreamgym_kit.replay.transfer import export_jsonl, import_jsonl
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, Split, Transition

NOW = 1_000.0
FIRST = Environment("a")
CI = settings(max_examples=50, stateful_step_count=20, deadline=None)
LONG = settings(stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck))
PLANTED = settings(
    CI, max_examples=200, derandomize=True, report_multiple_bugs=False, phases=[Phase.generate]
)


def seen(
    step: int,
    content: JsonValue = "ok",
    *,
    tool: str = "get",
    environment: Environment = FIRST,
    tenant: str = "x",
    made: Source = Source.REAL,
    split: Split = Split.TRAIN,
    at: float = 0.0,
    order: int = 1,
) -> Transition:
    call = Call(tool, {"id": f"ORD-{order}"})
    return Transition(
        *(call, Answer(content, made), Effect.READ, f"t.{step}", step, environment),
        tenant=tenant,
        split=split,
        recorded_at=at,
    )


class StoreAgainstDict(RuleBasedStateMachine):
    """The dict is `model`: id -> transition, in the order recorded."""

    rows = st.builds(
        seen,
        st.integers(1, 4),
        st.sampled_from(["ok", 1.0, None]),
        tool=st.sampled_from(["get", "set"]),
        environment=st.sampled_from([Environment("a"), Environment("b")]),
        tenant=st.sampled_from(["x", "y"]),
        made=st.sampled_from([Source.REAL, Source.REAL, Source.MODEL]),
        split=st.sampled_from([Split.TRAIN, Split.TRAIN, Split.HELD_OUT]),
        at=st.sampled_from([0.0, 100.0, 900.0]),
        order=st.integers(1, 2),
    )

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.model: dict[str, Transition] = {}
        self.files = 0
        self.store = self.open("buffer")

    def open(self, name: str) -> TransitionStore:
        raise NotImplementedError

    @rule(batch=st.lists(rows, max_size=4))
    def put(self, batch: list[Transition]) -> None:
        before = len(self.model)
        for row in batch:
            self.model.setdefault(row.id, row)
        assert self.store.put(batch) == len(self.model) - before

    @rule(row=rows, bad=st.sampled_from([float("inf"), object()]))
    def fail_to_put(self, row: Transition, bad: object) -> None:
        with pytest.raises(StoreError):
            self.store.put([row, seen(1, bad)])

    @rule(row=rows)
    def get(self, row: Transition) -> None:
        want = (row.tenant, row.environment, row.call.key)
        expected = [it for it in self.model.values() if (it.tenant, it.environment, it.call.key) == want]
        assert self.store.exact(row.call.tool, row.call.key, row.environment, tenant=row.tenant) == expected

    @rule(row=rows)
    def search(self, row: Transition) -> None:
        """All that say something of their own are found when as many are asked for; real ones first."""
        found = self.store.search(HybridQuery("ORD-1 get", tool=row.call.tool, tenant=row.tenant, k=100))
        known = [it for it in self.model.values() if (it.tenant, it.call.tool) == (row.tenant, row.call.tool)]
        shown = [it for it in known if it.split is Split.TRAIN]
        said = [_saying(hit.transition) for hit in found]
        assert sorted(said) == sorted({_saying(it) for it in shown})
        real = [hit.transition.answer.source is Source.REAL for hit in found]
        assert real == sorted(real, reverse=True)
        assert all(hit.transition in shown for hit in found)

    @rule(
        rows=st.none() | st.integers(1, 6),
        share=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
        lifetime=st.sampled_from([None, 500.0]),
    )
    def evict(self, rows: int | None, share: float, lifetime: float | None) -> None:
        room = Room(rows, share, lifetime)
        kept = [
            StoredRow(number, it.answer.source is Source.REAL, it.recorded_at)
            for number, it in enumerate(self.model.values())
        ]
        names = list(self.model)
        leaving = [names[number] for number in to_evict(kept, room, now=NOW)]
        for name in leaving:
            del self.model[name]
        assert self.store.evict(room, now=NOW) == len(leaving)

    @precondition(lambda self: self.files < 3)
    @rule()
    def export_and_import(self) -> None:
        self.files += 1
        path = Path(self.folder.name) / f"{self.files}.jsonl"
        assert export_jsonl(self.store, path) == len(self.model)
        report = import_jsonl(path, self.store)
        assert (report.read, report.new) == (len(self.model), 0)
        copy = self.open(f"copy-{self.files}")
        assert import_jsonl(path, copy).new == len(self.model)
        assert list(copy.scan()) == list(self.model.values())
        copy.close()

    @invariant()
    def holds_the_same(self) -> None:
        assert self.store.count() == len(self.model)
        assert list(self.store.scan()) == list(self.model.values())

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


class MemoryAgainstDict(StoreAgainstDict):
    def open(self, name: str) -> TransitionStore:
        return MemoryStore()


class SqliteAgainstDict(StoreAgainstDict):
    kind = SqliteStore

    def open(self, name: str) -> TransitionStore:
        return self.kind(Path(self.folder.name) / f"{name}.db")

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open("buffer")


class WeaviateAgainstDict(StoreAgainstDict):
    """Each sequence has tenants of its own; `buffers` opens them."""

    buffers: Callable[..., TransitionStore]

    def __init__(self) -> None:
        self.prefix = uuid4().hex
        super().__init__()

    def open(self, name: str) -> TransitionStore:
        return type(self).buffers(f"{name}-{self.prefix}")

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open("buffer")


class EvictsOldestDouble(SqliteStore):
    """A planted bug: the oldest rows leave, real or not."""

    def evict(self, room: Room, *, now: float | None = None) -> int:
        """All but the last `room.rows`."""
        rows = list(self.scan())
        return super().evict(Room(room.rows, 1.0), now=now) if room.rows and room.rows < len(rows) else 0


class CountsAgainDouble(SqliteStore):
    """A planted bug: says that a row is new which it has."""

    def put(self, transitions: Sequence[Transition]) -> int:
        """Count what was given."""
        super().put(transitions)
        return len({row.id for row in transitions})


class ForgetsTenantDouble(SqliteStore):
    """A planted bug: a call is answered from whoever recorded it."""

    def exact(
        self, tool: str, key: str, environment: Environment, *, tenant: str = "default"
    ) -> list[Transition]:
        """The rows of all tenants."""
        return [row for row in self.scan(tool=tool, environment=environment) if row.call.key == key]


TestMemoryAgainstDict = MemoryAgainstDict.TestCase
TestSqliteAgainstDict = SqliteAgainstDict.TestCase
TestMemoryAgainstDict.settings = TestSqliteAgainstDict.settings = CI


def answers_as_a_dict(buffers: Callable[..., TransitionStore], sequences: int) -> None:
    class OverTheWire(WeaviateAgainstDict):
        pass

    OverTheWire.buffers = staticmethod(buffers)
    run_state_machine_as_test(OverTheWire, settings=settings(CI, max_examples=sequences))


def test_a_buffer_on_weaviates_double_answers_as_a_dict_would(
    doubled_weaviate: Callable[..., TransitionStore],
) -> None:
    answers_as_a_dict(doubled_weaviate, 2)


@pytest.mark.slow
@pytest.mark.nightly
def test_fifty_sequences_on_weaviates_double_answer_as_a_dict_would(
    doubled_weaviate: Callable[..., TransitionStore],
) -> None:
    answers_as_a_dict(doubled_weaviate, 50)


@pytest.mark.weaviate
def test_fifty_sequences_on_a_live_weaviate_answer_as_a_dict_would(
    live_weaviate: Callable[..., TransitionStore],
) -> None:
    answers_as_a_dict(live_weaviate, 50)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("machine", [MemoryAgainstDict, SqliteAgainstDict])
@pytest.mark.parametrize(
    "sequences", [pytest.param(50, marks=pytest.mark.slow), pytest.param(1_000, marks=pytest.mark.nightly)]
)
def test_sequences_of_fifty_steps_answer_as_a_dict_would(
    machine: type[StoreAgainstDict], sequences: int
) -> None:
    run_state_machine_as_test(machine, settings=settings(LONG, max_examples=sequences))


@pytest.mark.slow
@each_row("planted", [EvictsOldestDouble, CountsAgainDouble, ForgetsTenantDouble])
def test_a_store_that_is_no_dict_is_found_out(planted: type[SqliteStore]) -> None:
    class Planted(SqliteAgainstDict):
        kind = planted

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Planted, settings=PLANTED)


def _saying(row: Transition) -> str:
    """What makes a hit one of its own: the call and the answer."""
    return repr((row.call.key, row.answer.content, row.answer.error))
