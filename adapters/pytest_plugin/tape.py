"""The tapes of a cassette: one keeps what the agent's model says, one says it again to the same request."""

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from langchain_core.language_models.chat_models import BaseChatModel

from dreamgym_kit.adapters.langgraph.tapes import Asked, of_provider
from dreamgym_kit.adapters.pytest_plugin.differences import model_miss
from dreamgym_kit.adapters.pytest_plugin.turns import ModelTurn
from dreamgym_kit.canonical import digest
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.replay.masking import Masker


def _wanted(model: BaseChatModel, models: str) -> bool:
    return models == "recorded" or (models == "auto" and of_provider(model))


class RecordingTape:
    """Implements `tapes.ModelTape`: keeps what models say, without secrets."""

    playing = False

    def __init__(self, task: str, models: str, masker: Masker) -> None:
        self._task, self._models, self._masker = task, models, masker
        self._turns: list[ModelTurn] = []
        self._spelt: set[str] = set()
        self._lock = threading.Lock()

    def takes(self, model: BaseChatModel) -> bool:
        """See `ModelTape.takes`."""
        return _wanted(model, self._models)

    def play(self, asked: Asked) -> Mapping[str, JsonValue] | None:  # noqa: ARG002  it only keeps
        """See `ModelTape.play`."""
        return None

    def keep(self, asked: Asked, answer: Mapping[str, JsonValue]) -> None:
        """See `ModelTape.keep`."""
        asked = masked(asked, self._masker)
        with self._lock:
            told = [name_of_message(message) for message in asked.messages]
            new = [
                message for name, message in zip(told, asked.messages, strict=True) if name not in self._spelt
            ]
            self._spelt.update(told)
            turn = ModelTurn(
                task=self._task,
                turn=len(self._turns) + 1,
                model=asked.model,
                tools=asked.tools,
                options=asked.options,
                told=tuple(told),
                new=tuple(new),
                said=self._masker.plain(dict(answer)),
            )
            self._turns.append(turn)

    def turns(self) -> tuple[ModelTurn, ...]:
        """What was kept, in the order heard."""
        return tuple(self._turns)


class PlayingTape:
    """Implements `tapes.ModelTape`: says again what was said to the very same request.

    A request that was made several times is answered in the order recorded, and the last answer repeats.
    """

    playing = True

    def __init__(self, task: str, models: str, turns: Sequence[ModelTurn], masker: Masker) -> None:
        self._models, self._masker = models, masker
        own = [turn for turn in turns if turn.task == task]
        self._turns = own or list(turns)
        self._spelt = {name_of_message(message): message for turn in turns for message in turn.new}
        self._by_request: dict[str, list[ModelTurn]] = defaultdict(list)
        for turn in self._turns:
            self._by_request[_request(turn.model, turn.told, turn.tools, turn.options)].append(turn)
        self._played: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.misses: list[str] = []

    def takes(self, model: BaseChatModel) -> bool:
        """See `ModelTape.takes`."""
        return _wanted(model, self._models)

    def play(self, asked: Asked) -> Mapping[str, JsonValue] | None:
        """See `ModelTape.play`."""
        asked = masked(asked, self._masker)
        told = tuple(name_of_message(message) for message in asked.messages)
        request = _request(asked.model, told, asked.tools, asked.options)
        with self._lock:
            turns = self._by_request.get(request)
            if not turns:
                self.misses.append(model_miss(asked, told, self._turns, self._spelt))
                return None
            turn = turns[min(self._played[request], len(turns) - 1)]
            self._played[request] += 1
            return turn.said

    def keep(self, asked: Asked, answer: Mapping[str, JsonValue]) -> None:
        """See `ModelTape.keep`."""


def masked(asked: Asked, masker: Masker) -> Asked:
    """A request as it is kept and compared: without secrets."""
    return replace(asked, messages=tuple(masker.plain(dict(one)) for one in asked.messages))


def _request(model: str, told: Sequence[str], tools: Sequence[str], options: str) -> str:
    return digest([model, list(told), list(tools), options])


def name_of_message(message: Mapping[str, JsonValue]) -> str:
    """Names a message by what it says."""
    return digest(dict(message))[:16]
