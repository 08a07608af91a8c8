"""One episode on the terminal: the request, each call with its answer and source.

refund-03.2  "My yoga mat from order A-1416 arrived broken."
   5  get_payment(payment_id='pay_2188') -> {'status': 'captured', 'amount': 88.0}  [read, composed]
   7  refund_payment(payment_id='pay_2188', amount=88.0) -> TimeoutError 'after 30 s'  [destructive, fault]
      agent: "The refund did not go through."
  ! refunded twice
"""

import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dreamgym_kit.dream.matching import MISSING, same
from dreamgym_kit.report.colors import GLUE, PLAIN, Paint, fold, glued, hung
from dreamgym_kit.report.metrics import CRITICAL
from dreamgym_kit.report.percent import duration, format_count
from dreamgym_kit.report.sanitize import clean, one_line
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import (
    MAX_SHOWN,
    Call,
    Episode,
    Finding,
    Nearest,
    Source,
    Transition,
    UserTurn,
    call_text,
    cut_end,
    value_text,
)

_ENDED_BY = {
    "abstained": "an unanswered call",
    "crashed": "an error in the graph",
    "executed": "a real call",
    "violation": "a blocked call",
}
_HOW = ", --full"  # option that shows full texts
_BESIDE = " " * 6  # indentation of messages between calls


def render_episode(
    episode: Episode, *, paint: Paint = PLAIN, recorded: bool = False, full: bool = False
) -> str:
    """Format one episode step by step.

    Args:
        episode: the episode.
        paint: colors, if any.
        recorded: the run used real tools.
        full: texts are not cut; otherwise at 300 characters.
    """
    layout = _Layout(episode, paint, recorded, full)
    lines = [layout.head(), *layout.body(), *layout.end()]
    return "\n".join(lines) + "\n"


