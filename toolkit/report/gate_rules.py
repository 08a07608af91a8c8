"""The gate's rules for a run, their measurements, where each broke, and the resulting verdict.

One computation for terminal, JSON, JUnit, Markdown, the page and exit codes. The rules come from the
manifest (`gate`), as settings and flags gave them; the rule against real calls always applies.

A broken rule gives the run a verdict: failed if the agent or the dream did wrong, error if too many episodes
are errors, inconclusive if too little is known. The worst of them, in that order, is the run's verdict; a run
without broken rules passed.

A name in the gate that matches nothing could be a typo whose rule never breaks. It is a warning, shown with
its rule, not an error: `delete_*` may be meant for a future tool.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from math import floor
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from dreamgym_kit.report.percent import format_some
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.read import read_section
from dreamgym_kit.settings.schema import GateSettings, declared
from dreamgym_kit.types import Executed, Verdict, format_executed

if TYPE_CHECKING:
    from dreamgym_kit.report.metrics import FindingGroup, RunMetrics

_MOST = 5  # maximum calls named in a sentence; JSON and the episodes have all


def executed_short(calls: Sequence[Executed]) -> str:
    """Summarize the calls in a sentence, the first few with arguments."""
    if len(calls) <= _MOST:
        return format_executed(calls)
    named = ", ".join(map(str, calls[:_MOST]))
    return f"{len(calls)} real calls executed: {named}, and {len(calls) - _MOST} more"


def executed_sentence(summary: "RunMetrics") -> str:
    """Return the sentence of a run; "" if no real call was executed."""
    return executed_short([call for _, call in summary.executed]) if summary.executed else ""


def executed_line(summary: "RunMetrics") -> str:
    """Return the first line of a command; "" if no real call was executed."""
    sentence = executed_sentence(summary)
    return f"FAILED  {sentence}" if sentence else ""


def what_to_do(summary: "RunMetrics") -> list[str]:
    """Return the user's next steps, one sentence each; empty if no real call was executed."""
    names = list(dict.fromkeys(call.tool for _, call in summary.executed))
    if not names:
        return []
    undo = f"Undo it on the real system: {', '.join(names[:_MOST])} ran there"
    more = "; other episodes ran at the same time and were stopped: look for their calls too"
    function = next((name for name in names if name.isidentifier()), "FUNCTION")
    name = f'[functions."MODULE:{function}"]'
    return [
        f"{undo}{more if summary.not_run else ''}.",
        f"Make it interceptable, then begin a new run: name the function in dreamgym.toml: {name}",
    ]


