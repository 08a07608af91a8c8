"""What a run is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dreamgym_kit.interfaces import ChatEndpoint, Checker, ExperienceModel, TransitionStore
from dreamgym_kit.rollout.selecting import Shard
from dreamgym_kit.routing.router import Mode, Stage
from dreamgym_kit.routing.supervision import Overseer
from dreamgym_kit.settings.schema import NO_GATE, GateSettings, Settings
from dreamgym_kit.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What to run.

    Attributes:
        graph: a spec ("module:attr", ...) or a live graph, StateGraph or factory.
        tasks: a JSON-lines file, or tasks.
        store: dreams answer from it, recording writes to it; None: nothing is known, all calls abstain.
        directory: where the run directory is (to resume) or is to be made (else under `settings.runs`).
        experience: instead of the recordings, an experience model of one's own.
        label: put before recorded episodes' ids instead of the run's id, for recordings that must
            come out the same each time.
        must_reset: refuse to run where tools change a world that nobody puts back for each episode.
        real_faults: the faults of the settings befall real tools' calls too; nothing of it may be kept.
        overseer: lets the real calls of `Mode.S2R` through, as far as `stage` goes.
        must_be_said: refuse tools whose effect is only guessed.
        trains: what the dream answers is learned from, so its model answers only where it is trusted.
        judge: judges every episode instead of the tasks' own checkers.
        policy: answers in place of the graph's chat models, as `settings.policy` says; None: they do.
        shard: runs this part of the tasks only.
        overlap: the caller asked for several episodes at once: where that cannot be, refuse.
        gate: the rules that its verdict follows from; None: those of the settings for a dream that judges an
            agent, else none but those that always hold.
        evaluates: of an evaluation: "measured" where nothing is required of the agent, else "required".
        weights: digest of the policy's model directory, where that answers unchanged over the whole run.
    """

    graph: object
    tasks: Path | Sequence[Task]
    settings: Settings
    mode: Mode = Mode.DREAM
    store: TransitionStore | None = None
    directory: Path | None = None
    resume: bool = False
    experience: ExperienceModel | None = None
    label: str | None = None
    must_reset: bool = False
    trains: bool = False
    policy: ChatEndpoint | None = None
    judge: Checker | None = None
    real_faults: bool = False
    weights: str = ""
    overseer: Overseer | None = None
    stage: Stage = Stage.SHADOW
    must_be_said: bool = False
    shard: Shard | None = None
    gate: GateSettings | None = None
    overlap: bool = False
    evaluates: str = ""

    @property
    def rules(self) -> GateSettings:
        """The gate's rules for this run."""
        if self.gate is not None:
            return self.gate
        return self.settings.gate if self.mode is Mode.DREAM and not self.trains else NO_GATE

    @property
    def kind(self) -> str:
        """What the run's directory says that it is: "dream", "record", "s2r-shadow", ..."""
        return f"{self.mode}-{self.stage}" if self.mode is Mode.S2R else self.mode.value


def name_of(graph: object) -> str:
    """What reports call a graph: its spec, its name, or its class."""
    return graph if isinstance(graph, str) else str(getattr(graph, "name", None) or type(graph).__name__)


def name_of_part(part: object) -> str:
    """What a manifest calls a judge or an experience model of one's own: its name, else its code's place."""
    name = getattr(part, "name", None)
    if isinstance(name, str) and name:
        return name
    code: Any = part if hasattr(part, "__qualname__") else type(part)
    return f"{code.__module__}:{code.__qualname__}"
