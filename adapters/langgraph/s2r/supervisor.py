"""What oversees real calls, put together: limits, audit log, approver, and the dream beside it.

`supervised` does so around a graph of your own that runs as usual:

    from dreamgym_kit import supervised
    with supervised(max_calls=20, audit="audit.jsonl") as session:
        graph.invoke(..., config)                       # stops at the first write, with an interrupt
        graph.invoke(Command(resume={"approve": True, "digest": ...}), config)

The block is armed: a tool called outside of it in the meantime is refused. No egress guard stands.

The dream that real answers are held against never sees what the same run has recorded: a tool that changed
would soon agree with itself.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from dreamgym_kit.adapters.langgraph.analysis.loading import load_named
from dreamgym_kit.adapters.langgraph.intercept.real_calls import InterruptApprover
from dreamgym_kit.adapters.langgraph.run.api import (
    gated_session,
    opened_store,
    renamed_arguments,
    settings_of,
)
from dreamgym_kit.adapters.langgraph.run.experiences import chained_experience
from dreamgym_kit.adapters.stores.factory import is_far
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.held_out import as_seen
from dreamgym_kit.errors import UserError
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import Approver, ExperienceModel, Hit, HybridQuery, Room, TransitionStore
from dreamgym_kit.rollout.atomic_files import RunLock
from dreamgym_kit.routing.router import Mode, Stage
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.supervision.audit import CLOSED, AuditLog, entries_of
from dreamgym_kit.supervision.divergence import Divergence, Forms
from dreamgym_kit.supervision.limits import (
    ALL,
    RealCallsStopped,
    RealLimits,
    Rule,
    RuleApprover,
    Why,
    approver_from,
)
from dreamgym_kit.supervision.overseer import RealOverseer
from dreamgym_kit.types import Answer, Environment, Transition

_FORM_ROWS = 500  # newest recordings that a tool's form is read from


@renamed_arguments(store="buffer", calls="max_calls", world="environment")
@contextmanager
def supervised(
    *,
    stage: Stage | str = Stage.APPROVE,
    max_calls: int | None = None,
    audit: str | Path,
    approve: Approver | Rule | None = None,
    buffer: TransitionStore | str | Path | None = None,
    experience: ExperienceModel | None = None,
    environment: Environment | None = None,
    settings: Settings | None = None,
) -> Iterator[Session]:
    """Supervise the real calls of the block; yields the session.

    Args:
        stage: "shadow", "approve" or "live"; see the page on S2R.
        max_calls: most real calls, with those of earlier blocks over the same log; default: `s2r.max_calls`.
        audit: the file of the audit log; made where there is none, gone on with where there is one.
        approve: who is asked about held calls: an `Approver`, or a function that gives True for a yes.
            Default: the graph stops with an interrupt.
        buffer: recordings that real answers are compared with; default: the buffer of the settings.
        experience: an experience model of one's own instead.
        environment: what the block works on.
        settings: default: the nearest dreamgym.toml.

    Raises:
        UserError: no budget, or an audit log that is damaged, in use, or of a run that ended by divergence
            from the dream; nothing ran.
    """
    block_settings = settings_of(settings, None).with_overrides({"s2r.max_calls": max_calls})
    if stage not in set(Stage):
        raise UserError(f"stage: there is no {stage!r:.40}; known: {', '.join(Stage)}. Nothing was run.")
    path = Path(audit).absolute()
    with (
        opened_store(buffer, block_settings, create=False) as opened,
        RunLock(path.with_name(f"{path.name}.lock")),
        closing(open_audit(path)) as log,
    ):
        refuse_after_divergence(log, instead="begin a new audit log")
        own = f"staging-{log.head[:12]}"
        earlier = None if opened is None else EarlierRecordings(opened, own)
        dream = experience or chained_experience(earlier, block_settings)
        overseer = overseer_over(
            log,
            block_settings,
            experience=dream,
            store=earlier,
            approver=InterruptApprover() if approve is None else approver_from(approve),
        )
        begun = False  # bad settings are refused before the log begins
        try:
            with gated_session(
                Mode.S2R,
                block_settings,
                stage=Stage(stage),
                experience=dream,
                environment=environment,
                episode=own,
                overseer=overseer,
            ) as session:
                most = overseer.limits.budget
                log.append("begun", stage=str(Stage(stage)), calls=most, session=session.id)
                begun = True
                yield session
        finally:
            if begun and (overseer.stopped is None or overseer.stopped.why is not Why.AUDIT):
                log.append(CLOSED, calls=overseer.limits.calls)


class EarlierRecordings:
    """Implements `interfaces.TransitionStore` over another one: this run's own rows are not seen.

    Args:
        store: the buffer.
        own: what the episodes of this run begin with.
    """

    def __init__(self, store: TransitionStore, own: str) -> None:
        self.store, self._own = store, own
        self.far = is_far(store)

    def put(self, transitions: Sequence[Transition]) -> int:
        """See `TransitionStore.put`."""
        return self.store.put(transitions)

    def exact(
        self, tool: str, key: str, environment: Environment, *, tenant: str = "default"
    ) -> list[Transition]:
        """See `TransitionStore.exact`."""
        return list(self._earlier(self.store.exact(tool, key, environment, tenant=tenant)))

    def scan(
        self, *, tenant: str | None = None, tool: str | None = None, environment: Environment | None = None
    ) -> Iterator[Transition]:
        """See `TransitionStore.scan`."""
        return self._earlier(self.store.scan(tenant=tenant, tool=tool, environment=environment))

    def search(self, query: HybridQuery) -> list[Hit]:
        """See `TransitionStore.search`."""
        return [hit for hit in self.store.search(query) if not self._is_own(hit.transition)]

    def evict(self, room: Room, *, now: float | None = None) -> int:
        """See `TransitionStore.evict`."""
        return self.store.evict(room, now=now)

    def remove(self, ids: Sequence[str]) -> int:
        """See `TransitionStore.remove`."""
        return self.store.remove(ids)

    def count(self) -> int:
        """See `TransitionStore.count`."""
        return self.store.count()

    def close(self) -> None:
        """See `TransitionStore.close`."""
        self.store.close()

    def _earlier(self, rows: Iterable[Transition]) -> Iterator[Transition]:
        return (row for row in rows if not self._is_own(row))

    def _is_own(self, row: Transition) -> bool:
        return row.episode.startswith(self._own)


def real_limits(settings: Settings) -> RealLimits:
    """What a person allowed.

    Raises:
        UserError: nobody said how many real calls there may be.
    """
    s2r = settings.s2r
    if s2r.max_calls is None:
        raise UserError(
            f"{settings.where('s2r', 'max_calls')}: say how many real calls there may be (--max-calls "
            "N, or max_calls = N under [s2r]). Nothing was run."
        )
    return RealLimits(s2r.max_calls, dict(s2r.max_calls_per_tool), {**s2r.rate_per_tool, ALL: s2r.rate})


def approver_of(settings: Settings) -> Approver | None:
    """The function that settings name as the approver; None where they name none.

    Raises:
        UserError: it cannot be loaded, or is no function.
    """
    reference = settings.s2r.approver
    if reference is None:
        return None
    where = settings.where("s2r", "approver")
    rule = load_named(reference, kind="approver", where=where, folder=settings.folder)
    if not callable(rule):
        raise UserError(f"{where}: approver '{reference}' is of type {type(rule).__name__}, not a function.")
    return RuleApprover(rule, reference)


def divergence_over(
    experience: ExperienceModel | None, store: TransitionStore | None, settings: Settings
) -> Divergence:
    """What holds real answers against the dream."""

    def seen(answer: Answer, tool: str) -> str:
        if not isinstance(experience, ChainedExperience):
            return as_seen(answer, tool, None)
        with experience.programs.lock:
            return as_seen(answer, tool, experience.programs.programs(settings.tenant).model)

    @cache
    def forms() -> Forms:
        rows: dict[str, deque[Transition]] = defaultdict(lambda: deque(maxlen=_FORM_ROWS))
        with egress.exempt():  # the buffer is the kit's own file
            for row in store.scan(tenant=settings.tenant) if store is not None else ():
                rows[row.call.tool].append(row)
        return Forms({tool: list(some) for tool, some in rows.items()})

    return Divergence(seen, lambda spec: forms().of(spec))


def overseer_over(
    audit: AuditLog,
    settings: Settings,
    *,
    experience: ExperienceModel | None,
    store: TransitionStore | None,
    approver: Approver | None,
    on_stop: Callable[[RealCallsStopped], None] | None = None,
) -> RealOverseer:
    """An overseer as settings have it; what an earlier leg did stands in the log and counts."""
    overseer = RealOverseer(
        real_limits(settings),
        audit,
        divergence=divergence_over(experience, store, settings),
        approver=approver,
        approval_s=settings.s2r.approval_timeout_s,
        unheld=frozenset(settings.s2r.auto_approve),
        on_stop=on_stop,
    )
    unanswered = set()
    for entry in entries_of(audit.path):
        if entry.kind == "call":
            overseer.count_earlier(str(entry.facts.get("tool")), str(entry.facts.get("episode")))
            unanswered.add(entry.number)
        elif entry.kind in ("answered", "unknown"):
            unanswered.discard(entry.facts.get("call"))
    for number in sorted(unanswered):
        audit.append("unknown", call=number, text="its process ended before it did; it may have taken effect")
    return overseer


def refuse_after_divergence(audit: AuditLog, *, instead: str) -> None:
    """What ended because the dream was wrong does not go on with the same dream.

    Args:
        audit: the log of all that was done so far.
        instead: what a person can do, beside recording the tools again.

    Raises:
        UserError: an earlier leg ended so.
    """
    for entry in entries_of(audit.path):
        if entry.kind == "stopped" and Why(str(entry.facts.get("why"))).final:
            raise UserError(
                f"{audit.path}: ended because {entry.facts.get('text')}. Record the real tools again, and "
                f"{instead}. Nothing was run."
            )


def open_audit(path: Path) -> AuditLog:
    """The audit log of a run, made or gone on with; the guard leaves the kit's own file alone."""
    with egress.exempt():
        return AuditLog(path)
