"""The data of the page's first screens: the report, and what the page shows beside it.

Fields (the schema is higher once a later version changes or removes one):

    schema       3
    kind         "simulate" or "record"
    run          {"name", "title", "notes": [text]}
    report       report.json without its manifest; see `report.jsonform`
    verdict      {"word": in capitals, "counted": episodes of each verdict, in words,
                 "facts": [[label, text]],
                 "rules": [{"key", "passed", "verdict", "measured", "limit", "why"}],
                 "next": [{"text", "ref": [episode, step or null] or "command" or neither}]}
    coverage     text
    executed     [[episode, call in words, how it was noticed]]; only if real calls were executed
    tools        more of each of the report's tools: {"dreamt", "grounded", "confidence"?: {"bins": [10 ints],
                 "median", "least"}, "sample"?: [{"episode", "step", "args", "changes"?, "findings"?,
                 "error"?}], of those that change data}
    tasks        [{"id", "text", "environment"}], worst first
    episodes     more of each line of the report's list: {"task": index, "path", "s", "bad"?: 1, "kinds"?:
                 [kind], "reward"?, "confidence"?, "usd"?}; path: "0r 2c!" is tool index, code of the
                 source, and ! for a critical finding
    faults       {"calls", "kinds": [{"kind", "calls", "tools": [[name, calls]]}]}; if any was planned
    cost         {"stats": [{"value", "label"}],
                 "spread": [{"title", "bins", "median", "p95", "most"}]}
    manifest     [[name, value]]
"""

from collections.abc import Sequence
from statistics import quantiles

from dreamgym_kit.report.gate_rules import what_to_do
from dreamgym_kit.report.headline import (
    answer_steps,
    causes,
    format_broken,
    format_counts,
    format_coverage,
    format_figures,
    headline,
    word,
)
from dreamgym_kit.report.metrics import EpisodeLine, RunMetrics, ToolUse
from dreamgym_kit.report.page.gathering import EpisodeExtras, PageData, ToolSamples, faults, without_none
from dreamgym_kit.report.percent import duration, format_count, whole_percent
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Verdict

_CAUSES = 6
_BINS = 24
_HOLDS = {
    "real_calls": "A dream answers each call that reads or changes data; nothing else tried to run.",
    "fail_on critical": "No finding that a person should look at first.",
}


def overview(
    gathered: PageData,
    summary: RunMetrics,
    *,
    place: str,
    notes: Sequence[str] = (),
) -> dict[str, JsonValue]:
    """Return the block; see the module docstring for its fields.

    Args:
        gathered: the run's episodes, gathered.
        summary: their summary.
        place: the run directory, for commands.
        notes: notes for the reader of this page.
    """
    tools = {tool.name: number for number, tool in enumerate(summary.tools)}
    tasks = {name: number for number, name in enumerate(summary.tasks)}
    report = summary.to_json()
    del report["manifest"]
    block = {
        "kind": "record" if summary.recorded else "simulate",
        "run": {
            "name": run_title(summary),
            "title": f"{headline(summary)}, {run_title(summary)}",
            "notes": list(notes),
        },
        "report": report,
        "verdict": _verdict(summary, place),
        "coverage": format_coverage(summary),
        "tools": [_tool(tool, gathered.uses[tool.name]) for tool in summary.tools],
        "tasks": [
            {"id": name, "text": gathered.tasks[name][0], "environment": str(gathered.tasks[name][1])}
            for name in tasks
        ],
        "episodes": [_episode(line, gathered.lines[line.id], tasks, tools) for line in summary.episodes],
        "cost": costs(gathered, summary),
        "manifest": summary.manifest,
        "executed": [[name, str(call), call.how] for name, call in summary.executed] or None,
        "faults": faults(gathered, summary) or None,
    }
    return without_none(block)


def run_title(summary: RunMetrics) -> str:
    """Return the run's title: its graph and ID."""
    words = [summary.fact("graph"), summary.fact("run")]
    return " ".join(word for word in words if isinstance(word, str) and word) or "run"


def _verdict(summary: RunMetrics, place: str) -> dict[str, JsonValue]:
    reasons = causes(summary)
    rate, *figures = format_figures(summary)
    broken = [["Gate", line.removeprefix("gate ")] for line in format_broken(summary.rules())]
    why: list[JsonValue] = [["Why", str(cause)] for cause in reasons[:_CAUSES]]
    if len(reasons) > _CAUSES:
        why.append(["Why", f"and {format_count(len(reasons) - _CAUSES, 'other reason')}"])
    return {
        "word": word(summary),
        "counted": format_counts(summary.by_verdict),
        "facts": [*broken, list(rate), *why, *(list(figure) for figure in figures)],
        "rules": rules_to_json(summary),
        "next": _next(summary, place),
    }


def _next(summary: RunMetrics, place: str) -> list[JsonValue]:
    """Return what to look at first, how to answer unanswered calls, and the terminal command."""
    steps: list[JsonValue] = [{"text": step} for step in what_to_do(summary)]
    worst = summary.worst
    if worst is not None:
        ref: list[JsonValue] = [worst.id, worst.anomaly_step]
        steps.append({"text": "Look first at", "ref": ref})
    steps += [{"text": step.text, "command": "\n".join(step.lines)} for step in answer_steps(summary)]
    return [*steps, {"text": "The same in the terminal:", "command": f"dreamgym-kit report {place} --list"}]


