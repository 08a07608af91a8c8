"""One call decided: told to the model in its words, read, held against what was mined, written by code.

A change that contradicts a mined effect, or names a field that the tool was never seen to change, is not
believed. Then the mined tree is asked whether it expects the same outcome; where it does, the mined effects
stand in the model's place, and where it does not, nobody decides.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dreamgym_kit.dream.learned.facts import facts_of
from dreamgym_kit.dream.learned.outcomes import form_of_failure, written
from dreamgym_kit.dream.learned.saying import Said, Unreadable, read_said
from dreamgym_kit.dream.learned.things import Thing, things_of
from dreamgym_kit.dream.learned.vocabulary import OPEN, POINTER, Vocabulary
from dreamgym_kit.dream.state.claims import Claim, believed, changing_fields, differs, records_of
from dreamgym_kit.dream.state.dreaming import Knowledge, consider, follow
from dreamgym_kit.dream.state.entities import records
from dreamgym_kit.dream.state.history import Step
from dreamgym_kit.dream.state.names import around
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.views import State
from dreamgym_kit.plain import JsonValue


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
class Decided:
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
    said: Said
    probability: float

    @property
    def basis(self) -> str:
        """By what its support is calibrated."""
        return basis_of(self.said.outcome)


class Undecided(Exception):
    """Nobody decides this call; says why."""


def basis_of(outcome: str) -> str:
    """The basis of a support: successes and failures are trusted each by their own record."""
    return "learned ok" if outcome == "ok" else "learned refusal"


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
    vocabulary: Vocabulary, knowledge: Knowledge, question: Question, text: str, probability: float, world: str
) -> Decided:
    """Read what the model said and make the answer of it.

    Raises:
        Undecided: it said nothing that can be used; says why.
    """
    words = vocabulary.tools[question.tool]
    try:
        said = read_said(text)
        form = words.form(said.outcome)
    except Unreadable as error:
        raise Undecided(f"the model's words are no decision: {error}") from None
    except KeyError:
        raise Undecided(f"'{said.outcome}' is no outcome of {question.tool}") from None
    models = knowledge.models
    names = around(question.args, question.state, models.fresh_for(question.tool, question.state))
    seen = written(models, question.tool, form, names)
    if seen is None:
        raise Undecided(f"no recording shows how {question.tool} says that outcome here")
    made = Decided(seen, (), said, probability)
    if form is not None and (question.tool, form) not in models.acting:
        if said.changes:
            raise Undecided("a call that was refused changes nothing")
        return made
    wrong = None
    try:
        return replace(made, claims=_checked(vocabulary, knowledge, question, said, seen))
    except Undecided as error:
        wrong = error
    if _tree_expects(knowledge, question, form, world):
        return made
    raise wrong


def _tree_expects(knowledge: Knowledge, question: Question, form: str | None, world: str) -> bool:
    """Whether what was mined thinks the same outcome the likeliest, however sure it is."""
    options, _ = consider(knowledge, question.state, world, question.tool, question.args)
    return bool(options) and form_of_failure(options[0].seen, question.args) == form


def _checked(
    vocabulary: Vocabulary, knowledge: Knowledge, question: Question, said: Said, seen: JsonValue
) -> tuple[Claim, ...]:
    """The model's changes as claims, those left out that mined rules make by themselves."""
    models = knowledge.models
    if said.changes and question.tool not in models.writes:
        raise Undecided(f"{question.tool} only reads; it changes nothing")
    only = changing_fields(models, question.tool)
    step = Step(question.tool, question.args, spell(dict(question.args)), seen, True, failed(seen))
    after = follow(knowledge, question.state, step)
    claims = []
    for name, word in said.changes or ():
        thing, field = _changed_thing(question, name)
        ruled = _ruled(knowledge, question.state, after, step, thing.entity, field)
        value = _value(vocabulary, question, name, word)
        if ruled is not _NOBODY:
            if word != OPEN and differs(ruled, value):
                raise Undecided(f"mined rules say that {name} is {spell(ruled)} after {question.tool}")
            continue
        if only is not None and field not in only:
            raise Undecided(f"recordings never show {question.tool} changing {field}")
        if word == OPEN:
            raise Undecided(f"nobody knows what {name} is after {question.tool}")
        claims.append(Claim(thing.entity, field, value))
    return tuple(claims)


_NOBODY = object()


def _changed_thing(question: Question, name: str) -> tuple[Thing, str]:
    role, _, field = name.partition(".")
    for thing in question.things:
        if thing.role == role and field:
            return thing, field
    raise Undecided(f"the call is about nothing that '{name}' could be of")


def _ruled(
    knowledge: Knowledge, before: State, after: State, step: Step, entity: str, field: str
) -> JsonValue | object:
    """What rules that rest on enough make of a field; _NOBODY where none does."""
    for view, record in records_of(before, entity):
        if field not in record.fields or not believed(knowledge.models, step, view):
            continue
        later = after.get(view.tool, view.spelled)
        for other in records(later.observation, view.args) if later is not None else ():
            if other.entity == entity and field in other.fields:
                return other.fields[field]
    return _NOBODY


def _value(vocabulary: Vocabulary, question: Question, name: str, word: str) -> JsonValue:
    known = vocabulary.tools[question.tool].changes.get(name, {})
    if word not in known:
        raise Undecided(f"'{word}' is no value that {question.tool} was seen to give {name}")
    if word.startswith(POINTER):
        given = word.removeprefix(POINTER)
        if given not in question.args:
            raise Undecided(f"{question.tool} was called without {given}")
        return question.args[given]
    return known[word]


def probability_of(logprobs: tuple[float, ...]) -> float:
    """Of a whole decision, from its tokens' natural log-probs."""
    return math.exp(min(0.0, sum(logprobs)))
