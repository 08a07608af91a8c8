"""An episode for a test's assertions: calls, their order, what they would have changed, how it ended.

Every assertion is a method that raises `AssertionError` with the actual events, and otherwise returns a true
value, so that it works with and without `assert`. Plain assertions on the attributes work as well.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NoReturn

from dreamgym_kit.dream.faults import took_effect
from dreamgym_kit.report.episode import shown, shown_call
from dreamgym_kit.report.sanitize import clean
from dreamgym_kit.rollout.journal import episode_to_record
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Effect, Episode, Finding, Source, ToolSpec, Transition, Verdict, without_ids


@dataclass(frozen=True, slots=True)
class Step:
    """A tool call of the agent, with its answer."""

    number: int  # 1-based place among the episode's calls
    tool: str
    args: Mapping[str, JsonValue]
    answer: JsonValue
    error: str | None
    effect: Effect
    source: str  # recorded, scripted, real, ...
    took_effect: bool  # it would have changed the environment; a failed write may have, too

    def __str__(self) -> str:
        outcome = f"error: {clean(self.error)}" if self.error is not None else shown(self.answer)
        outcome = "no answer" if self.source == Source.UNANSWERED else outcome
        return f"{self.number} {self.call} -> {outcome}  [{self.effect.value}, {self.source}]"

    @property
    def call(self) -> str:
        """The call as Python code."""
        return shown_call(self.tool, self.args)


@dataclass(frozen=True, slots=True)
class Expected:
    """An expected call: a tool or pattern, and the arguments that matter."""

    tool: str
    args: Mapping[str, Any]

    def __str__(self) -> str:
        return shown_call(self.tool, self.args) if self.args else clean(self.tool)

    def names(self, step: Step) -> bool:
        """Return whether a call is of this tool."""
        return fnmatchcase(step.tool, self.tool)

    def fits(self, step: Step) -> bool:
        """Return whether a call has this tool and these arguments; others do not matter."""
        return self.names(step) and not self.unlike(step)

    def unlike(self, step: Step) -> list[str]:
        """Return how a call's arguments differ."""
        return [
            f"{name} is {shown(step.args[name])}, expected {shown(value)}"
            if name in step.args
            else f"{name} was not given, expected {shown(value)}"
            for name, value in self.args.items()
            if name not in step.args or not bool(value == step.args[name])
        ]


def call(tool: str, /, **args: Any) -> Expected:
    """Describe a call for `order` and `exactly`: `call("refund_payment", payment="p1")`."""
    return Expected(tool, args)


def step_of(entry: Transition) -> Step:
    """Convert a transition."""
    return Step(
        number=entry.step,
        tool=entry.call.tool,
        args=entry.call.args,
        answer=entry.answer.content,
        error=entry.answer.error,
        effect=entry.effect,
        source=entry.answer.source.value,
        took_effect=entry.effect.changes_environment and took_effect(entry.answer),
    )


def arguments_of(tools: Iterable[ToolSpec]) -> dict[str, list[str]]:
    """Return each tool's argument names; tools that accept further arguments are left out."""
    schemas = {tool.name: tool.args_schema for tool in tools}
    return {
        name: list(properties)
        for name, schema in schemas.items()
        if isinstance(properties := schema.get("properties"), Mapping)
        and not schema.get("additionalProperties")
    }


_VARIES = ("started_at", "elapsed_s", "recorded_at", "traceback")  # times and paths