def text_of(content: JsonValue) -> str:
    """Return the text of a message or answer: text unchanged, text blocks joined, other values as JSON."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list):
        blocks = [block.get("text") for block in content if isinstance(block, Mapping)]
        texts = [block for block in blocks if isinstance(block, str)]
        if texts and len(texts) == len(content):
            return "".join(texts)
    return json.dumps(content, separators=(", ", ": "))


class _Layout:
    def __init__(self, episode: Episode, paint: Paint, recorded: bool, full: bool) -> None:
        self._episode = episode
        self._paint = paint
        self._recorded = recorded
        self._most = sys.maxsize if full else MAX_SHOWN
        self._same: dict[str, int] = {}

    def head(self) -> str:
        request = next(
            (
                text_of(message.get("content"))
                for message in self._episode.messages
                if message.get("role") == "user"
            ),
            "",
        )
        name = f" {one_line(self._episode.id)}"
        return hung(f"{name}  ", self._quoted(request)) if request else name

    def body(self) -> Iterator[str]:
        """Yield the events in order; the task's request is in the head."""
        for item in telling(self._episode):
            if isinstance(item, Transition):
                yield from self._call(item)
            elif isinstance(item, UserTurn):
                yield from self._interrupt(item)
            elif item.turn is not None:
                yield self._line("user", text_of(item.message.get("content")), item.turn.by)
            elif item.message.get("role") == "assistant":
                text = text_of(item.message.get("content")).strip()
                if text:
                    yield self._line("agent", text)

    def end(self) -> Iterator[str]:
        episode, paint = self._episode, self._paint
        for finding in episode.findings:
            if not finding.steps:
                yield self._finding(finding)
        for call in episode.executed:
            line = f"  ! executed: {one_line(str(call))}{f': {call.how}' if call.how else ''}"
            yield paint.red(fold(line, indent=4))
        for text in episode.violations:
            yield paint.red(fold(f"  ! blocked: {one_line(text)}", indent=4))
        word = str(episode.verdict)
        rests = " (imagined)" if episode.rests_on_imagined else ""
        line = fold(f" {word}{rests}  {one_line(episode.reason)}", indent=2)
        yield line.replace(word, paint.verdict(episode.verdict, word), 1)
        yield from (fold(f"    {one_line(line)}", indent=6) for line in episode.traceback)
        stop = (
            ""
            if episode.stop == "finished"
            else f", ended by: {_ENDED_BY.get(episode.stop) or one_line(episode.stop)}"
        )
        stop += f", blame: {episode.blame}" if episode.blame is not None else ""
        calls = format_count(len(episode.transitions), "call")
        model_calls = format_count(episode.model_calls, "model call")
        yield f" {calls}, {model_calls}, {duration(episode.elapsed_s)}{stop}"

    def _line(self, speaker: str, text: str, by: str = "") -> str:
        """Format a message; `by`: the source of a simulated user's reply."""
        tail = glued(f"[{one_line(by)}]") if by else ""
        return self._tagged(hung(f"{_BESIDE}{speaker}: ", f"{self._quoted(text)}  {tail}".rstrip()), tail)

    def _quoted(self, text: str) -> str:
        return f'"{cut_end(json.dumps(clean(text))[1:-1], self._most, _HOW)}"'

    def _tagged(self, text: str, tail: str, color: Callable[[str], str] | None = None) -> str:
        """Append a tail, in its own color."""
        tail = tail.replace(GLUE, " ")
        head, last, rest = text.rpartition(tail) if tail else (text, "", "")
        return f"{head}{(color or self._paint.dim)(last)}{rest}" if last else text

    def _interrupt(self, turn: UserTurn) -> Iterator[str]:
        yield self._line("waits for", text_of(turn.asked))
        if turn.by == "nobody":
            yield self._paint.yellow(f"{_BESIDE}told: nothing, nobody answers")
        else:
            yield self._line("told", text_of(turn.answer), turn.by)

    def _call(self, step: Transition) -> Iterator[str]:
        tail = glued(f"[{step.effect}, {step.answer.source}]")
        args = {one_line(name): value for name, value in step.call.args.items()}
        called = call_text(one_line(step.call.tool), args, most=self._most, how=_HOW)
        text = hung(f"  {step.step:>2}  ", f"{called} -> {_answer(step, self._most)}  {tail}")
        yield self._tagged(text, tail, self._color(step))
        if step.answer.source in (Source.MODEL, Source.IMAGINED) and step.answer.why:
            reason = cut_end(one_line(step.answer.why), self._most, _HOW)
            yield fold(f"{_BESIDE}because {reason}", indent=len(_BESIDE))
        if step.answer.nearest is not None:
            history = [transition for transition in self._episode.transitions if transition.step < step.step]
            for line in format_nearest(step.call, step.answer.nearest, history, self._most):
                indent = _BESIDE + " " * (len(line) - len(line.lstrip()))
                yield fold(f"{indent}{one_line(line)}", indent=len(indent) + 2)
        before = self._same.setdefault(step.call.key, step.step)
        if step.effect.changes_environment and before != step.step:
            yield f"{_BESIDE}the same call as step {before}"
        for finding in self._episode.findings:
            if finding.steps and finding.steps[-1] == step.step:
                yield self._finding(finding)

    def _color(self, step: Transition) -> Callable[[str], str]:
        if step.answer.source is Source.REAL and not step.effect.runs_in_dream and not self._recorded:
            return self._paint.red
        doubtful = step.answer.unanswered or step.answer.error is not None
        return self._paint.yellow if doubtful else self._paint.dim

    def _finding(self, finding: Finding) -> str:
        color = self._paint.red if finding.severity == CRITICAL else self._paint.yellow
        return color(fold(f"  ! {one_line(finding.text)}", indent=4))


def _answer(step: Transition, most: int) -> str:
    answer = step.answer
    if answer.error is not None:
        kind = "error" if answer.error_type in (None, "ToolException") else one_line(str(answer.error_type))
        return f"{kind} {value_text(answer.error, most=most, how=_HOW)}"
    if answer.unanswered:
        return f"unanswered: {cut_end(one_line(answer.why or 'not known'), most, _HOW)}"
    if answer.content is None and answer.update is not None:
        return "updates the state"
    blocks = isinstance(answer.content, list) and all(
        isinstance(block, Mapping) and isinstance(block.get("text"), str) for block in answer.content
    )
    return value_text(text_of(answer.content) if blocks else answer.content, most=most, how=_HOW)


