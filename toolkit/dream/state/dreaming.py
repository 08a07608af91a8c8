"""One dreamed episode over tool models and a world's recordings: answers calls and keeps its own state."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dreamgym_kit.dream.calibration import Calibrator, Trial
from dreamgym_kit.dream.state.advance import TOLD, advance, forget
from dreamgym_kit.dream.state.candidates import (
    CONTESTED,
    OTHER_WORLDS,
    PRESUMED,
    SAME_WORLD,
    Candidate,
    CandidateCall,
    candidates,
)
from dreamgym_kit.dream.state.history import HistoryStep, Pool, RecordedEpisode
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.names import Names, around
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.stated import DECLARED
from dreamgym_kit.dream.state.stated_answers import with_statements
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.views import State
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Source

_GUESSES = frozenset((PRESUMED, CONTESTED))
_NEVER_RAISED = _GUESSES | {SAME_WORLD, OTHER_WORLDS}
_MIN_CONFIDENCE = 0.3
_REALLY_TOLD = 0.9  # below it, what was told was itself dreamt, and repeating it makes it no truer


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What answers are made from: models, the recordings of worlds, and how far support can be believed."""

    models: ToolModels
    pool: Pool
    calibration: Calibrator = field(default_factory=Calibrator)


@dataclass(frozen=True, slots=True)
class Told:
    """What the dream would answer; `support` is calibrated, `raw` is not."""

    seen: JsonValue
    provenance: Source
    support: float
    raw: float
    basis: str
    why: str


def consider(
    knowledge: Knowledge, state: State, world: str, tool: str, args: Mapping[str, JsonValue]
) -> tuple[list[Told], Names]:
    """The answers to a call, best supported first, and what could be named around it."""
    models = knowledge.models
    names = around(args, state, models.fresh_for(tool, state))
    asked = CandidateCall(tool, args, spell(dict(args)), names, tool in models.writes, world)
    found = with_statements(models, state, asked, candidates(models, knowledge.pool, state, asked))
    told = [_told(knowledge, tool, one) for one in found]
    return sorted(told, key=lambda one: (-one.support, -one.raw)), names


def follow(
    knowledge: Knowledge,
    state: State,
    step: HistoryStep,
    names: Names | None = None,
    confidence: float = TOLD,
) -> State:
    """The state after a call was answered."""
    known = names or around(step.args, state, knowledge.models.fresh_for(step.tool, state))
    line = knowledge.pool.next(state.line, step)
    sure = max(_MIN_CONFIDENCE, min(TOLD, confidence))
    return advance(knowledge.models, state, step, known, line, confidence=sure)


def replay(
    knowledge: Knowledge,
    start: State,
    episode: RecordedEpisode,
    threshold: float = 0.0,
    *,
    guesses: bool = True,
) -> list[Told | None]:
    """Dream an episode's calls, free-running: nothing is corrected. None where the dream abstains.

    Without `guesses` it also abstains from what is presumed or contested, however low the threshold.
    """
    state, told = start, []
    for step in episode.steps:
        options, names = consider(knowledge, state, episode.world, step.tool, step.args)
        best = options[0] if options and options[0].support >= threshold else None
        if best is not None and not guesses and best.basis in _GUESSES:
            best = None
        told.append(best)
        if best is not None:
            dreamt = step._replace(seen=best.seen, failed=failed(best.seen))
            state = follow(knowledge, state, dreamt, names, best.support)
        elif step.writes:
            state = forget(knowledge.models, state, step)
    return told


def trials(episode: RecordedEpisode, told: list[Told | None]) -> list[Trial]:
    """What a replay got right."""
    return [
        Trial(step.tool, one.basis, one.raw, spell(one.seen) == spell(step.seen))
        for step, one in zip(episode.steps, told, strict=True)
        if one is not None and one.basis not in _GUESSES
    ]


def _told(knowledge: Knowledge, tool: str, one: Candidate) -> Told:
    if one.basis == DECLARED:  # a person said so: nothing was learned of it
        return Told(one.seen, one.provenance, one.support, one.support, one.basis, one.why)
    support = knowledge.calibration.support(tool, one.basis, one.support)
    if one.basis in _NEVER_RAISED or (one.basis == "view told" and one.support < _REALLY_TOLD):
        support = min(support, one.support)
    return Told(one.seen, one.provenance, support, one.support, one.basis, one.why)
