"""Experience model that asks a chat model to decide; code makes the answer of the decision.

Asked last, where recordings and rules cannot tell. One repair, then it abstains; it abstains as well when
the endpoint fails or the support is below the threshold. Equal calls in equal situations get equal
answers: the decision is kept by world, seed, state and call, which siblings share. What `contradictions`
finds is refused with its reasons, whatever confidence the model claims.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from dreamgym_kit.canonical import digest
from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.dream.answer_schema import AnswerSchema, schema_for
from dreamgym_kit.dream.calibration import ReasonedSupport
from dreamgym_kit.dream.consistency import ConsistencyCheck
from dreamgym_kit.dream.contradictions import contradictions
from dreamgym_kit.dream.decision import SCHEMA, form_of, read_decision, render
from dreamgym_kit.dream.environment_facts import FactIndex, episode_records
from dreamgym_kit.dream.programs.experience import ProgramTracker
from dreamgym_kit.dream.prompt import FAITHFUL, call_part, messages_for, tool_part
from dreamgym_kit.dream.recorded import abstention
from dreamgym_kit.dream.structured_output import CountedEndpoint, UnusableReply, ask
from dreamgym_kit.errors import EndpointError, NotSerializable
from dreamgym_kit.interfaces import ChatEndpoint, Situation
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.threads import run_in_thread_async
from dreamgym_kit.types import Answer, Call, ToolSpec, Transition

Retrieve = Callable[[Call, Situation], Sequence[Transition]]
"""Gives like transitions, the best first; never of the episode itself or of a held-out split."""
Schemas = Callable[[Call, Situation], AnswerSchema | None]
"""Gives the form of a tool's answers, None where nobody knows it."""
Allows = Callable[[str], str | None]
"""Says why calls of a tool may not be put to the model, "" where another is asked instead; None: they may."""
_KEPT = 20_000  # decisions
_UNUSABLE = "the model's decision could not be used, and neither could its correction"


_USUALLY = ChatRequest((), seed=0)


class ReasonedDecision(NamedTuple):
    """An answer, and what its support hangs on."""

    answer: Answer
    form: str  # see `reasoned_support`
    confidence: float


class OffSchema(NotSerializable):
    """An answer that does not have the form of the tool's answers."""