@dataclass(frozen=True, slots=True)
class Utterance:
    """One message; `turn` if a simulated user sent it."""

    message: Mapping[str, Any]
    turn: UserTurn | None = None


def telling(episode: Episode) -> Iterator[Utterance | Transition | UserTurn]:
    """Yield messages, calls and interrupts, each once, in the order of the report.

    An agent's message precedes the calls that it requested; an interrupt is placed where the graph stopped:
    after the messages and calls that existed, before the results of its answer.
    """
    replies = {turn.said: turn for turn in episode.user_turns if turn.kind == "reply"}
    left = deque(episode.transitions)
    waits = deque(turn for turn in episode.user_turns if turn.kind != "reply")
    by_id = {step.call.call_id: step.step for step in left if step.call.call_id is not None}

    def calls(last: int, seen: int) -> Iterator[Transition | UserTurn]:
        while left and left[0].step <= last:
            while waits and waits[0].after < left[0].step and waits[0].said <= seen:
                yield waits.popleft()
            yield left.popleft()

    for place, message in enumerate(episode.messages):
        steps = [by_id[call["id"]] for call in _calls(message) if call.get("id") in by_id]
        yield from calls(min(steps, default=1) - 1, place)
        while waits and waits[0].said <= place:
            yield waits.popleft()
        yield Utterance(message, replies.get(place))
        yield from calls(max(steps, default=0), place + 1)
    if left:
        yield from calls(left[-1].step, len(episode.messages))
    yield from waits


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [call for call in message.get("tool_calls") or () if isinstance(call, Mapping)]


_MOST = 300  # characters of one value


def shown(value: object, most: int = _MOST) -> str:
    """Format a value like `repr` on one line, cut if long, without terminal control characters."""
    text = "nothing" if value is MISSING else repr(value)
    return clean(text if len(text) <= most else f"{text[: most - 3]}...")


def shown_call(tool: str, args: Mapping[str, object]) -> str:
    """Format a call as Python code."""
    return f"{clean(tool)}({', '.join(f'{clean(name)}={shown(value)}' for name, value in args.items())})"


def changes(recorded: JsonValue, now: JsonValue, where: str = "", most: int = _MOST) -> list[str]:
    """Return the differences of two values by path: "payment: recorded 'p1', now 'p2'"."""
    if same(recorded, now):
        return []
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        names = [*recorded, *(name for name in now if name not in recorded)]
        return [
            line
            for name in names
            for line in changes(
                recorded.get(name, MISSING),
                now.get(name, MISSING),
                f"{where}.{name}" if where else str(name),
                most,
            )
        ]
    if isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        pairs = enumerate(zip(recorded, now, strict=True))
        return [line for place, (old, new) in pairs for line in changes(old, new, f"{where}[{place}]", most)]
    return [f"{clean(where) or 'value'}: recorded {shown(recorded, most)}, now {shown(now, most)}"]


def format_nearest(call: Call, near: Nearest, history: Iterable[Transition], most: int = _MOST) -> list[str]:
    """Format the nearest recording of an unanswered call, and the differences.

    Args:
        call: the unanswered call.
        near: the nearest recording.
        history: the episode's earlier calls.
        most: maximum characters of a value.
    """
    lines = [f"nearest recording ({clean(near.episode)}, call {near.step}):"]
    lines += [
        f"  {change}"
        for name in near.differs
        for change in changes(near.call.args.get(name, MISSING), call.args.get(name, MISSING), name, most)
    ]
    replied, now = ([reply.reply for reply in each.replies] for each in (near.call, call))
    lines += [f"  {change}" for change in changes(replied, now, "replies", most)]
    if near.elsewhere:
        writes = [step.call for step in history if step.effect.changes_environment]
        lines += [
            f"  changed before it: recorded {_written_calls(near.writes)}",
            f"                     now      {_written_calls(writes)}",
        ]
    answer = near.content if near.error is None else near.error
    lines.append(f"  {'answer' if near.error is None else 'error'}: {shown(answer, most)}")
    return lines


def _written_calls(calls: Sequence[Call]) -> str:
    return " -> ".join(shown_call(call.tool, call.args) for call in calls) or "nothing"
