"""What code can say about a call: the recorded, the composed and the analogous answer, each with its support.

Support is 0..1 before calibration. An error that names an argument is only presumed unless something known
says so: open world, because "not found" of what was merely never seen is the worst error a dream can make.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dreamgym_kit.dream.state.absences import denied_by, surely_absent
from dreamgym_kit.dream.state.facts import facts_around, vouched
from dreamgym_kit.dream.state.history import HistoryStep, Pool
from dreamgym_kit.dream.state.likeness import unlike
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.trees import predict
from dreamgym_kit.dream.state.unanswered import source_touched, unknown_since
from dreamgym_kit.dream.state.values import is_key, spell
from dreamgym_kit.dream.state.views import State
from dreamgym_kit.dream.state.volatile import SIGN
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Source

PRESUMED = "presumed"
"""The basis of a failure that nothing known vouches for; calibration never raises it."""

CONTESTED = "contested"
"""The basis of an answer that calls alike in all that is known did not always get; never raised either."""

SAME_WORLD, OTHER_WORLDS = "world", "worlds"
"""Bases whose support is a share that was counted; calibration may lower it and does not raise it."""

_PRESUMED = 0.35  # what a failure is worth when nothing known says so
_GUESSED = 0.49  # the most that the majority is worth where recordings contradict each other
_AFTER_WRITES = 0.8  # what another world's answer is worth once this world was written to
_HELD = 0.5  # confidence from which a view is taken for what the read answers
_ONE_WORLD = 0.35  # what one world has shown alone
_DOUBT = 0.5  # worlds that may yet say otherwise
_ANYWHERE = 0.97  # agreement from which an answer counts as the same in all worlds


@dataclass(frozen=True, slots=True)
class CandidateCall:
    """A call to be answered."""

    tool: str
    args: Mapping[str, JsonValue]
    spelled: str
    names: Names  # around the call
    writes: bool
    world: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible answer."""

    seen: JsonValue
    provenance: Source
    support: float
    basis: str  # "line", "view ...", "rule" or one of the names above; support is calibrated for each
    why: str = ""


def candidates(models: ToolModels, pool: Pool, state: State, asked: CandidateCall) -> Iterator[Candidate]:
    """All answers that code knows, in no order."""
    found, seen = pool.exact(state.line, asked.tool, asked.spelled)
    if found:
        yield Candidate(seen, Source.RECORDED, 0.99 * state.sure, "line", "recorded after the same writes")
    view, most = state.get(asked.tool, asked.spelled), 1.0
    if view is not None:
        recorded = view.source == "recorded"
        provenance = Source.RECORDED if recorded else Source.DERIVED
        support = view.confidence * min(1.0, state.sure / view.spared + 0.02)
        yield Candidate(view.observation, provenance, support, f"view {view.source}", f"known: {view.source}")
        most = support if view.source == "told" and not asked.writes else 1.0
    listed = _listed(models, asked)
    if listed is not None:
        yield listed
    elif view is None or asked.writes or view.confidence < _HELD:
        for rule in _by_rules(models, pool, state, asked):  # what is known is not guessed anew
            # a rule that reads the very words that were told does not make them any surer
            yield replace(rule, support=min(rule.support, most))
    touched = unknown_since(models, state, asked.tool, asked.args)
    for write in _after_other_writes(models, pool, state, asked):
        yield _doubted(write, touched)
    for one in _analogous(models, state, asked) if listed is None else ():
        yield _doubted(one, touched)


def _doubted(one: Candidate, touched: str | None) -> Candidate:
    if touched is None:
        return one
    basis = one.basis if one.basis == PRESUMED else CONTESTED
    why = f"{one.why}, but nobody knows what {touched} has changed before"
    return replace(one, basis=basis, support=min(one.support, _GUESSED), why=why)


def _by_rules(models: ToolModels, pool: Pool, state: State, asked: CandidateCall) -> Iterator[Candidate]:
    tree = models.trees.get(asked.tool)
    if tree is None:
        return
    known, seen = pool.elsewhere(asked.world, asked.tool, asked.spelled)
    before = None
    if known:
        before = _form(models, asked, seen)
    facts = facts_around(asked.tool, asked.spelled, asked.names, state, models.common, before)
    predicted = predict(tree, facts)
    form = models.answers.get((asked.tool, predicted.form))
    filled = form.template.fill(asked.names) if form is not None else None
    if form is None or filled is None:
        return
    support = predicted.purity * form.support(filled.grade)
    presumed = (
        form.failure
        and not vouched(
            predicted.path, lambda name: models.fails(asked.tool, name), _denied(asked, filled.value)
        )
        and not _surely_absent(models, state, asked)
        and not (state.writes == 0 and _always(models, pool, asked, predicted.form))
    )
    why = f"by rule: form seen {predicted.cases} times under these facts"
    touched = unknown_since(models, state, asked.tool, asked.args, predicted.path, guessed=filled.guessed)
    if presumed:
        yield Candidate(filled.value, Source.DERIVED, support * _PRESUMED, PRESUMED, f"presumed {why}")
    elif not form.failure and (strange := list(unlike(models.usual, asked.tool, asked.args, state))):
        why = f"{why}, but of calls with such a {strange[0]} nothing is known"
        yield Candidate(filled.value, Source.DERIVED, min(support, _GUESSED), CONTESTED, why)
    elif predicted.contested or form.contested(filled.grade):
        others = predicted.leaf.total() - predicted.cases
        why = f"{why}, and another one {others} times; held out {form.right} right and {form.wrong} wrong"
        yield Candidate(filled.value, Source.DERIVED, min(support, _GUESSED), CONTESTED, why)
    else:
        yield _doubted(Candidate(filled.value, Source.DERIVED, support, "rule", why), touched)


