"""Doubles of a model that decides: they return given replies and keep what they were asked."""

import json
from collections.abc import Callable, Iterable
from math import log

from dreamgym_kit.chat import ChatReply, ChatRequest, SampledTokens
from dreamgym_kit.dream.learned.training_data import DecisionLesson


class DecidingDouble:
    """Implements `interfaces.ChatEndpoint`."""

    def __init__(self, says: Callable[[str], str], probability: float = 0.9) -> None:
        self._says, self._probability = says, probability
        self.asked: list[str] = []

    async def chat(self, request: ChatRequest) -> ChatReply:
        text = request.messages[0].content
        self.asked.append(text)
        assert request.exact
        tokens = SampledTokens((1, 2, 3), (4,), (log(self._probability),), "double")
        return ChatReply(self._says(text), prompt_tokens=3, completion_tokens=1, tokens=tokens)


class ScriptedChatDouble:
    """Implements `interfaces.ChatEndpoint`; gives or raises its replies in order, then the last one."""

    def __init__(self, *said: object) -> None:
        self._said = list(said)
        self.requests: list[ChatRequest] = []

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        said = self._said[min(len(self.requests), len(self._said)) - 1]
        if isinstance(said, BaseException):
            raise said
        return ChatReply(said if isinstance(said, str) else json.dumps(said))


def decided(answer: object = None, **said: object) -> str:
    """The reply of a model that decides a call; `answer` may be the value itself."""
    text = answer if answer is None or isinstance(answer, str) else json.dumps(answer)
    whole = {"reasoning": "r", "outcome": "ok", "like": None, "leaves": [], "answer": text, "error": ""}
    return json.dumps({**whole, "set": [], "confidence": 1.0, **said})


def by_heart(lessons: Iterable[DecisionLesson]) -> Callable[[str], str]:
    """Says what the lesson with this very record says, and nothing of others."""
    known = {" ".join(one.record): " ".join(one.label.words()) for one in lessons}
    return lambda text: known.get(text, "")