class DreamedEpisode:
    """The episode of one run of the agent.

    Attributes:
        record: the whole episode, as in a run directory.
        directory: the run directory; `dreamgym-kit view DIRECTORY` shows it.
        recorded: whether real tools ran for recording.
        calls: the agent's tool calls, in order.
        verdict: of `expect` and the checker; "inconclusive" without both.
        reason: why that verdict.
        stop: how it ended: "finished", "interrupted", ....
        findings: suspicious events (docs/results.md).
        final: the graph's last state without its messages.
    """

    def __init__(
        self,
        record: Episode,
        *,
        directory: Path,
        tools: Collection[str] = (),
        arguments: Mapping[str, Collection[str]] | None = None,
        recorded: bool = False,
    ) -> None:
        self.record, self.directory, self.recorded = record, directory, recorded
        self.calls: tuple[Step, ...] = tuple(step_of(entry) for entry in record.transitions)
        self.verdict: Verdict = record.verdict
        self.reason: str = record.reason
        self.stop: str = record.stop
        self.findings: tuple[Finding, ...] = record.findings
        self.final: JsonValue = record.final
        self._tools = {*tools, *(step.tool for step in self.calls)}
        self._arguments = arguments or {}  # by tool; an absent tool accepts any

    @property
    def effects(self) -> tuple[Step, ...]:
        """The calls that would have changed the environment with real tools.

        Failed writes are included: they may have taken effect before they failed.
        """
        return tuple(step for step in self.calls if step.took_effect)

    @property
    def answer(self) -> str:
        """The agent's last text."""
        answers = [message for message in self.record.messages if message.get("role") == "assistant"]
        return _text(answers[-1].get("content")) if answers else ""

    def called(self, tool: str, /, **args: Any) -> tuple[Step, ...]:
        """Assert that a tool was called with these arguments (others do not matter); return the calls.

        Args:
            tool: a name, or a shell pattern ("refund_*").
            args: compared by `==`, so `pytest.approx`, `unittest.mock.ANY` and the like work.
        """
        __tracebackhide__ = True
        expected = self._expected(tool, args)
        matches = tuple(step for step in self.calls if expected.fits(step))
        if not matches:
            self._fail(f"{expected} was not called{self._instead(expected)}")
        return matches

    def called_once(self, tool: str, /, **args: Any) -> Step:
        """Assert that a tool was called like this exactly once; return the call."""
        __tracebackhide__ = True
        matches = self.called(tool, **args)
        if len(matches) > 1:
            self._fail(f"{Expected(tool, args)} was called {len(matches)} times, expected once")
        return matches[0]

    def not_called(self, tool: str, /, **args: Any) -> Literal[True]:
        """Assert that no call matches."""
        __tracebackhide__ = True
        expected = self._expected(tool, args)
        for step in self.calls:
            if expected.fits(step):
                self._fail(
                    f"{expected} was called, but should not have been: {step.call}, step {step.number}"
                )
        return True

    def order(self, *calls: str | Expected) -> tuple[Step, ...]:
        """Assert these calls in this order, with other calls between them allowed; return the calls."""
        __tracebackhide__ = True
        matches: list[Step] = []
        for expected in [self._of(item) for item in calls]:
            after = matches[-1].number if matches else 0
            step = next((item for item in self.calls if item.number > after and expected.fits(item)), None)
            if step is None:
                where = f"after {matches[-1].call} (step {after})" if matches else "at all"
                earlier = [item for item in self.calls if item not in matches and expected.fits(item)]
                but = f", but before, as step {earlier[-1].number}" if earlier else self._instead(expected)
                self._fail(f"{expected} was not called {where}{but}")
            matches.append(step)
        return tuple(matches)

    def exactly(self, *calls: str | Expected) -> Literal[True]:
        """Assert exactly these calls in this order."""
        __tracebackhide__ = True
        wanted = [self._of(item) for item in calls]
        for place, (expected, step) in enumerate(zip(wanted, self.calls, strict=False), start=1):
            if not expected.fits(step):
                unlike = "; ".join(expected.unlike(step)) if expected.names(step) else ""
                self._fail(f"call {place} is {step.call}, expected {expected}{unlike and f': {unlike}'}")
        if len(wanted) > len(self.calls):
            self._fail(f"{wanted[len(self.calls)]} was not called: there were only {len(self.calls)} calls")
        if len(wanted) < len(self.calls):
            self._fail(f"{self.calls[len(wanted)].call} was called, and nothing more was expected")
        return True

    def would_write(self, tool: str = "*", /, **args: Any) -> tuple[Step, ...]:
        """Assert a call that would have changed the environment; return the calls. See `effects`."""
        __tracebackhide__ = True
        expected = self._expected(tool, args)
        matches = tuple(step for step in self.effects if expected.fits(step))
        if not matches:
            failed = next((step for step in self.calls if expected.fits(step)), None)
            why = f": step {failed.number} changed nothing" if failed else self._instead(expected)
            self._fail(f"{expected} would not have changed anything{why}")
        return matches

    def would_write_nothing(self) -> Literal[True]:
        """Assert that the environment would be unchanged."""
        __tracebackhide__ = True
        if self.effects:
            self._fail(
                f"{len(self.effects)} calls would have changed the environment, first {self.effects[0].call}"
            )
        return True

    def passed(self) -> Literal[True]:
        """Assert that the verdict of `expect` and the checker is passed."""
        __tracebackhide__ = True
        if self.verdict is not Verdict.PASSED:
            self._fail(f"the verdict is {self.verdict.value}, expected passed: {clean(self.reason)}")
        return True

    def to_json(self) -> dict[str, JsonValue]:
        """Return the episode as data, without times and random IDs: equal for every replay."""
        return _steady(episode_to_record(self.record))

    def __str__(self) -> str:
        lines = [str(step) for step in self.calls] or ["no tool was called"]
        end = f"{self.stop}, {self.verdict.value}: {clean(self.reason)}"
        return "\n".join([*lines, f"answer: {clean(self.answer)}", end])

    def __repr__(self) -> str:
        return f"<DreamedEpisode {self.record.id}: {len(self.calls)} calls, {self.stop}>"

    def _expected(self, tool: str, args: dict[str, Any]) -> Expected:
        """Refuse unknown tool or argument names: `not_called` would always pass with them."""
        __tracebackhide__ = True
        if self._tools and tool not in self._tools and not set(tool) & set("*?["):
            hint = _hint(tool, self._tools, "it has")
            raise AssertionError(f"the graph has no tool '{clean(tool)}'; {hint}")
        takes = self._taken_by(tool)
        for name in args:
            if takes is not None and name not in takes:
                hint = _hint(name, takes, "it takes")
                raise AssertionError(f"{clean(tool)} takes no argument '{clean(name)}'; {hint}")
        return Expected(tool, args)

    def _taken_by(self, tool: str) -> set[str] | None:
        """Return the arguments of tools with this name or pattern; None if one accepts any."""
        named = [candidate for candidate in self._tools if fnmatchcase(candidate, tool)]
        if not named or any(match not in self._arguments for match in named):
            return None
        given = (name for step in self.calls if step.tool in named for name in step.args)
        return {*given, *(name for match in named for name in self._arguments[match])}

    def _of(self, item: str | Expected) -> Expected:
        __tracebackhide__ = True
        return (
            self._expected(item, {}) if isinstance(item, str) else self._expected(item.tool, dict(item.args))
        )

    def _instead(self, expected: Expected) -> str:
        """Describe how calls of the same tool differ from the expected one."""
        same = ((step, expected.unlike(step)) for step in self.calls if expected.names(step))
        return "".join(f"\n  step {step.number}: {'; '.join(unlike)}" for step, unlike in same if unlike)

    def _fail(self, problem: str) -> NoReturn:
        __tracebackhide__ = True
        story = "\n".join(f"  {line}" for line in str(self).splitlines())
        raise AssertionError(f"{problem}\nthe episode:\n{story}")


def _hint(name: str, valid_names: Collection[str], there_are: str) -> str:
    near = get_close_matches(name, valid_names, n=1)
    return f"did you mean '{near[0]}'?" if near else f"{there_are} {', '.join(sorted(valid_names))}"


def _text(content: JsonValue) -> str:
    if isinstance(content, str):
        return content
    blocks: Sequence[JsonValue] = content if isinstance(content, list) else []
    return "".join(
        block if isinstance(block, str) else str(block.get("text", "")) if isinstance(block, dict) else ""
        for block in blocks
    )


def _steady(record: JsonValue) -> dict[str, JsonValue]:
    """Remove what varies: times, paths, and random IDs of a model or the framework."""
    steady = {name: value for name, value in record.items() if name not in _VARIES}
    steady["transitions"] = [
        {name: value for name, value in transition.items() if name not in _VARIES}
        | {"call": {name: value for name, value in transition["call"].items() if name != "call_id"}}
        for transition in record["transitions"]
    ]
    steady["messages"] = [without_ids(message) for message in record["messages"]]
    return steady
