"""The gate's rules over a run: what is asked for, what was measured, and where it broke.

One computation for terminal, JSON, JUnit, Markdown, the page and exit codes. The rules asked for are in the
summary's manifest (`gate`), as settings and flags gave them; that nothing real ran is asked for always.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from dreamgym_kit.errors import UserError
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.executed import executed_of
from dreamgym_kit.settings.model import GateSettings

if TYPE_CHECKING:
    from dreamgym_kit.report.figures import EpisodeLine, FindingGroup, Summary

_CONTRADICTS, _DISAGREE, _DETECTOR_FAILED = "contradicting_answer", "judges_disagree", "detector_failed"
_CRITICAL = "critical"
REAL = "nothing real"  # the rule that always holds
_MOST_PLACES = 9
_MOST_NAMED = 6
Places = tuple[tuple[str, int | None], ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the gate and what became of it."""

    rule: str  # its name: "success", "forbid delete_*"
    passed: bool
    measured: str
    limit: str
    why: str = ""  # a sentence, where it failed
    at: Places = ()  # (episode, step) where it broke


def gate_to_record(gate: GateSettings) -> dict[str, JsonValue]:
    """Give the settings as a manifest keeps them: only what is asked for."""
    said = {name: value for name, value in asdict(gate).items() if value not in (None, (), {})}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in said.items()}


def gate_of(record: JsonValue) -> GateSettings:
    """Read the settings back; what is missing asks for nothing."""
    if not isinstance(record, Mapping):
        return GateSettings()
    known = {field.name for field in fields(GateSettings)}
    said: dict[str, Any] = {name: value for name, value in record.items() if name in known}
    values: dict[str, Any] = {
        name: tuple(one) if isinstance(one, list) else one for name, one in said.items()
    }
    for name, value in values.items():
        if not _fits(name, value):
            raise UserError(f"the run's own gate: gate.{name} cannot be {str(value)[:60]!a}; was it edited?")
    return GateSettings(**values)


def _fits(name: str, value: object) -> bool:
    if name in ("forbid", "findings"):
        return isinstance(value, tuple) and all(isinstance(one, str) for one in value)
    if name == "max":
        return isinstance(value, Mapping) and all(isinstance(most, int) for most in value.values())
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def rules_of(summary: "Summary", *, fail_on_findings: bool = False) -> tuple[Rule, ...]:
    """Judge a run by its rules, those that always hold first."""
    gate = gate_of(summary.fact("gate"))
    asked = bool(gate_to_record(gate))
    kinds = gate.findings + ((_CRITICAL,) if fail_on_findings and _CRITICAL not in gate.findings else ())
    return (
        *_real(summary),
        *(_finished(summary) if asked else ()),
        *_shares(summary, gate),
        *(_contradictions(summary, gate.contradictions) if gate.contradictions is not None else ()),
        *(_forbidden(summary, pattern) for pattern in gate.forbid),
        *(_most_calls(summary, pattern, most) for pattern, most in gate.max.items()),
        *(_kind(summary, kind) for kind in kinds),
        *(_detectors(summary) if kinds else ()),
        *_limits(summary, gate),
    )


def _real(summary: "Summary") -> Iterator[Rule]:
    """In a dream nothing real ran; and in any run nothing went past the gate, or tried to."""
    strays = summary.fact("strays")
    refused = len(summary.violations) + (len(strays) if isinstance(strays, list) else 0)
    ran = len(summary.executed)
    passed = ran == 0 and refused == 0
    if summary.recorded and passed:
        return
    told = [executed_of(summary)] if ran else [f"{ran} real calls ran"]
    told += [f"{refused} were refused"] if refused or not ran else []
    why = "" if passed else ", ".join(told)
    places = tuple((episode, None) for episode, _ in (*summary.executed, *summary.violations))
    yield Rule(REAL, passed, f"{ran} ran, {refused} refused", "0", why, places)


def _finished(summary: "Summary") -> Iterator[Rule]:
    left = summary.not_run
    if left > 0:
        why = f"{left} episodes were not run: {summary.fact('stopped') or 'the run was stopped'}"
        yield Rule("all episodes", False, f"{left} not run", "0 not run", why)


def _shares(summary: "Summary", gate: GateSettings) -> Iterator[Rule]:
    rate, interval, total = summary.rate, summary.interval, len(summary.episodes)
    broken = tuple((line.id, line.anomaly_step) for line in summary.episodes if line.verdict == "failure")
    wanted = (("success", gate.success, rate), ("success_low", gate.success_low, interval and interval[0]))
    for name, least, measured in wanted:
        if least is None:
            continue
        passed = measured is not None and measured >= least
        told = "nothing decided" if measured is None else _percent(measured, least)
        what = "success" if name == "success" else "the lower bound of success"
        why = "" if passed else f"{what} is {told}, the gate asks for {_percent(least)}"
        why = "no episode was decided, so success is not known" if measured is None else why
        yield Rule(name, passed, told, f"at least {_percent(least)}", why, () if passed else broken)
    if gate.undetermined is not None:
        share = summary.undetermined / total if total else 1.0
        passed = share <= gate.undetermined
        limit = f"at most {_percent(gate.undetermined)}"
        measured_share = _percent(share, gate.undetermined)
        told = f"{summary.undetermined} of {total} episodes are undetermined ({measured_share})"
        at = tuple((line.id, None) for line in summary.episodes if line.verdict == "undetermined")
        at = () if passed else at
        yield Rule("undetermined", passed, measured_share, limit, told * (not passed), at)