def _denied(asked: CandidateCall, seen: JsonValue) -> list[str]:
    """The arguments of which an answer says that there is no such thing."""
    texts = denied_by(HistoryStep(asked.tool, asked.args, asked.spelled, seen, asked.writes, failed(seen)))
    return [name for name, value in asked.args.items() if is_key(value) and str(value) in texts]


def _surely_absent(models: ToolModels, state: State, asked: CandidateCall) -> bool:
    keys = {name: str(value) for name, value in asked.args.items() if is_key(value)}
    found = surely_absent(models.absences, asked.tool, keys, state)
    return any(not source_touched(models, state, models.absences[asked.tool, name].source) for name in found)


def _always(models: ToolModels, pool: Pool, asked: CandidateCall, form: str) -> bool:
    """Whether this very call was recorded in this world, and always went so."""
    known = pool.always(asked.world, asked.tool, asked.spelled)
    return bool(known) and all(_form(models, asked, seen) == form for seen in known)


def _form(models: ToolModels, asked: CandidateCall, seen: JsonValue) -> str:
    return models.form(HistoryStep(asked.tool, asked.args, asked.spelled, seen, asked.writes, failed(seen)))


def _after_other_writes(
    models: ToolModels, pool: Pool, state: State, asked: CandidateCall
) -> Iterator[Candidate]:
    """The same call in the same world, but not in this very state; nothing that this episode has changed."""
    key = (asked.tool, asked.spelled)
    if (
        key in state.views
        or key in state.done
        or any((view.tool, view.spelled) == key for view in state.forgotten)
    ):
        return
    said = Counter(spell(seen) for seen in pool.always(asked.world, *key))
    if not said:
        return
    spelled, count = said.most_common(1)[0]
    seen = json.loads(spelled)
    if failed(seen):  # it failed in another state: that is no word on this one
        return
    steady = models.steady.get(asked.tool, 0.0)
    support = steady * state.sure * (count + 0.2) / (said.total() + 0.5)
    why = f"recorded {count} times in this world after other writes"
    yield Candidate(seen, Source.RECORDED, support, SAME_WORLD, why)


def _listed(models: ToolModels, asked: CandidateCall) -> Candidate | None:
    """What a tool that answers alike in all worlds, as a catalogue does, has answered to this very call."""
    support, said = models.fixed.get(asked.tool, 0.0), models.everywhere.get((asked.tool, asked.spelled))
    if not support or not said or SIGN in asked.spelled:
        return None
    spelled, count = said.most_common(1)[0]
    seen = json.loads(spelled)
    if failed(seen) or len(said) > 1:
        return None
    why = f"the same call in {count} worlds, and the tool answers alike in all"
    return Candidate(seen, Source.ANALOGOUS, support * count / (count + _DOUBT), OTHER_WORLDS, why)


def _analogous(models: ToolModels, state: State, asked: CandidateCall) -> Iterator[Candidate]:
    said = models.everywhere.get((asked.tool, asked.spelled))
    if not said or SIGN in asked.spelled:  # the first id of this episode is not that of another
        return
    spelled, count = said.most_common(1)[0]
    agreement = models.agreement.get(asked.tool, 0.3)
    seen = json.loads(spelled)
    presumed = failed(seen)  # that another world lacks it says little of this one
    if not presumed and (asked.writes or agreement <= _ANYWHERE):  # and neither does that it has it
        presumed = any(unlike(models.usual, asked.tool, asked.args, state))
    if presumed:
        agreement *= _PRESUMED
    elif count < 2:
        presumed, agreement = True, min(agreement, _ONE_WORLD)
    support = agreement * count / (said.total() + _DOUBT)
    if state.writes and agreement <= _ANYWHERE:
        support *= _AFTER_WRITES
    yield Candidate(
        seen,
        Source.ANALOGOUS,
        support,
        PRESUMED if presumed else OTHER_WORLDS,
        f"the same call in {count} other worlds",
    )
