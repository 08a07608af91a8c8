"""Experience model that learned: it decides the calls that recordings and programs leave open.

Asked behind the chain, before any model that reasons. What it is told holds no id, so equal questions come
up all the time: each is put to the model once. Where code cannot write the answer, or the support is below
the threshold, it abstains.

The model says what becomes of a call, and why. What the tool answers then, and what a write changes, its
program says; where that knows no such outcome, nobody decides.

It is told everything around a call that its outcome may hang on. The names are those that the tool's program
sees (`programs.scope`), such as `order_id<args.order_id>.status` of the order that an argument names. Beside
them: `after.cancel_order` that this was done to what the call names, `refused.refund_payment` that this
failed for it, `heard.args.x` whether an earlier answer had this value, `again` how often the tool did it
before, `amount~order_id<args.order_id>.total` how an argument compares, `amount~0` its sign. What is not
known has no name: open world.
"""

import math
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.dream.calibration import Calibrator, Trial, calibrate
from dreamgym_kit.dream.json_values import as_number
from dreamgym_kit.dream.learned.vocabulary import (
    OK,
    CallDecision,
    LearnedCheckpoint,
    UnreadableDecision,
    Vocabulary,
    read_decision,
)
from dreamgym_kit.dream.observed import Wrap, answer_of, as_it_is
from dreamgym_kit.dream.programs.collections import VIEW, RecordedCalls
from dreamgym_kit.dream.programs.dreaming import ProgramAnswer, ProgramEpisode
from dreamgym_kit.dream.programs.experience import Programs, ProgramTracker
from dreamgym_kit.dream.programs.model import OutcomeForm, ToolProgram, outcome_form
from dreamgym_kit.dream.programs.scope import SHARED, Scope
from dreamgym_kit.dream.programs.trees import leaf_of
from dreamgym_kit.dream.programs.trust import MadeUpNames
from dreamgym_kit.dream.programs.values import UNKNOWN, SeenStep, is_scalar, leaves
from dreamgym_kit.dream.recorded import abstention
from dreamgym_kit.dream.structured_output import CountedEndpoint
from dreamgym_kit.dream.things import denies, id_arguments
from dreamgym_kit.errors import EndpointError
from dreamgym_kit.interfaces import ChatEndpoint, Situation
from dreamgym_kit.serialization import JsonValue, is_exact
from dreamgym_kit.types import Answer, Call, Source

_GAP = re.compile(r"\s+")
_PLAIN = re.compile(r"(?:sum|len|sorted|round2|abs|sumdiff|count|next|last)[.(]|last_|args\.|item\.|all ")
_NO_FACTS = ("next.", "last.", "count(", SHARED)
_DEEPEST = 2  # links between a record and an argument that is compared with it


class CallFacts(NamedTuple):
    """What a call can see, as its program reads it and by name."""

    scope: Scope
    values: Mapping[str, JsonValue]


def facts_of(dream: ProgramEpisode, tool: str, args: Mapping[str, JsonValue]) -> CallFacts:
    """Return the facts around a call, in a fixed order."""
    scope, state = dream.scope(tool, args), dream.state
    references = {name for of, name in dream.model.collections.arg_refs if of == tool}
    given = {name: value for name, value in args.items() if name not in references and is_scalar(value)}
    hidden = {f"args.{name}" for name in references}
    facts: dict[str, JsonValue] = {
        _word(name): value
        for name, value in scope.items()
        if is_scalar(value) and name not in hidden and not name.startswith(_NO_FACTS)
    }
    if state.count[tool]:
        facts["again"] = state.count[tool]
    facts |= {f"heard.{name}": value for name, value in scope.seen_earlier.items()}
    for name, value in given.items():
        number = as_number(value)
        sign = "zero" if number == 0 else "below" if (number or 0) < 0 else "above"
        facts[f"{name}~0"] = "no_number" if number is None else sign
    facts.update(_compared(given, scope))
    things = dream.model.things(tool, args)
    facts |= {f"after.{done}": True for done, named, _ in state.written if named & things}
    facts |= {f"refused.{failed}": True for failed, named in state.refused if named & things}
    return CallFacts(scope, facts)


def form_of_failure(step: SeenStep) -> str | None:
    """Name the form of a failure: its text without what differs from call to call; None of other answers.

    It rests on nothing that was mined, so what was learned from some recordings holds for others.
    """
    return None if step.ok else form_text(outcome_form(step))


def form_text(form: Sequence[object]) -> str:
    """A form of an outcome as text."""
    return str(form[1])


def _word(name: str) -> str:
    return _GAP.sub("_", name)


def _compared(given: Mapping[str, JsonValue], scope: Scope) -> Iterator[tuple[str, JsonValue]]:
    others = [
        (name, value)
        for name, value in scope.items()
        if isinstance(value, (str, int, float))
        and not isinstance(value, bool)
        and not _PLAIN.match(name)
        and not name.startswith(VIEW)
        and name.count(">.") <= _DEEPEST
    ]
    for name, value in given.items():
        number = as_number(value)
        for of, other_value in others:
            other = as_number(other_value)
            if number is not None and other is not None:
                same = "equal" if number == other else "less" if number < other else "more"
                yield _word(f"{name}~{of}"), same
            elif isinstance(value, str) and isinstance(other_value, str) and number is None and other is None:
                yield _word(f"{name}~{of}"), "same" if value == other_value else "other"


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


_MAX_WORDS = 48  # tokens of a decision; whoever says more says nothing that can be read
_KEPT = 20_000  # questions

Words = tuple[str, float]
"""What the model said, and how probable it found that."""


