"""One call decided: told to the model in its words, read, held against what was mined, written by code.

A change that contradicts a mined effect, or names a field that the tool was never seen to change, is not
believed. Then the mined tree is asked whether it expects the same outcome; where it does, the mined effects
stand in the model's place, and where it does not, nobody decides.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dreamgym_kit.dream.consistency import ruled_records
from dreamgym_kit.dream.learned.facts import Thing, facts_of, form_of_failure, things_of
from dreamgym_kit.dream.learned.vocabulary import (
    OK,
    OPEN,
    CallDecision,
    ToolWords,
    UnreadableDecision,
    Vocabulary,
    is_pointed,
    pointed,
    read_decision,
)
from dreamgym_kit.dream.state.absences import denied_by
from dreamgym_kit.dream.state.claims import Claim, changing_fields, differs
from dreamgym_kit.dream.state.dreaming import Knowledge, consider, follow
from dreamgym_kit.dream.state.entities import mentioned, records
from dreamgym_kit.dream.state.history import HistoryStep
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.names import Names, around
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.values import MISSING, copy_json, spell
from dreamgym_kit.dream.state.views import State, args_of
from dreamgym_kit.serialization import JsonValue


@dataclass(frozen=True, slots=True)
class Question:
    """A call as a model is asked, and where it stands."""

    tool: str
    args: Mapping[str, JsonValue]
    state: State
    record: tuple[str, ...]
    things: tuple[Thing, ...]

    @property
    def text(self) -> str:
        """The record as it is sent."""
        return " ".join(self.record)


@dataclass(frozen=True, slots=True)
class LearnedDecision:
    """What is answered, in the state's own names of made-up ids.

    Attributes:
        seen: the observation.
        claims: changed facts that no mined rule is sure about.
        said: the model's words.
        probability: of those words, as the model gave it.
        outcome: the word for what became of the call.
    """

    seen: JsonValue
    claims: tuple[Claim, ...]
    choice: CallDecision
    probability: float

    @property
    def basis(self) -> str:
        """By what its support is calibrated: successes and failures are trusted each by their own record."""
        return "learned ok" if self.choice.outcome == OK else "learned refusal"


class Undecided(Exception):
    """Nobody decides this call; says why."""


class _Change(NamedTuple):
    """One changed fact as the model said it; `value` is MISSING where code has to tell it."""

    name: str
    entity: str
    field: str
    value: JsonValue


class Written(NamedTuple):
    """An answer from a template; `doubtful` where other worlds contradicted such answers too often."""

    seen: JsonValue
    doubtful: bool


def question_of(
    vocabulary: Vocabulary, knowledge: Knowledge, state: State, tool: str, args: Mapping[str, JsonValue]
) -> Question | None:
    """What the model is asked of a call; None of a tool that it has no words for."""
    if tool not in vocabulary.tools:
        return None
    models = knowledge.models
    record = vocabulary.record(tool, facts_of(models, state, tool, args))
    return Question(tool, args, state, record, things_of(state, models.usual, tool, args))


def decided(
    vocabulary: Vocabulary,
    knowledge: Knowledge,
    question: Question,
    text: str,
    probability: float,
    world: str,
) -> LearnedDecision:
    """Read what the model said and make the answer of it.

    Raises:
        Undecided: it said nothing that can be used; says why.
    """
    words = vocabulary.tools[question.tool]
    try:
        decision = read_decision(text)
        form = words.form(decision.outcome)
    except UnreadableDecision as error:
        raise Undecided(f"the model's words are no decision: {error}") from None
    except KeyError:
        raise Undecided(f"'{decision.outcome}' is no outcome of {question.tool}") from None
    models, tool = knowledge.models, question.tool
    if decision.changes and tool not in models.writes:
        raise Undecided(f"{tool} only reads; it changes nothing")
    if decision.changes and form is not None and (tool, form) not in models.acting:
        raise Undecided("a call that was refused changes nothing")
    answer = written(
        models, tool, form, around(question.args, question.state, models.fresh_for(tool, question.state))
    )
    if answer is None:
        raise Undecided(f"no recording shows how {tool} says that outcome here")
    if form is not None:
        _check_denials(question, answer.seen)
    try:
        changes = [_change(words, question, *change) for change in decision.changes or ()]
        seen, shown = _with_changes(answer.seen, question, changes)
        if answer.doubtful and not shown:
            raise Undecided(f"what {tool} answers then is a guess")
        claims = _checked(knowledge, question, seen, changes)
        return LearnedDecision(seen, claims, decision, probability)
    except Undecided:
        if answer.doubtful or not _tree_expects(knowledge, question, form, world):
            raise
        return LearnedDecision(answer.seen, (), decision, probability)


def _check_denials(question: Question, seen: JsonValue) -> None:
    """What the task or its user named is there, as long as nothing was done to it."""
    step = HistoryStep(question.tool, question.args, spell(dict(question.args)), seen, True, failed(seen))
    denied, state = denied_by(step), question.state
    for thing in question.things:
        known = thing.named and thing.there != "denied" and state.is_named(thing.entity)
        touched = any(thing.entity in mentioned(dict(args_of(spelled))) for _, spelled in state.done)
        if known and not touched and thing.entity in denied:
            raise Undecided(f"somebody spoke of {thing.entity}: it is there")


def _tree_expects(knowledge: Knowledge, question: Question, form: str | None, world: str) -> bool:
    """Whether what was mined thinks the same outcome the likeliest, however sure it is."""
    options, _ = consider(knowledge, question.state, world, question.tool, question.args)
    return bool(options) and form_of_failure(options[0].seen, question.args) == form


def _with_changes(seen: JsonValue, question: Question, changes: Sequence[_Change]) -> tuple[JsonValue, bool]:
    """The answer with what is changed in it, where it shows that; and whether it does."""
    shown, changed = copy_json(seen), False
    for record in records(shown, question.args):
        for change in changes:
            if (
                record.entity == change.entity
                and change.field in record.fields
                and change.value is not MISSING
            ):
                record.fields[change.field] = change.value
                changed = True
    return shown, changed


def _checked(
    knowledge: Knowledge, question: Question, seen: JsonValue, changes: Sequence[_Change]
) -> tuple[Claim, ...]:
    """The model's changes as claims, those left out that mined rules make by themselves."""
    tool = question.tool
    if not changes:
        return ()
    only = changing_fields(knowledge.models, tool)
    step = HistoryStep(tool, question.args, spell(dict(question.args)), seen, True, failed(seen))
    after = follow(knowledge, question.state, step)
    claims = []
    for change in changes:
        known = ruled_records(knowledge.models, question.state, after, step, change.entity, change.field)
        values = (of[change.field] for fields in known for of in fields if change.field in of)
        ruled: object = next(values, MISSING)
        if ruled is not MISSING:
            if change.value is not MISSING and differs(ruled, change.value):
                raise Undecided(f"mined rules say that {change.name} is {spell(ruled)} after {tool}")
        elif only is not None and change.field not in only:
            raise Undecided(f"recordings never show {tool} changing {change.field}")
        elif change.value is MISSING:
            raise Undecided(f"nobody knows what {change.name} is after {tool}")
        else:
            claims.append(Claim(change.entity, change.field, change.value))
    return tuple(claims)


