"""One episode on the terminal: what was asked, each call with its answer and where that came from.

refund-03.2  "My yoga mat from order A-1416 arrived broken."
  5 get_payment     pay_2188            captured, 88.00              composed
  7 refund_payment  pay_2188 88.00      TimeoutError after 30 s      fault
      ledger        destructive, did not run
  agent             "The refund did not go through."
  ! refunded twice
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from dreamgym_kit.errors import NotJson
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.clean import one_line, shown
from dreamgym_kit.report.figures import CRITICAL
from dreamgym_kit.report.paint import PLAIN, Paint
from dreamgym_kit.report.telling import telling
from dreamgym_kit.report.terminal import WIDTH, fold
from dreamgym_kit.report.whole import duration
from dreamgym_kit.vocabulary import Episode, Finding, Provenance, Transition, UserTurn, Verdict

_STEP, _ARGS, _SOURCE = 4, 20, 9
_TOOL_MAX = 22


def render_episode(episode: Episode, *, paint: Paint = PLAIN, recorded: bool = False) -> str:
    """Give one episode step by step.

    Args:
        episode: the episode.
        paint: colours, or none.
        recorded: real tools were meant to run, so nothing is told as "did not run".
    """
    layout = _Layout(episode, paint, recorded)
    lines = [layout.head(), *layout.body(), *layout.end()]
    return "\n".join(lines) + "\n"


def text_of(content: JsonValue) -> str:
    """The text of a message or an answer: text as it is, text blocks joined, anything else as JSON."""
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
    def __init__(self, episode: Episode, paint: Paint, recorded: bool) -> None:
        self._episode = episode
        self._paint = paint
        self._recorded = recorded
        names = [len(one_line(step.call.tool)) for step in episode.transitions]
        self._tool = min(
            _TOOL_MAX, max([len("agent" if not self._episode.user_turns else "waits for"), *names])
        )
        self._answer = WIDTH - 1 - _STEP - self._tool - _ARGS - _SOURCE - 6
        self._same: dict[str, int] = {}

    def head(self) -> str:
        asked = next(
            (text_of(said.get("content")) for said in self._episode.messages if said.get("role") == "user"),
            "",
        )
        name = f" {one_line(self._episode.id)}"
        return f"{name}  {_quoted(asked, WIDTH - len(name) - 2)}" if asked else name

    def body(self) -> Iterator[str]:
        """What happened, in its order; what the task itself asked stands in the head."""
        for told in telling(self._episode):
            if isinstance(told, Transition):
                yield from self._call(told)
            elif isinstance(told, UserTurn):
                yield from self._interrupt(told)
            elif told.turn is not None:
                yield self._line("user", text_of(told.message.get("content")), told.turn.by)
            elif told.message.get("role") == "assistant":
                said = text_of(told.message.get("content")).strip()
                if said:
                    yield self._line("agent", said)

    def end(self) -> Iterator[str]:
        episode, paint = self._episode, self._paint
        for finding in episode.findings:
            if not finding.steps:
                yield self._finding(finding)
        for call in episode.executed:
            told = f"  ! executed: {one_line(str(call))}{f': {call.how}' if call.how else ''}"
            yield paint.red(fold(told, indent=4))
        for text in episode.violations:
            yield paint.red(fold(f"  ! blocked: {one_line(text)}", indent=4))
        colour = {
            Verdict.PASSED: paint.green,
            Verdict.FAILED: paint.red,
            Verdict.ERROR: paint.red,
            Verdict.INCONCLUSIVE: paint.yellow,
        }
        word = str(episode.verdict)
        told = fold(f" {word}  {one_line(episode.reason)}", indent=2)
        yield told.replace(word, colour[episode.verdict](word), 1)
        yield from (fold(f"    {one_line(line)}", indent=6) for line in episode.traceback)
        stop = "" if episode.stop == "finished" else f", ended by: {one_line(episode.stop)}"
        calls = f"{len(episode.transitions)} calls, {episode.model_calls} model calls"
        yield f" {calls}, {duration(episode.elapsed_s)}{stop}"

    def _line(self, who: str, text: str, by: str = "") -> str:
        """Something said; who stood in for a user stands where the source of an answer stands."""
        head, tail = f"{' ' * _STEP}  {who:<{self._tool}}  ", f"  {one_line(by)}" if by else ""
        return head + _quoted(text, WIDTH - len(head) - len(tail)) + self._paint.dim(tail)

    def _interrupt(self, turn: UserTurn) -> Iterator[str]:
        yield self._line("waits for", text_of(turn.asked))
        if turn.by == "nobody":
            yield self._paint.yellow(f"{' ' * (_STEP + 2)}{'told':<{self._tool}}  nothing: nobody answers")
        else:
            yield self._line("told", text_of(turn.answer), turn.by)

    def _call(self, step: Transition) -> Iterator[str]:
        tool = f"{shown(step.call.tool, self._tool):<{self._tool}}"
        args = f"{shown(arguments(step.call.args), _ARGS):<{_ARGS}}"
        answer = f"{shown(_answer(step), self._answer):<{self._answer}}"
        line = f" {step.step:>{_STEP}} {tool}  {args}  {self._coloured(step, answer)} {self._source(step)}"
        yield line.rstrip()
        if step.effect.changes_world:
            yield f"{' ' * (_STEP + 6)}{self._paint.dim('ledger')}  {self._ledger(step)}"
        for finding in self._episode.findings:
            if finding.steps and finding.steps[-1] == step.step:
                yield self._finding(finding)

    def _ledger(self, step: Transition) -> str:
        really = step.answer.provenance is Provenance.REAL
        told = f"{step.effect}, {'really ran' if really else 'did not run'}"
        before = self._same.setdefault(step.call.key, step.step)
        return told if before == step.step else f"{told}; the same call as step {before}"

    def _coloured(self, step: Transition, answer: str) -> str:
        return self._paint.yellow(answer) if step.answer.error is not None else answer

    def _source(self, step: Transition) -> str:
        source = str(step.answer.provenance)
        if step.answer.abstained:
            return self._paint.yellow(source)
        if step.answer.provenance is Provenance.REAL and not step.effect.runs_in_dream and not self._recorded:
            return self._paint.red(source)
        return self._paint.dim(source)

    def _finding(self, finding: Finding) -> str:
        colour = self._paint.red if finding.severity == CRITICAL else self._paint.yellow
        return colour(fold(f"  ! {one_line(finding.text)}", indent=4))


def arguments(args: Mapping[str, JsonValue]) -> str:
    """Arguments in short: their values where these are few and simple, else JSON."""
    values: Sequence[JsonValue] = list(args.values())
    if all(isinstance(value, (str, int, float, bool)) for value in values):
        return " ".join(str(value) for value in values)
    return json.dumps(dict(args), separators=(",", ":"))


def _answer(step: Transition) -> str:
    answer = step.answer
    if answer.error is not None:
        if answer.error_type in (None, "ToolException"):
            return answer.error if "error" in answer.error.lower() else f"error: {answer.error}"
        return f"{answer.error_type}: {answer.error}"
    if answer.abstained:
        return answer.why or "not known"
    if answer.content is None and answer.update is not None:
        return "updates the state"
    return _short(text_of(answer.content))


def _short(text: str) -> str:
    """An answer in JSON as its values, "captured, 88.00"; any other text as it is."""
    if not text.startswith(("{", "[")):
        return text
    try:
        value = read_json(text)
    except NotJson:
        return text
    return ", ".join(_values(value)) or text


def _values(value: JsonValue) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _values(item)
    else:
        yield str(value)


def _quoted(text: str, width: int) -> str:
    return f'"{shown(text, width - 2)}"'