class LearnedExperience:
    """Implements `interfaces.ExperienceModel` over a model that speaks `learned`'s words.

    Args:
        endpoint: where the model answers: a model directory in this process, or a server of it.
        learned: what lies beside its weights.
        programs: what tells it the facts and writes its answers; the chain's own, where there is one.
        threshold: 0..1, the calibrated support below which it abstains.
    """

    waits = True

    def __init__(
        self,
        endpoint: ChatEndpoint,
        learned: LearnedCheckpoint,
        *,
        programs: ProgramTracker,
        threshold: float = 0.5,
    ) -> None:
        self._endpoint, self._learned = endpoint, learned
        self._programs, self._threshold = programs, threshold
        self._memo: OrderedDict[str, Words] = OrderedDict()
        self._lock = threading.Lock()
        self.requests = 0  # questions that were put to the model
        self.tokens = 0  # that it read and said
        self.questions = 0  # that came up

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        if not is_exact(dict(call.args)):
            return abstention("arguments that were cut short are not decided on")
        vocabulary = self._learned.vocabulary
        with self._programs.lock:
            dream, args = self._programs.before(call, situation)
            question = question_of(vocabulary, dream, call.tool, args, situation.spoken)
        if question is None:
            return abstention(f"the learned model knows nothing of {call.tool}")
        try:
            words = await self.words(question.text, situation)
        except EndpointError as error:  # not kept: a later call may be luckier
            return abstention(f"the learned model gave no answer: {error}")
        with self._programs.lock:
            self._programs.before(call, situation)  # made-up ids depend on the call, not on who came between
            try:
                made = decided(vocabulary, dream, question, *words)
            except Undecided as error:
                return abstention(f"learned: {error}")
        return self._answered(call, made)

    async def decide(
        self, dream: ProgramEpisode, tool: str, args: Mapping[str, JsonValue]
    ) -> LearnedDecision | None:
        """What it makes of a call in an episode, whatever the support; None where that comes to nothing."""
        question = question_of(self._learned.vocabulary, dream, tool, args)
        if question is None:
            return None
        words = await self.words(question.text)
        try:
            return decided(self._learned.vocabulary, dream, question, *words)
        except Undecided:
            return None

    async def words(self, text: str, situation: Situation | None = None) -> Words:
        """Return the model's words for a record; equal records are asked once.

        Raises:
            EndpointError: no answer came.
        """
        with self._lock:
            self.questions += 1
            cached = self._memo.get(text)
        if cached is not None:
            return cached
        request = ChatRequest(
            [ChatMessage("user", text)], temperature=0.0, max_tokens=_MAX_WORDS, seed=0, exact=True
        )
        account = situation.account if situation is not None else None
        reply = await CountedEndpoint(self._endpoint, account, "experience").chat(request)
        logprobs = reply.tokens.logprobs if reply.tokens is not None else (float("-inf"),)
        answer = reply.content, probability_of(logprobs)
        with self._lock:
            self.requests += 1
            self.tokens += reply.prompt_tokens + reply.completion_tokens
            stored = self._memo.setdefault(text, answer)
            if len(self._memo) > _KEPT:
                self._memo.popitem(last=False)
        return stored

    def support(self, tool: str, made: LearnedDecision) -> float:
        """0..1: the share of such decisions that were right on worlds that the model had not seen."""
        return self._learned.calibration.support(tool, made.basis, made.probability)

    def _answered(self, call: Call, made: LearnedDecision) -> Answer:
        support = round(self.support(call.tool, made), 4)
        if support < self._threshold:
            return abstention(f"the learned model: confidence {support:.2f}, required {self._threshold:.2f}")
        because = ", ".join(f"{name} is {word}" for name, word in made.choice.why) or "nothing that is known"
        why = f"learned: {made.choice.outcome}, because {because}"
        return answer_of(made.wrap(made.out), Answer(source=Source.MODEL, confidence=support, why=why))


@dataclass(frozen=True, slots=True)
class Tried:
    """One recorded call, and what the two would have answered.

    Attributes:
        step: the call and its true answer.
        mined: the best that recordings and programs say, whatever its confidence; None for nothing.
        made: what the model decided, whatever its support; None where that came to nothing.
        mined_exact, made_exact: whether each is the true answer, up to made-up ids.
    """

    step: SeenStep
    mined: ProgramAnswer | None
    made: LearnedDecision | None
    mined_exact: bool
    made_exact: bool


async def tried(
    model: LearnedExperience,
    programs: Programs,
    episodes: Iterable[RecordedCalls],
    *,
    unseen: bool = False,
) -> list[Tried]:
    """Ask every call of these episodes after the true answers; `unseen`: their worlds are unknown."""
    tries: list[Tried] = []
    for episode in episodes:
        dream = ProgramEpisode(programs.model, "" if unseen else episode.world, programs.trust, episode.id)
        for step in episode.steps:
            mined = dream.consider(step.tool, step.args)
            made = await model.decide(dream, step.tool, step.args)
            right = (_is_exact(answer, step, dream) for answer in (mined, made))
            tries.append(Tried(step, mined, made, *right))
            dream.observe(step)
    return tries


def _is_exact(answer: ProgramAnswer | LearnedDecision | None, step: SeenStep, dream: ProgramEpisode) -> bool:
    if answer is None or answer.ok != step.ok:
        return False
    return MadeUpNames().equal(answer.out, step.out, dream.made_up)


def calibrated(tries: Iterable[Tried]) -> Calibrator:
    """What a decision's probability is worth, by tool and by whether it says that the call went well."""
    return calibrate(
        [
            Trial(trial.step.tool, trial.made.basis, trial.made.probability, trial.made_exact)
            for trial in tries
            if trial.made is not None
        ]
    )
