"""Sources of answers in a test's dream, for tool calls and for the agent's model.

Tool calls: the test's mocks, then the cassette, then a buffer if configured. A call without an answer is a
miss: the episode ends there, and the test's message names the nearest recording. The model: one tape of a
cassette records its replies, another replays them for equal requests.
"""

import inspect
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel

from dreamgym_kit.adapters.langgraph.intercept.model_replay import ModelQuery, of_provider
from dreamgym_kit.adapters.pytest_plugin.cassette import ModelTurn
from dreamgym_kit.canonical import digest
from dreamgym_kit.dream.chain import FallbackChain
from dreamgym_kit.dream.matching import MISSING
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.interfaces import ExperienceModel, Situation
from dreamgym_kit.replay.masking import Masker
from dreamgym_kit.report.episode import changes, format_nearest, shown, shown_call
from dreamgym_kit.report.sanitize import clean
from dreamgym_kit.serialization import JsonValue, to_json
from dreamgym_kit.types import Answer, Call, Source, Transition


class CassetteExperience:
    """Implements `interfaces.ExperienceModel` for one run of a test's agent.

    Args:
        mocks: the test's own answers by tool name: a value, an exception, or a function of the call's
            arguments that returns a value or raises.
        recorded: all recordings of the cassette.
        further: the last source (a buffer with its tool models).
    """

    def __init__(
        self,
        mocks: Mapping[str, Any],
        recorded: Sequence[Transition],
        further: ExperienceModel | None = None,
    ) -> None:
        self.waits = further.waits if further is not None else False
        self.misses: list[str] = []
        self.mistakes: list[str] = []  # errors in the test's mocks
        self._mocks, self._recorded = mocks, recorded
        cassette = RecordedExperience(  # a cassette has one tenant
            lambda environment, _: [entry for entry in recorded if entry.environment == environment]
        )
        self._recordings = cassette if further is None else FallbackChain(cassette, further)

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        if call.tool in self._mocks:
            return await self._mocked(call)
        answer = await self._recordings.answer(call, situation)
        if answer.unanswered:
            self.misses.append(explain_unanswered(call, answer, situation, self._recorded))
        return answer

    async def _mocked(self, call: Call) -> Answer:
        mock = self._mocks[call.tool]
        why = _cannot_take(mock, call.args)
        if why is None:
            return await _scripted(mock, call)
        called = shown_call(call.tool, call.args)
        self.mistakes.append(
            f"mocks: the function for '{clean(call.tool)}' does not take {called}: {clean(why)}"
        )
        return Answer(source=Source.UNANSWERED, confidence=0.0, why=self.mistakes[-1])


def _cannot_take(mock: Any, args: Mapping[str, Any]) -> str | None:
    """Say why a function does not accept the arguments; None if it does, or is not a function."""
    if not callable(mock) or _is_failure(mock):
        return None
    try:
        takes = inspect.signature(mock)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return None
    try:
        takes.bind(**args)
    except TypeError as error:
        return str(error)
    return None


async def _scripted(mock: Any, call: Call) -> Answer:
    """Give the mock's answer; an exception it raises is the tool's error."""
    try:
        value = mock(**call.args) if callable(mock) and not _is_failure(mock) else mock
        if inspect.isawaitable(value):
            value = await value
        if _is_failure(value):
            raise value
    except Exception as error:  # noqa: BLE001  a mock may raise anything
        return Answer(source=Source.SCRIPTED, error=str(error), error_type=type(error).__name__)
    return Answer(content=to_json(value), source=Source.SCRIPTED)


def _is_failure(value: Any) -> bool:
    return isinstance(value, Exception) or (isinstance(value, type) and issubclass(value, Exception))


def explain_unanswered(call: Call, miss: Answer, situation: Situation, recorded: Sequence[Transition]) -> str:
    """Explain why no recording answers a tool call, and name the nearest one.

    Args:
        call: the call.
        miss: the dream's reason for not answering.
        situation: the episode up to the call.
        recorded: all recordings of the cassette.
    """
    first = f"{shown_call(call.tool, call.args)} is not in the cassette: {clean(miss.why)}"
    if miss.nearest is not None:
        return "\n  ".join([first, *format_nearest(call, miss.nearest, situation.history)])
    environments = sorted(
        {clean(str(entry.environment)) for entry in recorded if entry.call.tool == call.tool}
    )
    elsewhere = f"recorded in environment {', '.join(environments)}"
    return f"{first}\n  {elsewhere if environments else _other_tools(call.tool, recorded)}"


def _other_tools(tool: str, recorded: Sequence[Transition]) -> str:
    names = sorted({entry.call.tool for entry in recorded})
    if not names:
        return "the cassette is empty"
    near = get_close_matches(tool, names, n=1)
    hint = f"; nearest name: {near[0]}" if near else ""
    return f"recorded: {', '.join(map(clean, names))}{hint}"