def _change(words: ToolWords, question: Question, name: str, word: str) -> _Change:
    """A said change: of which thing, and to what; MISSING where code has to tell."""
    role, _, field = name.partition(".")
    thing = next((candidate for candidate in question.things if candidate.role == role and field), None)
    if thing is None:
        raise Undecided(f"the call is about nothing that '{name}' could be of")
    known = words.changes.get(name, {})
    if word not in known:
        raise Undecided(f"'{word}' is no value that {question.tool} was seen to give {name}")
    value: object = MISSING if word == OPEN else known[word]
    if is_pointed(word):
        value = pointed(word, question.args, thing.fields.get(field, MISSING))
    return _Change(name, thing.entity, field, value)


def probability_of(logprobs: tuple[float, ...]) -> float:
    """Of a whole decision, from its tokens' natural log-probs."""
    return math.exp(min(0.0, sum(logprobs)))


def written(models: ToolModels, tool: str, form: str | None, names: Names) -> Written | None:
    """The answer of this outcome, by the template that was mined of such answers.

    None where no recording had that outcome, or where a part of the answer would be a guess: to decide that
    a call goes well is not to know what it says.
    """
    args = {name[5:]: value for name, value in names.values.items() if re.fullmatch(r"args\.[^.(]*", name)}
    known = [(answer.template.seen, answer) for (of, _), answer in models.answers.items() if of == tool]
    for _, outcome in sorted(known, key=lambda entry: -entry[0]):
        if outcome.failure != (form is not None):
            continue
        filled = outcome.template.fill(names)
        if filled is not None and not filled.guessed and form_of_failure(filled.value, args) == form:
            return Written(filled.value, outcome.contested(filled.grade))
    return None
