"""What is asked of a way to the real tools, and what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.langgraph.training.types import TrainResult
from dreamgym_kit.interfaces import Approver, ExperienceModel, TransitionStore
from dreamgym_kit.replay.masking import process_masker
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.supervision.limits import Stopped
from dreamgym_kit.supervision.preflight import CanaryFigures, DreamFigures, Word, canary_facts, dream_facts
from dreamgym_kit.types import Task

MODE = "s2r"


@dataclass(frozen=True, slots=True, kw_only=True)
class S2rRequest:
    """What is asked for.

    Attributes:
        graph: a spec ("module:attr", ...) or a live graph, StateGraph or factory.
        tasks: a JSON-lines file, or tasks. The gate tries those whose split is `held_out` in the dream.
        settings: `[s2r]` says how far it goes; `[train]` how it learns; `policy.model` what it begins with.
        store: what real answers are held against, and where they go.
        held_out: tasks for the gate; None: those that settings name, else the held-out among `tasks`.
        experience: instead of the recordings, an experience model of one's own.
        approver: is asked about held calls; None: the function that settings name, if they name one.
        directory: where the run directory is (to resume) or is to be made (else under `settings.runs`).
        gate_only: do not go further than the gate; no real call is made.
    """

    graph: object
    tasks: Path | Sequence[Task]
    settings: Settings
    store: TransitionStore
    held_out: Sequence[Task] | None = None
    experience: ExperienceModel | None = None
    approver: Approver | None = None
    directory: Path | None = None
    resume: bool = False
    gate_only: bool = False


@dataclass(frozen=True, slots=True)
class S2rResult:
    """What came of it."""

    directory: Path
    gate: Word
    dream: DreamFigures | None  # None: an earlier leg passed the gate
    canaries: CanaryFigures | None  # None: none was asked for, or an earlier leg had them
    real_calls: int  # of all legs
    budget: int
    by_tool: Mapping[str, int]
    compared: Mapping[str, Any]  # by tool
    withheld: int  # calls of episodes in doubt that did not run
    stopped: Stopped | None  # what ended the real calls; None: nothing did
    training: TrainResult | None  # None: it never began
    head: str  # digest of the audit log's last line, to be kept elsewhere
    stopped_by: int | None = None  # signal number
    executed: str = ""  # the real calls that ran past every gate, in a sentence

    @property
    def weights(self) -> Path | None:
        """The model directory that came of it."""
        return self.training.weights if self.training is not None else None


def s2r_report(result: S2rResult) -> dict[str, Any]:
    """What came of it, as the run directory keeps it."""
    weights = result.weights
    return {
        "kind": MODE,
        "gate": {"passed": result.gate.passed, "text": result.gate.text},
        "dream": None if result.dream is None else dream_facts(result.dream),
        "canaries": None if result.canaries is None else canary_facts(result.canaries),
        "real_calls": result.real_calls,
        "budget": result.budget,
        "by_tool": dict(result.by_tool),
        "compared": dict(result.compared),
        "withheld": result.withheld,
        "stopped": None
        if result.stopped is None
        else {"why": result.stopped.why.value, "text": process_masker().text(result.stopped.text)},
        "steps": len(result.training.trained.steps) if result.training is not None else 0,
        "weights": None if weights is None else str(weights.relative_to(result.directory)),
        "audit": {"head": result.head},
        **({"executed": result.executed} if result.executed else {}),
    }
