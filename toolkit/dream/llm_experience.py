"""Experience model that asks a chat model to decide; code makes the answer of the decision.

Asked last, where recordings and rules cannot tell. One repair, then it abstains; it abstains as well when
the endpoint fails or the support is below the threshold. Equal calls in equal situations get equal
answers: the decision is kept by world, seed, state and call, which siblings share.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from dreamgym_kit.canonical import digest
from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.dream.answer_schema import AnswerSchema, schema_for
from dreamgym_kit.dream.consistency import ConsistencyCheck
from dreamgym_kit.dream.decision import SCHEMA, form_of, read_decision, render
from dreamgym_kit.dream.llm_calibration import ReasonedSupport
from dreamgym_kit.dream.prompt import messages_for, repair
from dreamgym_kit.dream.state_tracker import StateTracker
from dreamgym_kit.dream.structured_output import CountedEndpoint
from dreamgym_kit.errors import EndpointError, NotSerializable
from dreamgym_kit.interfaces import ChatEndpoint, Situation
from dreamgym_kit.threads import run_in_thread_async
from dreamgym_kit.types import Answer, Call, Source, Transition

Retrieve = Callable[[Call, Situation], Sequence[Transition]]
"""Gives like transitions, the best first; never of the episode itself or of a held-out split."""
Schemas = Callable[[Call, Situation], AnswerSchema | None]
"""Gives the form of a tool's answers, None where nobody knows it."""
Allows = Callable[[str], str | None]
"""Says why calls of a tool may not be put to the model; None: they may."""
_KEPT = 20_000  # decisions
_UNUSABLE = "the model's decision could not be used, and neither could its correction"
_SHOWN = 300  # characters of an unusable decision that are kept for the report


class Decided(NamedTuple):
    """An answer, and what its support hangs on."""

    answer: Answer
    form: str  # see `reasoned_support`
    confidence: float


class OffSchema(NotSerializable):
    """An answer that has not the form of the tool's answers."""


