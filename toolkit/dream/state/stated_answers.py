"""Where stated tool models stand among the answers that code knows of a call.

What was recorded, and what a read is known to answer, comes first. Then a declared model, in the place of
what was mined; it leaves to the recordings what it does not say. A draft only beside mined answers that are
not sure.
"""

from collections.abc import Iterable, Sequence

from dreamgym_kit.dream.state.candidates import PRESUMED, Candidate, CandidateCall
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.stated import DECLARED, StatedModel, StatedOutcome
from dreamgym_kit.dream.state.values import MISSING
from dreamgym_kit.dream.state.views import State
from dreamgym_kit.types import Source

_HELD = 0.5  # confidence from which a view is taken for what the read answers, and mined rules for sure


def with_statements(
    models: ToolModels, state: State, asked: CandidateCall, found: Iterable[Candidate]
) -> Sequence[Candidate]:
    """The candidates that recordings give, and what was stated of the tool in its place among them."""
    known = list(found)
    said = models.stated.get(asked.tool)
    view = state.get(asked.tool, asked.spelled)
    if said is None or (view is not None and not asked.writes and view.confidence >= _HELD):
        return known
    outcome = said.outcome(*said.around(asked.names, state, asked.spelled))
    if outcome is None:
        return known
    if said.source == DECLARED:
        return _declared(models, asked, said, outcome, known)
    if outcome.seen is MISSING or any(one.support >= _HELD for one in known if _is_mined(one)):
        return known
    return [*known, _of_outcome(models, asked, said, outcome)]


def _declared(
    models: ToolModels,
    asked: CandidateCall,
    said: StatedModel,
    outcome: StatedOutcome,
    known: Sequence[Candidate],
) -> Sequence[Candidate]:
    recorded = [one for one in known if not _is_mined(one)]
    if not outcome.failure:
        by_rule = [one for one in known if one not in recorded and one.provenance is Source.DERIVED]
        failures = [one for one in by_rule if failed(one.seen) and one.basis != PRESUMED]
        if failures and not said.said.fails_only:
            return known  # a failure that was not said, but recorded
        if outcome.seen is MISSING:  # that it succeeds is said, but not with what
            return [one for one in known if not failed(one.seen)]
    if outcome.seen is MISSING:
        return recorded
    return [*recorded, _of_outcome(models, asked, said, outcome)]


def _is_mined(one: Candidate) -> bool:
    return one.basis != "line" and not one.basis.startswith("view")


def _of_outcome(
    models: ToolModels, asked: CandidateCall, said: StatedModel, outcome: StatedOutcome
) -> Candidate:
    seen = models.wrapped(asked.tool, outcome.seen)
    who = said.said.said_by or "settings"
    doubts = f", {outcome.doubts} of its conditions unknown" if outcome.doubts else ""
    why = f"{said.source} by {who}: {outcome.part}{doubts}"
    return Candidate(seen, Source.DERIVED, outcome.support(said.source), said.source, why)