class ReasonedExperience:
    """Implements `interfaces.ExperienceModel` over a chat endpoint.

    Args:
        endpoint: where the model answers.
        retrieve: examples for a call; none by default, and then the model writes whole answers.
        programs: what answers have to agree with, and whose state they become part of; by default one that
            knows only what is told in the dream.
        schemas: the form that answers have to have; by default what the tool declares.
        support: what a confidence is worth; by default it is believed up to the ceiling of its form.
        allows: which tools the model may answer; all by default.
        threshold: support below which it abstains, 0..1.
        sampling: how the model is asked; its seed is part of the memo's key.
        facts: what was recorded of an environment's base state; nothing by default.
        decides: the read before an example that decided it, where there is one; it is shown with it.
        tools: every tool of the agent, named in each prompt; by default only the one that is called.
        far: `retrieve` and `schemas` ask a server: they do so in threads, and the event loop goes on.
    """

    waits = True

    def __init__(
        self,
        endpoint: ChatEndpoint,
        *,
        retrieve: Retrieve | None = None,
        programs: ProgramTracker | None = None,
        schemas: Schemas | None = None,
        support: ReasonedSupport | None = None,
        allows: Allows | None = None,
        threshold: float = 0.0,
        sampling: ChatRequest = _USUALLY,
        far: bool = False,
        facts: Callable[[Situation], FactIndex] | None = None,
        decides: Callable[[Transition], Transition | None] | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> None:
        self._endpoint = endpoint
        self._retrieve = retrieve
        self._schemas = schemas or (lambda _, situation: schema_for(situation.tool, ()))
        self._programs = programs or ProgramTracker(lambda _: (), {})
        self._support = support or ReasonedSupport()
        self._allows = allows or (lambda _: None)
        self._threshold = threshold
        self._sampling = replace(sampling, schema=SCHEMA, schema_name="decision")
        self._far = far
        self._facts = facts or (lambda _: FactIndex())
        self._decides = decides or (lambda _: None)
        self._tools = tuple(tools)
        self._memo: OrderedDict[str, Answer] = OrderedDict()
        self._lock = threading.Lock()

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        key = _key(call, situation, self._sampling.seed)
        own = f"{key} {situation.task}"  # what cannot be told to one task may be told to another
        with self._lock:
            cached = self._memo.get(key) or self._memo.get(own)
        if cached is not None:
            return cached
        ground = ConsistencyCheck(self._programs, call, situation)
        if ground.earlier_answer is not None:
            return ground.earlier_answer
        barred = self._allows(call.tool)
        if barred is not None:
            return abstention(barred and f"the dream's model may not answer {call.tool}: {barred}")
        try:
            answer = self._settled(await self._decide(call, situation, ground))
        except EndpointError as error:  # not kept: a later call may be luckier
            return abstention(f"the dream's model gave no answer: {error}")
        if answer.unanswered and answer.why.startswith(_UNUSABLE):
            return answer  # not kept either
        with self._lock:
            # a sibling may have been told something else meanwhile: the first answer holds for all
            stored = self._memo.get(key) or self._memo.setdefault(own if answer.unanswered else key, answer)
            if len(self._memo) > _KEPT:
                self._memo.popitem(last=False)
        return stored

    async def decide(self, call: Call, situation: Situation) -> ReasonedDecision | None:
        """The model's decision whatever its support, nothing kept; None where the endpoint fails."""
        try:
            return await self._decide(call, situation, ConsistencyCheck(self._programs, call, situation))
        except EndpointError:
            return None

    async def _decide(self, call: Call, situation: Situation, ground: ConsistencyCheck) -> ReasonedDecision:
        recorded = partial(self._recorded, call, situation)
        examples, before, form, fact_index = (
            await run_in_thread_async(recorded, name="dreamgym-recordings") if self._far else recorded()
        )

        def read(text: str) -> ReasonedDecision:
            decision = read_decision(text)
            answer = render(decision, call, situation.tool, examples, form)
            answer = ground.settle(answer, decision, examples)
            broken = None if form is None or answer.unanswered else form.breaks(answer)
            if broken is not None:
                raise OffSchema(f"the answer does not have the form of {call.tool}'s answers: {broken}")
            facts = fact_index.related(episode_records(call, answer, situation.history))
            wrong = contradictions(call, answer, spec=situation.tool, history=situation.history, facts=facts)
            if wrong:
                raise NotSerializable("; ".join(wrong))
            return ReasonedDecision(answer, form_of(decision), decision.confidence)

        request = replace(
            self._sampling,
            messages=question_messages(
                call,
                situation,
                state=ground.facts,
                form=form,
                facts=fact_index,
                tools=self._tools,
                examples=examples,
                before=before,
            ),
            affinity=f"{situation.environment} {situation.task}",
        )
        try:
            return await ask(CountedEndpoint(self._endpoint, situation.account, "experience"), request, read)
        except UnusableReply as error:
            if situation.account is not None:
                off_schema = isinstance(error.__cause__, OffSchema)
                situation.account.count("off_schema" if off_schema else "unusable_decisions")
            return ReasonedDecision(abstention(f"{_UNUSABLE}: {error.shown}"), "whole", 0.0)

    def _recorded(
        self, call: Call, situation: Situation
    ) -> tuple[tuple[Transition, ...], tuple[Transition | None, ...], AnswerSchema | None, FactIndex]:
        """Examples, the read that decides each, the form that the answer has to have, and facts."""
        examples = tuple(self._retrieve(call, situation)) if self._retrieve is not None else ()
        before = tuple(self._decides(example) for example in examples)
        return examples, before, self._schemas(call, situation), self._facts(situation)

    def _settled(self, decided: ReasonedDecision) -> Answer:
        if decided.answer.unanswered:
            return decided.answer
        support = round(self._support.support(decided.form, decided.confidence), 4)
        if support < self._threshold:
            return abstention(f"the model: confidence {support:.2f}, required {self._threshold:.2f}")
        return replace(decided.answer, confidence=support)


def _key(call: Call, situation: Situation, seed: int | None) -> str:
    """Return a digest of what an answer depends on; equal histories in one world share it, in any task."""
    answers = [[entry.call.key, entry.answer.content, entry.answer.error] for entry in situation.history]
    environment = [situation.tenant, situation.environment.name, situation.environment.variant]
    return digest([seed, *environment, situation.after, situation.seen, answers, call.key])


def question_messages(
    call: Call,
    situation: Situation,
    *,
    state: Mapping[str, JsonValue] = MappingProxyType({}),
    form: AnswerSchema | None = None,
    facts: FactIndex | None = None,
    **shown: Any,
) -> list[ChatMessage]:
    """Build the prompt that asks what the real tool answers.

    Args:
        call: the agent's call.
        situation: where it stands.
        state: facts that code knows of this episode, by name.
        form: the form of the tool's answers.
        facts: what was recorded of the environment's base state.
        shown: tools, examples, before and draw, as `messages_for` takes them.
    """
    looks = form.schema if form is not None and form.form != "seen" else {}
    about = [*situation.spoken, dict(call.args)]
    state_parts: list[tuple[str, JsonValue]] = [("state", dict(state))] if state else []
    return messages_for(
        FAITHFUL,
        [tool_part(situation.tool, looks), *state_parts, call_part(call)],
        spoken=situation.spoken,
        facts=facts.shown(about) if facts is not None else (),
        history=situation.history,
        **shown,
    )