class ReasonedExperience:
    """Implements `interfaces.ExperienceModel` over a chat endpoint.

    Args:
        endpoint: where the model answers.
        retrieve: examples for a call; none by default, and then the model writes whole answers.
        following: the state that answers have to agree with, and that they become part of; by default one
            that knows only what is told in the dream.
        schemas: the form that answers have to have; by default what the tool declares.
        support: what a confidence is worth; by default it is believed up to the ceiling of its form.
        allows: which tools the model may answer; all by default.
        threshold: support below which it abstains, 0..1.
        max_tokens: of one decision.
        seed: sent along, and part of the memo's key.
        temperature: 0 decides alike each time.
        top_p: 1 leaves all tokens in.
        far: `retrieve` and `schemas` ask a server: they do so in threads, and the event loop goes on.
    """

    waits = True

    def __init__(
        self,
        endpoint: ChatEndpoint,
        *,
        retrieve: Retrieve | None = None,
        following: StateTracker | None = None,
        schemas: Schemas | None = None,
        support: ReasonedSupport | None = None,
        allows: Allows | None = None,
        threshold: float = 0.0,
        max_tokens: int = 1024,
        seed: int = 0,
        temperature: float = 0.0,
        top_p: float = 1.0,
        far: bool = False,
    ) -> None:
        self._endpoint = endpoint
        self._retrieve = retrieve
        self._schemas = schemas or _as_declared
        self._following = following or StateTracker(_no_recordings)
        self._following.keep_known()
        self._support = support or ReasonedSupport()
        self._allows = allows or (lambda _: None)
        self._threshold = threshold
        self._max_tokens = max_tokens
        self._seed = seed
        self._temperature, self._top_p = temperature, top_p
        self._far = far
        self._memo: OrderedDict[str, Answer] = OrderedDict()
        self._lock = threading.Lock()
        self.asked = 0  # calls that were put to the model
        self.repaired = 0
        self.unusable = 0  # decisions that were of no use after the repair

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        key = _key(call, situation, self._seed)
        own = f"{key} {situation.task}"  # what cannot be told to one task may be told to another
        with self._lock:
            known = self._memo.get(key) or self._memo.get(own)
        if known is not None:
            return known
        ground = ConsistencyCheck(self._following, call, situation)
        if ground.held is not None:
            return ground.held
        barred = self._allows(call.tool)
        if barred is not None:
            return _abstain(f"the dream's model may not answer {call.tool}: {barred}")
        try:
            answer = self._settled(await self._decide(call, situation, ground))
        except EndpointError as error:  # not kept: a later call may be luckier
            return _abstain(f"the dream's model gave no answer: {error}")
        if answer.unanswered and answer.why.startswith(_UNUSABLE):
            return answer  # not kept either
        with self._lock:
            # a sibling may have been told something else meanwhile: the first answer holds for all
            kept = self._memo.get(key) or self._memo.setdefault(own if answer.unanswered else key, answer)
            if len(self._memo) > _KEPT:
                self._memo.popitem(last=False)
        return kept

    async def decide(self, call: Call, situation: Situation) -> Decided | None:
        """The model's decision whatever its support, nothing kept; None where the endpoint fails."""
        try:
            return await self._decide(call, situation, ConsistencyCheck(self._following, call, situation))
        except EndpointError:
            return None

    async def _decide(self, call: Call, situation: Situation, ground: ConsistencyCheck) -> Decided:
        read = partial(self._recorded, call, situation)
        examples, form = await run_in_thread_async(read, name="dreamgym-recordings") if self._far else read()
        messages = messages_for(call, situation, examples, ground.facts, form)
        self.asked += 1
        wrong, said = NotSerializable("nothing was said"), ""
        for attempt in range(2):
            said, cut = await self._ask(messages, situation)
            try:
                if cut:
                    raise NotSerializable("it was cut off at its largest length; be brief")
                decision = read_decision(said)
                answer = render(decision, call, situation.tool, examples, form)
                answer = ground.settle(answer, decision, examples)
                broken = None if form is None or answer.unanswered else form.breaks(answer)
                if broken is not None:
                    raise OffSchema(f"the answer has not the form of {call.tool}'s answers: {broken}")
                return Decided(answer, form_of(decision), decision.confidence)
            except NotSerializable as error:
                wrong = error
                self.repaired += attempt == 0
                messages = [*messages, *repair(said, str(error))]
        self.unusable += 1
        if situation.account is not None:
            situation.account.count("off_schema" if isinstance(wrong, OffSchema) else "unusable_decisions")
        why = f"{_UNUSABLE}: {wrong} (it said: {' '.join(said.split())[:_SHOWN]})"
        return Decided(_abstain(why), "whole", 0.0)

    def _recorded(
        self, call: Call, situation: Situation
    ) -> tuple[tuple[Transition, ...], AnswerSchema | None]:
        """Examples, and the form that the answer has to have."""
        examples = tuple(self._retrieve(call, situation)) if self._retrieve is not None else ()
        return examples, self._schemas(call, situation)

    async def _ask(self, messages: Sequence[ChatMessage], situation: Situation) -> tuple[str, bool]:
        request = ChatRequest(
            messages,
            schema=SCHEMA,
            schema_name="decision",
            temperature=self._temperature,
            top_p=self._top_p,
            max_tokens=self._max_tokens,
            seed=self._seed,
            affinity=f"{situation.environment} {situation.task}",
        )
        counted = CountedEndpoint(self._endpoint, situation.account, "experience")
        reply = await counted.chat(request)
        return reply.content, reply.finish_reason == "length"

    def _settled(self, decided: Decided) -> Answer:
        if decided.answer.unanswered:
            return decided.answer
        support = round(self._support.support(decided.form, decided.confidence), 4)
        if support < self._threshold:
            return _abstain(f"the model: confidence {support:.2f}, required {self._threshold:.2f}")
        return replace(decided.answer, confidence=support)


def _as_declared(call: Call, situation: Situation) -> AnswerSchema | None:  # noqa: ARG001
    return schema_for(situation.tool, ())


def _no_recordings(tenant: str) -> tuple[Transition, ...]:  # noqa: ARG001  the form that is asked for
    return ()


def _abstain(why: str) -> Answer:
    return Answer(source=Source.UNANSWERED, confidence=0.0, why=why)


def _key(call: Call, situation: Situation, seed: int) -> str:
    """Names what an answer depends on: all episodes with equal histories in a world share it, of any task."""
    told = [[one.call.key, one.answer.content, one.answer.error] for one in situation.history]
    environment = [situation.tenant, situation.environment.name, situation.environment.variant]
    return digest([seed, *environment, situation.after, situation.seen, told, call.key])