_CONTRADICTS, _DISAGREE, _DETECTOR_FAILED = "contradicting_answer", "judges_disagree", "detector_failed"
_CRITICAL = "critical"
REAL = "real_calls"  # the rule that always applies
EPISODES = "episodes"  # rule: all episodes ended
_PRECEDENCE = (Verdict.FAILED, Verdict.ERROR, Verdict.INCONCLUSIVE)
_MAX_PLACES = 9
_MAX_NAMED = 6
Places = tuple[tuple[str, int | None], ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the gate and its result."""

    key: str  # setting: "min_pass_rate", "forbid delete_*"
    passed: bool
    measured: str
    limit: str
    why: str = ""  # a sentence, if it broke
    at: Places = ()  # (episode, step) where it broke
    broken: Verdict = Verdict.FAILED  # the run's verdict, if it broke


def _rule(
    key: str,
    passed: bool,
    measured: str,
    limit: str,
    why: str = "",
    at: Places = (),
    broken: Verdict = Verdict.FAILED,
) -> Rule:
    """Build a rule; drops reason and places unless it broke."""
    return Rule(key, passed, measured, limit, "" if passed else why, () if passed else at, broken)


def gate_to_record(gate: GateSettings) -> dict[str, JsonValue]:
    """Return the settings in the form of a manifest."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(gate).items()}


def gate_from_record(record: JsonValue, *, judges: bool = True) -> GateSettings:
    """Read the settings from a manifest.

    A run of an earlier version stored only the given settings, under other names. Today's defaults do not
    apply to it, with one exception: if it judged an agent, a failed episode fails its run.

    Args:
        record: from `gate_to_record`, or from an earlier version.
        judges: whether the run judged an agent, that is, was a dream.

    Raises:
        UserError: a value is not valid.
    """
    record = record if isinstance(record, Mapping) else {}
    keys = declared(GateSettings)
    renamed = {key.was: name for name, key in keys.items()}
    entries: dict[str, Any] = {renamed.get(name, name): value for name, value in record.items()}
    if "max_errors" not in record:
        entries = {"min_pass_rate": 1.0 if judges else None, "max_inconclusive": None, **entries}
    hints = get_type_hints(GateSettings)
    unset = [name for name in keys if entries.get(name, 0) is None and NoneType in get_args(hints[name])]
    given = {name: entries[name] for name in keys if name in entries and name not in unset}
    gate = read_section(GateSettings, given, ("gate",), lambda *_: "the run's own gate (was it edited?)")
    nothing: dict[str, Any] = dict.fromkeys(unset)
    return replace(gate, **nothing)


def rules_of(summary: "RunMetrics", *, fail_on: Sequence[str] = ()) -> tuple[Rule, ...]:
    """Evaluate a run's rules, those that always apply first.

    Args:
        summary: the run.
        fail_on: kinds of findings that also fail the run.
    """
    gate = gate_from_record(summary.fact("gate"), judges=summary.fact("mode") in (None, "dream"))
    kinds = tuple(dict.fromkeys([*gate.fail_on, *fail_on]))
    return (
        *_real(summary),
        *_finished(summary),
        *_pass_rates(summary, gate),
        *_verdicts(summary, gate),
        *(_contradictions(summary, gate.max_contradictions) if gate.max_contradictions is not None else ()),
        *(_forbidden(summary, pattern) for pattern in gate.forbid),
        *(_most_calls(summary, pattern, most) for pattern, most in gate.max_calls_per_tool.items()),
        *(_kind(summary, kind) for kind in kinds),
        *(_detectors(summary) if kinds else ()),
        *_limits(summary, gate),
    )


def verdict_of(rules: Sequence[Rule]) -> Verdict:
    """Return a run's verdict from its rules."""
    broken = {rule.broken for rule in rules if not rule.passed}
    return next((verdict for verdict in _PRECEDENCE if verdict in broken), Verdict.PASSED)


def _real(summary: "RunMetrics") -> Iterator[Rule]:
    """Require no real call in a dream, and no executed or blocked call in any run."""
    strays = summary.fact("strays")
    blocked = len(summary.violations) + (len(strays) if isinstance(strays, list) else 0)
    ran = len(summary.executed)
    passed = ran == 0 and blocked == 0
    if summary.recorded and passed:
        return
    reasons = [executed_sentence(summary)] if ran else []
    reasons += [f"{blocked} real call{'s'[: blocked != 1]} blocked"] if blocked else []
    places = tuple((episode, None) for episode, _ in (*summary.executed, *summary.violations))
    yield Rule(REAL, passed, f"{ran} executed, {blocked} blocked", "none allowed", ", ".join(reasons), places)


def _finished(summary: "RunMetrics") -> Iterator[Rule]:
    """Require that all episodes ended: the result of the others is unknown."""
    left = summary.not_run
    if left > 0 or not summary.episodes:
        why = f"{left} episode{'s'[: left != 1]} not run: {summary.fact('stopped') or 'the run was stopped'}"
        why = why if left > 0 else "no episode was run"
        yield Rule(EPISODES, False, f"{left} not run", "all must end", why, (), Verdict.INCONCLUSIVE)


def _pass_rates(summary: "RunMetrics", gate: GateSettings) -> Iterator[Rule]:
    low = summary.interval and summary.interval[0]
    failed = tuple(
        (line.id, line.anomaly_step) for line in summary.episodes if line.verdict is Verdict.FAILED
    )
    required = (
        ("min_pass_rate", "the pass rate", gate.min_pass_rate, summary.rate),
        ("min_pass_rate_low", "the lower bound of the pass rate", gate.min_pass_rate_low, low),
    )
    for key, label, least, measured in required:
        if least is None:
            continue
        limit, verdict = _percent(least), Verdict.FAILED if summary.not_run <= 0 else Verdict.INCONCLUSIVE
        if measured is None:
            text, why, verdict = "no conclusive episode", "no episode is conclusive", Verdict.INCONCLUSIVE
        else:
            down = key == "min_pass_rate_low"  # a bound is rounded down
            text = _percent(measured, least, down=down)
            why = f"{label} is {text}, required is {limit}"
        passed = measured is not None and measured >= least - 1e-12
        yield _rule(key, passed, text, f"required {limit}", why, failed, verdict)


def _verdicts(summary: "RunMetrics", gate: GateSettings) -> Iterator[Rule]:
    """Check the shares of inconclusive episodes and errors."""

    def having(verdict: Verdict) -> Places:
        return tuple((line.id, None) for line in summary.episodes if line.verdict is verdict)

    total = len(summary.episodes)
    if gate.max_inconclusive is not None and total:
        most, count = gate.max_inconclusive, summary.inconclusive
        passed = count <= most * total + 1e-9
        measured = f"{_percent(count / total, most)} of episodes"
        why = f"{count} of {total} episodes {'is' if count == 1 else 'are'} inconclusive"
        limit, at = f"at most {_percent(most)} allowed", having(Verdict.INCONCLUSIVE)
        yield _rule("max_inconclusive", passed, measured, limit, why, at, Verdict.INCONCLUSIVE)
    most, count = gate.max_errors, summary.errors
    shares = 0 < most < 1
    passed = count <= (most * total if shares else most) + 1e-9
    limit = f"at most {_percent(most) if shares else f'{most:g}'} allowed"
    why = f"{count} of {total} episodes ended with an error"
    verdict = Verdict.INCONCLUSIVE if summary.not_run else Verdict.ERROR  # a resume repeats them
    measured = f"{count} of {total} episodes"
    yield _rule("max_errors", passed, measured, limit, why, having(Verdict.ERROR), verdict)


def _contradictions(summary: "RunMetrics", most: int) -> Iterator[Rule]:
    answers = sum(group.count for group in summary.findings if group.kind == _CONTRADICTS)
    judges = summary.counts.get(_DISAGREE, 0)
    why = f"{answers} answers contradict the call log, and the judges disagree {judges} times"
    at = _places(summary, lambda group: group.kind == _CONTRADICTS)
    limit, count = f"at most {most} allowed", answers + judges
    yield _rule("max_contradictions", count <= most, str(count), limit, why, at)


def _forbidden(summary: "RunMetrics", pattern: str) -> Rule:
    used = [(line, tool) for line in summary.episodes for tool in line.uses if fnmatchcase(tool[0], pattern)]
    calls = sum(tool[1] for _, tool in used)
    named = format_some(sorted({tool[0] for _, tool in used}), _MAX_NAMED)
    why = f"the agent called {named} {_times(calls)}, which is forbidden"
    measured = f"{_format_calls(calls)}{_no_such(summary, pattern, 'tool') if not calls else ''}"
    places = tuple((line.id, tool[2]) for line, tool in used)
    return _rule(f"forbid {pattern}", not calls, measured, "none allowed", why, places)


def _no_such(summary: "RunMetrics", pattern: str, noun: str) -> str:
    """Return ", no such NOUN" for a pattern that matched nothing in the run."""
    unmatched = summary.fact("unmatched")
    return f", no such {noun}" if isinstance(unmatched, list) and pattern in unmatched else ""


def _most_calls(summary: "RunMetrics", pattern: str, most: int) -> Rule:
    counts: dict[str, int] = {}  # by episode
    over: list[tuple[str, int | None]] = []
    for line in summary.episodes:
        used = [(calls, step) for tool, calls, step in line.uses if fnmatchcase(tool, pattern)]
        counts[line.id] = sum(calls for calls, _ in used)
        if counts[line.id] > most:
            over.append((line.id, min(step for _, step in used)))
    highest = max(counts.values(), default=0)
    times = f"{_times(highest)} in one episode; more than {most} in {len(over)} episodes"
    unknown = _no_such(summary, pattern, "tool") if not highest else ""
    measured, limit = f"{_format_calls(highest)} in an episode{unknown}", f"at most {most} allowed"
    why = f"the agent called {pattern} {times}"
    return _rule(f"max_calls_per_tool {pattern}", not over, measured, limit, why, tuple(over))


def _kind(summary: "RunMetrics", kind: str) -> Rule:
    def meant(group: "FindingGroup") -> bool:
        return group.severity == _CRITICAL if kind == _CRITICAL else fnmatchcase(group.kind, kind)

    groups = [group for group in summary.findings if meant(group)]
    count = sum(group.count for group in groups)
    why = f"{groups[0].text}{f', and {count - 1} more' if count > 1 else ''}" if groups else ""
    measured = f"{count} finding{'s'[: count != 1]}{_no_such(summary, kind, 'kind') if not count else ''}"
    return Rule(f"fail_on {kind}", not count, measured, "none allowed", why, _places(summary, meant))


def _detectors(summary: "RunMetrics") -> Iterator[Rule]:
    """A failed detector breaks a gate with `fail_on`: its findings are unknown."""
    failed = [group for group in summary.findings if group.kind == _DETECTOR_FAILED]
    if failed:
        places = _places(summary, lambda group: group.kind == _DETECTOR_FAILED)
        count, why = sum(group.count for group in failed), failed[0].text
        yield Rule("detectors", False, f"{count} failed", "none may fail", why, places, Verdict.ERROR)


def _limits(summary: "RunMetrics", gate: GateSettings) -> Iterator[Rule]:
    if gate.max_usd is not None:
        measured, limit = _beside(gate.max_usd, summary.spent_usd, 2), _money(gate.max_usd)
        passed = summary.spent_usd <= gate.max_usd
        why = f"the run cost USD {measured}, the gate allows {limit}"
        yield _rule("max_usd", passed, f"USD {measured}", f"at most {limit} allowed", why)
    if gate.max_seconds is not None:
        measured, limit = _beside(gate.max_seconds, summary.elapsed_s, 0), f"{gate.max_seconds:g}"
        passed = summary.elapsed_s <= gate.max_seconds
        why = f"the run took {measured} s, the gate allows {limit}"
        yield _rule("max_seconds", passed, f"{measured} s", f"at most {limit} allowed", why)


def _places(summary: "RunMetrics", meant: Callable[["FindingGroup"], bool]) -> Places:
    chosen = [group for group in summary.findings if meant(group)]
    return tuple(place for group in chosen for place in group.at)


def _percent(share: float, limit: float | None = None, *, down: bool = False) -> str:
    """Format in whole percent, with more digits if rounding would hide a broken limit."""
    if limit is None or abs(share - limit) < 1e-12:
        return f"{round(share * 100, _MAX_PLACES):g}%"
    return f"{_beside(limit * 100, share * 100, 0, down=down)}%"


def _beside(limit: float, measured: float, places: int, *, down: bool = False) -> str:
    """Format a figure with enough digits to show on which side of a limit it is."""

    def rounded(to: int) -> float:
        return floor(round(measured * 10**to, _MAX_PLACES)) / 10**to if down else round(measured, to)

    while places < _MAX_PLACES and _side(rounded(places), limit) != _side(measured, limit):
        places += 1
    return f"{rounded(places):.{places}f}"


def _side(left: float, right: float) -> int:
    return (left > right) - (left < right)


def _money(limit: float) -> str:
    return f"{limit:.2f}" if round(limit, 2) == limit else f"{limit:g}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _format_calls(count: int) -> str:
    return f"{count} call{'s'[: count != 1]}"


def unmatched(gate: GateSettings, tools: Iterable[str], kinds: Iterable[str]) -> list[tuple[str, str]]:
    """Return the gate's patterns that match nothing, each with a sentence and a suggestion."""
    rules = dict.fromkeys(gate.forbid, "forbid")
    rules |= {name: "max_calls_per_tool" for name in gate.max_calls_per_tool if name not in rules}
    tools, kinds = list(tools), list(kinds)
    return [
        (pattern, f"gate: {rule} '{pattern}' matches no {noun}{_near(pattern, names)}")
        for rule, pattern, noun, names in (
            *((rule, pattern, "tool of this graph", tools) for pattern, rule in rules.items()),
            *(("fail_on", pattern, "kind of finding", kinds) for pattern in gate.fail_on),
        )
        if not any(fnmatchcase(name, pattern) for name in names)
    ]


def _near(pattern: str, names: list[str]) -> str:
    alike = {name.casefold(): name for name in names}
    near = get_close_matches(pattern.casefold(), list(alike), n=1)
    return f"; did you mean '{alike[near[0]]}'?" if near else ""