def _tool(tool: ToolUse, samples: ToolSamples) -> dict[str, JsonValue]:
    changing = tool.effect.changes_environment and tool.calls
    more = {
        "dreamt": tool.dreamt,
        "grounded": tool.grounded,
        "confidence": samples.confidence() or None,
        "sample": list(samples.trim()) if changing else None,
    }
    return without_none(more)


def _episode(
    line: EpisodeLine, more: EpisodeExtras, tasks: dict[str, int], tools: dict[str, int]
) -> dict[str, JsonValue]:
    usual = {Verdict.PASSED: 1.0, Verdict.FAILED: 0.0}.get(line.verdict)
    least = more.least_confidence
    entry = {
        "task": tasks[line.task],
        "path": " ".join(f"{tools[tool]}{code}{'!' * bad}" for tool, code, bad in more.path),
        "s": round(line.elapsed_s, 3),
        "bad": 1 if line.mark == "!" else None,
        "kinds": list(more.kinds) or None,
        "reward": more.reward if more.reward != usual else None,
        "confidence": None if least is None else round(least, 3),
        "usd": round(line.cost_usd, 6) if line.cost_usd else None,
    }
    return without_none(entry)


def costs(gathered: PageData, summary: RunMetrics) -> dict[str, JsonValue]:
    """Return `{"stats": [{"value", "label"}], "spread": [{"title", "bins", "median", "p95", "most"}]}`."""
    stats = [
        (duration(summary.elapsed_s), "from the first start to the last end"),
        (f"{summary.model_calls:,}", "model calls of the agent"),
    ]
    if summary.tokens:
        stats.append((f"{summary.tokens:,}", "tokens of the agent"))
    if summary.cost_usd:
        stats.append((f"USD {summary.cost_usd:.2f}", "spent"))
    for part, spend in summary.dream_spend.items():
        stats.append((f"{spend.tokens:,}", f"tokens of the dream: {part}, {spend.calls:,} answers"))
        if spend.cached_share is not None:
            share = f"{whole_percent(spend.cached_share)} %"
            stats.append((share, f"of the prompts of the {part} came from the prefix cache"))
    lines = summary.episodes
    charts = [
        spread("Time per episode", [line.elapsed_s for line in lines], "s"),
        spread("Calls per episode", [line.calls for line in lines], ""),
        spread("Tokens per episode", [gathered.lines[line.id].tokens for line in lines], ""),
        spread("Cost per episode", [line.cost_usd for line in lines], "USD"),
    ]
    return {
        "stats": [{"value": value, "label": label} for value, label in stats],
        "spread": [chart for chart in charts if chart],
    }


def spread(title: str, values: Sequence[float], unit: str) -> dict[str, JsonValue]:
    """Return a histogram from 0 to the maximum, with median and 95th percentile; empty for no values."""
    most = max(values, default=0)
    if not most:
        return {}
    whole = all(value == int(value) for value in values) and most < _BINS
    count = int(most) + 1 if whole else _BINS
    bins = [0] * count
    for value in values:
        bins[int(value) if whole else min(count - 1, int(value / most * count))] += 1
    cuts = quantiles(values, n=20, method="inclusive") if len(values) > 1 else [values[0]] * 19
    return {
        "title": title,
        "bins": list(bins),
        "median": _figure(cuts[9], unit),
        "p95": _figure(cuts[18], unit),
        "most": _figure(most, unit),
    }


def _figure(value: float, unit: str) -> str:
    """Format a figure."""
    if unit == "s":
        return duration(value) if value >= 1 else f"{value * 1000:.0f} ms"
    if unit:
        return f"{unit} {value:.4f}" if value < 0.01 else f"{unit} {value:.2f}"
    return f"{value:,.0f}"


def rules_to_json(summary: RunMetrics) -> list[dict[str, JsonValue]]:
    """Return the rules of `RunMetrics.rules` for the page; unset rules neither pass nor fail."""
    names = ("key", "passed", "verdict", "measured", "limit", "why")
    rules = summary.rules()
    rows: list[tuple[JsonValue, ...]] = []
    if summary.recorded:
        ran = f"{summary.real_calls} of {summary.calls} calls"
        why = "This run recorded, so its tools were real."
        rows.append(("real tools ran", None, None, ran, "none", why))
    for rule in rules:
        verdict = str(Verdict.PASSED if rule.passed else rule.broken)
        why = rule.why or _HOLDS.get(rule.key, "")
        rows.append((rule.key, rule.passed, verdict, rule.measured, rule.limit, why))
    if not any(rule.key.startswith("fail_on ") for rule in rules):
        why = "Only --fail-on, or fail_on under [gate], makes these fail a run."
        rows.append(("fail_on critical", None, None, f"{summary.critical:,} critical", "not set", why))
    return [dict(zip(names, row, strict=True)) for row in rows]
