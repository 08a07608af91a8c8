"""One call decided: told to the model in its words, read, and written by the tool's program.

The model says what becomes of the call, and why. What the tool answers then, and what a write changes, its
program says; where that knows no such outcome, nobody decides.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.dream.learned.facts import facts_of, form_text
from dreamgym_kit.dream.learned.vocabulary import (
    OK,
    CallDecision,
    UnreadableDecision,
    Vocabulary,
    read_decision,
)
from dreamgym_kit.dream.observed import Wrap, as_it_is
from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.model import OutcomeForm, ToolProgram
from dreamgym_kit.dream.programs.scope import Scope
from dreamgym_kit.dream.programs.trees import leaf_of
from dreamgym_kit.dream.programs.values import UNKNOWN, leaves
from dreamgym_kit.dream.things import denies, id_arguments
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Call


@dataclass(frozen=True, slots=True)
class Question:
    """A call as a model is asked, and what it can see."""

    tool: str
    args: Mapping[str, JsonValue]
    scope: Scope
    record: tuple[str, ...]
    spoken: tuple[str, ...] = ()  # what the task and its user said

    @property
    def text(self) -> str:
        """The record as it is sent."""
        return " ".join(self.record)


@dataclass(frozen=True, slots=True)
class LearnedDecision:
    """What is answered.

    Attributes:
        ok: whether the call went well.
        out: what the tool says, without its wrapping; `wrap` puts it back.
        choice: the model's words.
        probability: of those words, as the model gave it.
    """

    ok: bool
    out: JsonValue
    wrap: Wrap
    choice: CallDecision
    probability: float

    @property
    def basis(self) -> str:
        """By what its support is calibrated: successes and failures are trusted each by their own record."""
        return "learned ok" if self.ok else "learned refusal"


class Undecided(Exception):
    """Nobody decides this call; says why."""


def question_of(
    vocabulary: Vocabulary,
    dream: ProgramEpisode,
    tool: str,
    args: Mapping[str, JsonValue],
    spoken: Sequence[str] = (),
) -> Question | None:
    """What the model is asked of a call; None of a tool that it has no words for."""
    if tool not in vocabulary.tools or tool not in dream.model.tools:
        return None
    facts = facts_of(dream, tool, args)
    return Question(tool, args, facts.scope, vocabulary.record(tool, facts.values), tuple(spoken))


def decided(
    vocabulary: Vocabulary, dream: ProgramEpisode, question: Question, text: str, probability: float
) -> LearnedDecision:
    """Read what the model said and make the answer of it.

    Raises:
        Undecided: it said nothing that can be used; says why.
    """
    tool = question.tool
    try:
        decision = read_decision(text)
        failure = vocabulary.tools[tool].form(decision.outcome)
    except UnreadableDecision as error:
        raise Undecided(f"the model's words are no decision: {error}") from None
    except KeyError:
        raise Undecided(f"'{decision.outcome}' is no outcome of {tool}") from None
    program = dream.model.tools[tool]
    ok = decision.outcome == OK
    for form in _forms(program, question.scope, failure):
        says = program.says.get(form)
        out = says(question.scope) if says is not None else UNKNOWN
        if out is not UNKNOWN:
            if not ok:
                _check_denial(question, out)
            return LearnedDecision(ok, out, program.wraps.get(ok, as_it_is), decision, probability)
    raise Undecided(f"no recording shows how {tool} says that outcome here")


def _forms(program: ToolProgram, scope: Scope, failure: str | None) -> list[OutcomeForm]:
    """The outcomes that a word means, those of calls that stood like this one first."""
    leaf = leaf_of(program.tree, scope)
    near = [form for form, _ in leaf.counts] if leaf is not None else []
    forms = [form for form in dict.fromkeys([*near, *program.says]) if form[0] == (failure is None)]
    return [form for form in forms if failure is None or form_text(form) == failure]


def _check_denial(question: Question, out: JsonValue) -> None:
    """Raise `Undecided` if the answer denies a thing that the task or its user named."""
    answer_text = " ".join(str(leaf) for leaf in leaves(out))
    unseen = {str(question.scope.rows[prefix][1]) for prefix in question.scope.unseen}
    for thing, _ in id_arguments(Call(question.tool, question.args)):
        spoken = any(thing[1] in text for text in question.spoken)
        if spoken and thing[1] in unseen and thing[1] in answer_text and denies(answer_text, thing):
            raise Undecided(f"somebody spoke of {thing[1]}: it is there")


def probability_of(logprobs: tuple[float, ...]) -> float:
    """Of a whole decision, from its tokens' natural log-probs."""
    return math.exp(min(0.0, sum(logprobs)))