class CassetteTape:
    """Implements `model_replay.ModelTape`: replays recorded replies, or records them without secrets.

    Replies to a repeated request come in the order recorded; the last one repeats.

    Args:
        task: the task whose model is taped.
        models: which models; see `fixture_scope.DreamOptions.models`.
        masker: removes secrets from requests, as they are recorded and compared.
        recorded: all turns of the cassette, to be replayed; None: record.
    """

    def __init__(
        self, task: str, models: str, masker: Masker, recorded: Sequence[ModelTurn] | None = None
    ) -> None:
        self._task, self._models, self._masker = task, models, masker
        self._lock = threading.Lock()
        self.playing = recorded is not None
        turns = recorded or ()
        self._turns = [turn for turn in turns if turn.task == task] or list(turns)
        self._spelt = {_digest_of(message): message for turn in turns for message in turn.new}
        self._by_request: dict[str, list[ModelTurn]] = defaultdict(list)
        for turn in self._turns:
            self._by_request[_request(turn.model, turn.sent, turn.tools, turn.options)].append(turn)
        self._played: Counter[str] = Counter()
        self.misses: list[str] = []

    def takes(self, model: BaseChatModel) -> bool:
        """See `ModelTape.takes`."""
        return self._models == "recorded" or (self._models == "auto" and of_provider(model))

    def play(self, query: ModelQuery) -> Mapping[str, JsonValue] | None:
        """See `ModelTape.play`."""
        query, sent = self._masked(query)
        request = _request(query.model, sent, query.tools, query.options)
        with self._lock:
            turns = self._by_request.get(request)
            if not turns:
                self.misses.append(_model_miss(query, sent, self._turns, self._spelt))
                return None
            turn = turns[min(self._played[request], len(turns) - 1)]
            self._played[request] += 1
            return turn.answer

    def keep(self, query: ModelQuery, answer: Mapping[str, JsonValue]) -> None:
        """See `ModelTape.keep`; a replayed reply is not recorded again."""
        if self.playing:
            return
        query, sent = self._masked(query)
        with self._lock:
            messages = list(zip(sent, query.messages, strict=True))
            new = [message for name, message in messages if name not in self._spelt]
            self._spelt.update(messages)
            turn = ModelTurn(
                task=self._task,
                turn=len(self._turns) + 1,
                model=query.model,
                tools=query.tools,
                options=query.options,
                sent=sent,
                new=tuple(new),
                answer=self._masker.plain(dict(answer)),
            )
            self._turns.append(turn)

    def turns(self) -> tuple[ModelTurn, ...]:
        """Give the recorded turns in order."""
        return tuple(self._turns)

    def _masked(self, query: ModelQuery) -> tuple[ModelQuery, tuple[str, ...]]:
        """Give the request without secrets, and its messages' digests."""
        messages = tuple(self._masker.plain(dict(message)) for message in query.messages)
        return replace(query, messages=messages), tuple(map(_digest_of, messages))


def _request(model: str, sent: Sequence[str], tools: Sequence[str], options: str) -> str:
    return digest([model, list(sent), list(tools), options])


def _digest_of(message: Mapping[str, JsonValue]) -> str:
    return digest(dict(message))[:16]


def _model_miss(
    query: ModelQuery,
    sent: Sequence[str],
    turns: Sequence[ModelTurn],
    spelt: Mapping[str, Mapping[str, JsonValue]],
) -> str:
    """Explain why no recording answers a request to the agent's model, and name the nearest one.

    Args:
        query: the request.
        sent: its messages' digests.
        turns: all recorded turns of the cassette.
        spelt: messages by their digest.
    """
    first = f"the agent's model ({clean(query.model)}) got a request that is not in the cassette"
    if not turns:
        return f"{first}\n  no model reply was recorded for this test; record it, or set models='live'"
    nearest = max(turns, key=lambda turn: (_in_common(turn.sent, sent), -abs(len(turn.sent) - len(sent))))
    lines = [first, f"  nearest: turn {nearest.turn} of {nearest.task}"]
    if nearest.model != query.model:
        lines.append(f"    model: recorded {shown(nearest.model)}, now {shown(query.model)}")
    if nearest.tools != query.tools:
        lines.append(f"    tools: recorded {', '.join(nearest.tools)}, now {', '.join(query.tools)}")
    place = _in_common(nearest.sent, sent)
    if tuple(nearest.sent) != tuple(sent):
        old = spelt.get(nearest.sent[place], {}) if place < len(nearest.sent) else MISSING
        new = query.messages[place] if place < len(sent) else MISSING
        role = new.get("role") if isinstance(new, Mapping) else "?"
        name = f"message {place + 1} ({role})"
        old, new = (dict(side) if isinstance(side, Mapping) else side for side in (old, new))
        lines.extend(f"    {name} {line}" for line in changes(old, new))
    elif len(lines) == 2:
        lines.append("    only tool descriptions, tool schemas or model options differ")
    return "\n".join(lines)


def _in_common(recorded: Sequence[str], now: Sequence[str]) -> int:
    """Count the equal messages at the start."""
    count = 0
    for old, new in zip(recorded, now, strict=False):
        if old != new:
            break
        count += 1
    return count
