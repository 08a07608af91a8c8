"""Experience model that learned: it decides the calls that recordings and mined rules leave open.

Asked behind the chain, before any model that reasons. What it is told holds no id, so equal questions come
up all the time: each is put to the model once. The answer is written by code (`deciding`); where code
cannot, or the support is below the threshold, it abstains.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.dream.calibration import Calibrator, Trial, calibrate
from dreamgym_kit.dream.learned.deciding import (
    LearnedDecision,
    Undecided,
    decided,
    probability_of,
    question_of,
)
from dreamgym_kit.dream.learned.vocabulary import LearnedCheckpoint
from dreamgym_kit.dream.recorded import abstention
from dreamgym_kit.dream.state.dreaming import Knowledge, Told, consider, follow
from dreamgym_kit.dream.state.history import OFF_RECORD, HistoryStep, RecordedEpisode
from dreamgym_kit.dream.state.observed import answer_of
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.views import State
from dreamgym_kit.dream.state.worlds import start
from dreamgym_kit.dream.state_tracker import StateTracker, TrackedEpisode, environment_of
from dreamgym_kit.dream.structured_output import CountedEndpoint
from dreamgym_kit.errors import EndpointError
from dreamgym_kit.interfaces import ChatEndpoint, Situation
from dreamgym_kit.serialization import JsonValue, escaped_args, is_exact
from dreamgym_kit.types import Answer, Call, Source

_MAX_WORDS = 48  # tokens of a decision; whoever says more says nothing that can be read
_KEPT = 20_000  # questions

Words = tuple[str, float]
"""What the model said, and how probable it found that."""


class LearnedExperience:
    """Implements `interfaces.ExperienceModel` over a model that speaks `learned`'s words.

    Args:
        endpoint: where the model answers: a model directory in this process, or a server of it.
        learned: what lies beside its weights.
        following: the state that it decides in; the chain's own, where there is one.
        threshold: 0..1, the calibrated support below which it abstains.
    """

    waits = True

    def __init__(
        self,
        endpoint: ChatEndpoint,
        learned: LearnedCheckpoint,
        *,
        following: StateTracker,
        threshold: float = 0.5,
    ) -> None:
        self._endpoint, self._learned = endpoint, learned
        self._following, self._threshold = following, threshold
        self._memo: OrderedDict[str, Words] = OrderedDict()
        self._lock = threading.Lock()
        self.requests = 0  # questions that were put to the model
        self.tokens = 0  # that it read and said
        self.questions = 0  # that came up

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        if not is_exact(dict(call.args)):
            return abstention("arguments that were cut short are not decided on")
        with self._following.lock:
            knowledge = self._following.knowledge(situation.tenant)
            followed = self._following.follow(situation)
            args = followed.renaming.symbolic(escaped_args(call.args))
            question = question_of(self._learned.vocabulary, knowledge, followed.state, call.tool, args)
        if question is None:
            return abstention(f"the learned model knows nothing of {call.tool}")
        try:
            words = await self.words(question.text, situation)
        except EndpointError as error:  # not kept: a later call may be luckier
            return abstention(f"the learned model gave no answer: {error}")
        with self._following.lock:
            try:
                made = decided(
                    self._learned.vocabulary, knowledge, question, *words, environment_of(situation)
                )
            except Undecided as error:
                return abstention(f"learned: {error}")
            return self._answered(call, situation, made, followed)

    async def decide(
        self, knowledge: Knowledge, state: State, tool: str, args: Mapping[str, JsonValue], world: str
    ) -> LearnedDecision | None:
        """What it makes of a call in a state, whatever the support; None where that comes to nothing."""
        question = question_of(self._learned.vocabulary, knowledge, state, tool, args)
        if question is None:
            return None
        words = await self.words(question.text)
        try:
            return decided(self._learned.vocabulary, knowledge, question, *words, world)
        except Undecided:
            return None

    async def words(self, text: str, situation: Situation | None = None) -> Words:
        """The model's words on a record, asked once.

        Raises:
            EndpointError: no answer came.
        """
        with self._lock:
            self.questions += 1
            known = self._memo.get(text)
        if known is not None:
            return known
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

    def _answered(
        self, call: Call, situation: Situation, made: LearnedDecision, followed: TrackedEpisode
    ) -> Answer:
        support = round(self.support(call.tool, made), 4)
        if support < self._threshold:
            return abstention(f"the learned model: confidence {support:.2f}, required {self._threshold:.2f}")
        because = ", ".join(f"{name} is {word}" for name, word in made.choice.why) or "nothing that is known"
        like = Answer(
            source=Source.MODEL,
            confidence=support,
            why=f"learned: {made.choice.outcome}, because {because}",
            changes=tuple(followed.concrete(claim._asdict(), situation, call) for claim in made.claims),
        )
        return answer_of(followed.concrete(made.seen, situation, call), like)


@dataclass(frozen=True, slots=True)
class Tried:
    """One recorded call, and what the two would have answered.

    Attributes:
        step: the call and its true answer.
        mined: the best that recordings and rules say, whatever its support; None where they say nothing.
        made: what the model decided, whatever its support; None where that came to nothing.
    """

    step: HistoryStep
    mined: Told | None
    made: LearnedDecision | None

    @property
    def mined_exact(self) -> bool:
        """Whether the mined answer is the true one."""
        return self.mined is not None and spell(self.mined.seen) == spell(self.step.seen)

    @property
    def made_exact(self) -> bool:
        """Whether the model's answer is the true one."""
        return self.made is not None and spell(self.made.seen) == spell(self.step.seen)


async def tried(
    model: LearnedExperience,
    knowledge: Knowledge,
    episodes: Iterable[RecordedEpisode],
    *,
    unseen: bool = False,
) -> list[Tried]:
    """Ask every call of these episodes, in symbols for made-up ids; `unseen`: their worlds are unknown."""
    tries: list[Tried] = []
    for episode in episodes:
        state = (
            State({}, OFF_RECORD)
            if unseen
            else start(knowledge.pool, knowledge.models, episode.world, without=episode.id)
        )
        for step in episode.steps:
            options, _ = consider(knowledge, state, episode.world, step.tool, step.args)
            made = await model.decide(knowledge, state, step.tool, step.args, episode.world)
            tries.append(Tried(step, options[0] if options else None, made))
            state = follow(knowledge, state, step)
    return tries


def calibrated(tries: Iterable[Tried]) -> Calibrator:
    """What a decision's probability is worth, by tool and by whether it says that the call went well."""
    return calibrate(
        [
            Trial(trial.step.tool, trial.made.basis, trial.made.probability, trial.made_exact)
            for trial in tries
            if trial.made is not None
        ]
    )
