"""Supervise the real calls of your own code: `with supervised(...)` around a graph that runs as usual.

    from dreamgym_kit import supervised
    with supervised(max_calls=20, audit="audit.jsonl") as session:
        graph.invoke(..., config)                       # stops at the first write, with an interrupt
        graph.invoke(Command(resume={"approve": True, "digest": ...}), config)

The block is armed: a tool called outside of it in the meantime is refused. No egress guard stands.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dreamgym_kit.adapters.langgraph.intercept.install import hook_tool_functions, install
from dreamgym_kit.adapters.langgraph.intercept.real_calls import InterruptApprover
from dreamgym_kit.adapters.langgraph.intercept.registration import register_functions
from dreamgym_kit.adapters.langgraph.run.api import live_policy, opened_store, renamed_arguments, settings_of
from dreamgym_kit.adapters.langgraph.run.experiences import chained_experience
from dreamgym_kit.adapters.langgraph.run.setup import keeper
from dreamgym_kit.adapters.langgraph.s2r.supervisor import (
    EarlierRecordings,
    open_audit,
    overseer_over,
    refuse_after_divergence,
)
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Approver, ExperienceModel, TransitionStore
from dreamgym_kit.rollout.lock import RunLock
from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.router import Mode, Stage
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.supervision.approvals import Rule, approver_from
from dreamgym_kit.supervision.audit import CLOSED
from dreamgym_kit.supervision.session import OverseenSession
from dreamgym_kit.types import Environment


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
    """Oversee the real calls of the block; gives the session.

    Args:
        stage: "shadow", "approve" or "live"; see the page on S2R.
        max_calls: most real calls, with those of earlier blocks over the same log; default: `s2r.max_calls`.
        audit: the file of the audit log; made where there is none, gone on with where there is one.
        approve: who is asked about held calls: an `Approver`, or a function that gives True for a yes.
            Default: the graph stops with an interrupt.
        buffer: recordings that real answers are held against; default: the buffer of the settings.
        experience: an experience model of one's own instead.
        environment: what the block works on.
        settings: default: the nearest dreamgym.toml.

    Raises:
        UserError: no budget, or an audit log that is not whole, in use, or of what ended because dream and
            reality had parted; nothing ran.
    """
    known = settings_of(settings, None).with_overrides({"s2r.max_calls": max_calls})
    if stage not in set(Stage):
        raise UserError(f"stage: there is no {stage!r:.40}; known: {', '.join(Stage)}. Nothing was run.")
    path = Path(audit).absolute()
    with (
        opened_store(buffer, known, create=False) as opened,
        RunLock(path.with_name(f"{path.name}.lock")),
        closing(open_audit(path)) as log,
    ):
        refuse_after_divergence(log, instead="begin a new audit log")
        install()
        hook_tool_functions(register_functions(known))
        own = f"staging-{log.head[:12]}"
        earlier = None if opened is None else EarlierRecordings(opened, own)
        dream = experience or chained_experience(earlier, known)
        overseer = overseer_over(
            log,
            known,
            experience=dream,
            store=earlier,
            approver=InterruptApprover() if approve is None else approver_from(approve),
        )
        session = OverseenSession(
            live_policy(Mode.S2R, known, Stage(stage)),
            experience=dream,
            environment=environment,
            episode=own,
            tenant=known.tenant,
            on_transition=keeper(None),
            overseer=overseer,
        )
        log.append("begun", stage=str(Stage(stage)), calls=overseer.limits.bounds.calls, session=session.id)
        try:
            with entered(session):
                yield session
        finally:
            if overseer.stopped is None or overseer.stopped.why != "audit":
                log.append(CLOSED, calls=overseer.limits.calls)
