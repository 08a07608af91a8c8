"""Experience model that learned: it decides the calls that recordings and programs leave open.

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
from dreamgym_kit.dream.observed import answer_of
from dreamgym_kit.dream.programs.collections import RecordedCalls
from dreamgym_kit.dream.programs.dreaming import ProgramAnswer, ProgramEpisode
from dreamgym_kit.dream.programs.experience import Programs, ProgramTracker
from dreamgym_kit.dream.programs.trust import MadeUpNames
from dreamgym_kit.dream.programs.values import SeenStep
from dreamgym_kit.dream.recorded import abstention
from dreamgym_kit.dream.structured_output import CountedEndpoint
from dreamgym_kit.errors import EndpointError
from dreamgym_kit.interfaces import ChatEndpoint, Situation
from dreamgym_kit.serialization import JsonValue, is_exact
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
