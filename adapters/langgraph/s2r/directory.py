"""The run directory of a way to the real tools: what its legs must share."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dreamgym_kit.adapters.langgraph.run.directory import label_of, leg_directory
from dreamgym_kit.adapters.langgraph.run.request import name_of
from dreamgym_kit.adapters.langgraph.s2r.types import MODE, S2rRequest
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.rollout.tasks import tasks_digest
from dreamgym_kit.routing.router import Stage
from dreamgym_kit.supervision.audit import AUDIT
from dreamgym_kit.types import Task


@contextmanager
def s2r_directory(
    request: S2rRequest, stage: Stage, learn: Sequence[Task], held_out: Sequence[Task], model: Path
) -> Iterator[RunDirectory]:
    """Make the directory, or take it up again; locked while it is held.

    Raises:
        UserError: there is something else at its place, or it was begun with other settings.
    """
    matters = {
        "mode": MODE,
        "graph": name_of(request.graph),
        "stage": "staged" if stage is Stage.APPROVE else stage.value,  # as earlier versions wrote it
        "policy": str(model),
        "learned_from": tasks_digest(learn),
        "held_out": tasks_digest(held_out),
        "tenant": request.settings.tenant,
    }
    with leg_directory(request, f"s2r-{label_of(name_of(request.graph))}", matters, begun=AUDIT) as directory:
        yield directory
