"""Stated tool models in words, each part with what the recordings say of it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from dreamgym_kit.dream.state.evidence import Found, RuleEvidence
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.sentences import operation, quoted, stated
from dreamgym_kit.dream.state.stated import StatedModel
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.tool_models import ChangeSettings, FailSettings

_WORDS = {
    "is": "is",
    "is_not": "is not",
    "one_of": "is one of",
    "above": "is more than",
    "below": "is less than",
    "at_least": "is at least",
    "at_most": "is at most",
    "in": "is in",
    "not_in": "is not in",
}


@dataclass(frozen=True, slots=True)
class RuleLine:
    """One stated rule.

    Attributes:
        kind: answers, fails, changes or keeps.
        says: the rule as a sentence.
        right, wrong: recordings for and against it.
        source: declared or drafted.
        contradiction: the first recording that says otherwise.
    """

    tool: str
    kind: str
    says: str
    right: int
    wrong: int
    source: str
    contradiction: str = ""

    def to_json(self) -> dict[str, JsonValue]:
        """The fields by name."""
        return dict(asdict(self))


def stated_lines(models: ToolModels, found: Found) -> list[RuleLine]:
    """Every stated part with its evidence, tool by tool."""
    return [
        line for tool, said in sorted(models.stated.items()) for line in _lines(said, found.get(tool, {}))
    ]


def _lines(said: StatedModel, parts: Mapping[str, RuleEvidence]) -> Iterator[RuleLine]:
    def line(kind: str, part: str, says: str) -> RuleLine:
        known = parts.get(part, RuleEvidence())
        return RuleLine(
            said.tool,
            kind,
            says,
            known.right,
            known.wrong,
            source=f"{said.source} by {said.said.said_by}" if said.said.said_by else said.source,
            contradiction=known.contradiction,
        )

    for number, fail in enumerate(said.said.fails, start=1):
        yield line("fails", f"fails.{number}", _fail(fail))
    if said.said.fails_only:
        yield line("fails", "fails_only", "in no other case")
    if said.said.answer is not None:
        yield line("answers", "answer", _json(said.said.answer))
    for number, change in enumerate(said.said.changes, start=1):
        yield line("changes", f"changes.{number}", _change(change))
    named = [part.removeprefix("keeps.") for part in parts if part.startswith("keeps.")]
    patterns = [keep for keep in said.said.keeps if keep not in named]
    for read in [*named, *(pattern for pattern in patterns if not any(sign in pattern for sign in "*?["))]:
        yield line("keeps", f"keeps.{read}", read)
    if not named and patterns != [one for one in patterns if not any(sign in one for sign in "*?[")]:
        yield line("keeps", "", ", ".join(patterns))


def _fail(fail: FailSettings) -> str:
    tests = " and ".join(f"{one.of} {_WORDS[one.test]} {stated(one.value)}" for one in fail.when)
    told = f"answers {stated(fail.answer)}" if fail.error is None else f"raises {quoted(fail.error)}"
    return f"{told} if {tests}" if tests else f"{told} always"


def _change(change: ChangeSettings) -> str:
    bound = " and ".join(f"{of} = {name}" for of, name in change.bind.items())
    where = f"{change.read}({bound})" if bound else change.read
    if change.whole is not None:
        return f"{where}: {operation('set', '', stated(change.whole))}"
    done = (operation(kind, path, stated(value)) for kind, path, value in change.operations)
    return f"{where}: {'; '.join(done)}"


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