def _contradictions(summary: "Summary", most: int) -> Iterator[Rule]:
    answers = sum(group.count for group in summary.findings if group.kind == _CONTRADICTS)
    judges = summary.counts.get(_DISAGREE, 0)
    passed = answers + judges <= most
    told = f"{answers} answers contradict the ledger, and the judges disagree {judges} times"
    at = _places(summary, lambda group: group.kind == _CONTRADICTS) if not passed else ()
    yield Rule("contradictions", passed, str(answers + judges), f"at most {most}", told * (not passed), at)


def _forbidden(summary: "Summary", pattern: str) -> Rule:
    used = [(line, tool) for line in summary.episodes for tool in line.uses if fnmatchcase(tool[0], pattern)]
    calls = sum(tool[1] for _, tool in used)
    names = _some(sorted({tool[0] for _, tool in used}))
    why = f"the agent called {names} {_times(calls)}, which is forbidden" if calls else ""
    places = tuple((line.id, tool[2]) for line, tool in used)
    measured = f"{calls} calls{_no_such(summary, pattern, 'tool') if not calls else ''}"
    return Rule(f"forbid {pattern}", not calls, measured, "0 calls", why, places)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _no_such(summary: "Summary", pattern: str, what: str) -> str:
    """Says of a name that fits nothing that it does; the end of the run noted which do."""
    unmatched = summary.fact("unmatched")
    return f", no such {what}" if isinstance(unmatched, list) and pattern in unmatched else ""


def _most_calls(summary: "Summary", pattern: str, most: int) -> Rule:
    counts = {line: _calls(line, pattern) for line in summary.episodes}
    over = tuple((line.id, _first(line, pattern)) for line, calls in counts.items() if calls > most)
    highest = max(counts.values(), default=0)
    times = f"{_times(highest)} in one episode; more than {most} in {len(over)} episodes"
    told = f"the agent called {pattern} {times}"
    measured = f"{highest} in an episode{_no_such(summary, pattern, 'tool') if not highest else ''}"
    limit = f"at most {most}"
    return Rule(f"max {pattern}", not over, measured, limit, told if over else "", over)


def _calls(line: "EpisodeLine", pattern: str) -> int:
    return sum(calls for tool, calls, _ in line.uses if fnmatchcase(tool, pattern))


def _first(line: "EpisodeLine", pattern: str) -> int:
    return min(step for tool, _, step in line.uses if fnmatchcase(tool, pattern))


def _kind(summary: "Summary", kind: str) -> Rule:
    def meant(group: "FindingGroup") -> bool:
        return group.severity == _CRITICAL if kind == _CRITICAL else fnmatchcase(group.kind, kind)

    groups = [group for group in summary.findings if meant(group)]
    count = sum(group.count for group in groups)
    why = f"{groups[0].text}{f', and {count - 1} more' if count > 1 else ''}" if groups else ""
    measured = f"{count}{_no_such(summary, kind, 'kind') if not count else ''}"
    return Rule(f"findings {kind}", not count, measured, "0", why, _places(summary, meant))


def _detectors(summary: "Summary") -> Iterator[Rule]:
    """What a failed detector would have found nobody knows, so it passes no gate that asks for findings."""
    failed = [group for group in summary.findings if group.kind == _DETECTOR_FAILED]
    if failed:
        places = _places(summary, lambda group: group.kind == _DETECTOR_FAILED)
        count = sum(group.count for group in failed)
        yield Rule("detectors", False, f"{count} failed", "0 failed", failed[0].text, places)


def _limits(summary: "Summary", gate: GateSettings) -> Iterator[Rule]:
    if gate.usd is not None:
        passed = summary.cost_usd <= gate.usd
        measured, limit = _beside(gate.usd, summary.cost_usd, 2), _money(gate.usd)
        why = "" if passed else f"the run cost USD {measured}, the gate allows {limit}"
        yield Rule("usd", passed, measured, f"at most {limit}", why)
    if gate.seconds is not None:
        passed = summary.elapsed_s <= gate.seconds
        measured = _beside(gate.seconds, summary.elapsed_s, 0)
        why = "" if passed else f"the run took {measured} s, the gate allows {gate.seconds:g}"
        yield Rule("seconds", passed, measured, f"at most {gate.seconds:g}", why)


def _places(summary: "Summary", meant: Callable[["FindingGroup"], bool]) -> Places:
    chosen = [group for group in summary.findings if meant(group)]
    return tuple(place for group in chosen for place in group.at)


def _percent(share: float, limit: float | None = None) -> str:
    """To one place where that matters, and never rounded onto a limit that it misses."""
    whole = abs(share * 100 - round(share * 100)) < 1e-9
    if whole or limit is None or abs(share - limit) < 1e-12:
        return f"{share * 100:.0f} %" if whole else f"{share * 100:.1f} %"
    return f"{_beside(limit * 100, share * 100, 1)} %"


def _beside(limit: float, measured: float, places: int) -> str:
    """A figure with as many more places as it takes to stand on its own side of a limit."""
    while places < _MOST_PLACES and _side(round(measured, places), limit) != _side(measured, limit):
        places += 1
    return f"{measured:.{places}f}"


def _side(one: float, other: float) -> int:
    return (one > other) - (one < other)


def _money(limit: float) -> str:
    return f"{limit:.2f}" if round(limit, 2) == limit else f"{limit:g}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
