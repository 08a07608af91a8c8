"""An S2R run on the terminal: progress, cost, and why it stopped."""

from collections.abc import Iterator, Mapping
from typing import Any

from dreamgym_kit.report.colors import PLAIN, Paint, screen
from dreamgym_kit.report.percent import format_interval
from dreamgym_kit.report.sanitize import one_line

MODE = "s2r"  # mode in the manifest


def render_s2r(report: Mapping[str, Any], *, stage: str, paint: Paint = PLAIN) -> str:
    """Format a run from its report, without next steps."""
    word, text = _stamp(report)
    color = {"DONE": paint.green, "GATE OPEN": paint.green}.get(word, paint.red)
    if word in ("NOT FINISHED", "BUDGET SPENT"):
        color = paint.yellow
    rows = ((label, one_line(value)) for label, value in _rows(report, stage))
    return screen(word, one_line(text), color, rows)


def _stamp(report: Mapping[str, Any]) -> tuple[str, str]:
    """Return a short status and its reason."""
    stopped, steps = report.get("stopped"), report.get("steps", 0)
    if not report.get("gate", {}).get("passed") and stopped is None:
        return "GATE SHUT", report.get("gate", {}).get("text", "")
    if stopped is None:
        if steps:
            return "DONE", f"{steps} steps were learned from real calls"
        return "GATE OPEN", "nothing was learned yet"
    if stopped["why"] in ("budget", "limit"):
        return "BUDGET SPENT", stopped["text"]
    return "STOPPED", stopped["text"]


def _rows(report: Mapping[str, Any], stage: str) -> Iterator[tuple[str, str]]:
    yield "stage", stage
    yield from _gate(report)
    yield "real calls", f"{report['real_calls']} of {report['budget']}{_tools(report['by_tool'])}"
    if report["compared"]:
        yield "compared", _compared(report["compared"])
    if report["withheld"]:
        yield "withheld", f"{report['withheld']} writes of episodes in doubt did not run"
    yield "learned", f"{report['steps']} steps"
    yield "audit", f"head {report['audit']['head']}; keep it elsewhere, it is what s2r verify --head asks for"


def _gate(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    dream, canaries = report.get("dream"), report.get("canaries")
    if dream is not None:
        success = f"{dream['success']:.0%} ({format_interval(dream['low'], dream['high'])} %) in the dream"
        judged = f"{dream['decided']} of {dream['episodes']} episodes judged"
        yield "gate", f"{success}, {judged}, {dream['coverage']:.1%} of {dream['calls']} calls answered"
    if canaries is not None:
        judged = f"{canaries['success']} of {canaries['decided']} judged ones succeeded"
        yield "canaries", f"{judged}, {canaries['episodes']} tried in shadow"


def _tools(by_tool: Mapping[str, int]) -> str:
    text = ", ".join(f"{tool} {count}" for tool, count in sorted(by_tool.items(), key=lambda row: -row[1]))
    return f": {text}" if text else ""


def _compared(compared: Mapping[str, Mapping[str, Any]]) -> str:
    made = sum(counts["compared"] for counts in compared.values())
    different = {tool: counts["different"] for tool, counts in compared.items() if counts["different"]}
    text = ", ".join(f"{tool} {count}" for tool, count in sorted(different.items(), key=lambda row: -row[1]))
    return (
        f"{made} answers, each state once; {f'otherwise than dreamed: {text}' if text else 'all as dreamed'}"
    )
