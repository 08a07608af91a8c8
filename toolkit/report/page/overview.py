"""The data of the page's first screens, with all judgments made.

Fields (schema 2; a later version adds fields and keeps these):

    schema       2
    kind         "simulate" or "record"
    run          {"name", "title", "notes": [text]}
    verdict      {"verdict": the run's, "word": in capitals, "counted": episodes of each verdict, in words,
                 "rate", "low", "high": 0..1 or null, "counts": {verdict: episodes},
                 "facts": [[label, text]],
                 "rules": [{"key", "passed", "verdict", "measured", "limit", "why"}],
                 "next": [{"text", "ref": [episode, step or null] or "command" or neither}]}
    findings     [{"kind", "title", "text", "critical", "tool"?, "count",
                 "at": [[episode index, step or null]]}], worst first
    executed     [[episode index, call in words, how it was noticed]]; only if real calls were executed
    violations   [[episode index, text]]
    effects      [{"tool", "effect", "calls", "episodes", "wrong", "sample": [{"episode": index, "step",
                 "args", "changes"?, "findings"?, "error"?}]}], destructive first
    tools        [{"name", "effect", "calls", "episodes", "errors", "dreamt", "grounded",
                 "sources": {code: n}, "confidence"?: {"bins": [10 ints], "median", "least"}}]
    trust        {"text", "order": [tool index, weakest first], "sources": {code: n},
                 "curve"?: [[threshold, answered, exact or null]], of rule answers on held-out recordings}
    tasks        [{"id", "text", "environment"}], worst first
    episodes     [{"id", "task": index, "verdict", "reason", "path", "s", "bad"?: 1, "kinds"?: [kind],
                 "stop"?, "reward"?, "confidence"?, "usd"?}]; path: "0r 2c!" is tool index, code of the
                 source, and ! for a critical finding
    faults       if any was planned; see `gathering.faults`
    cost         {"stats": [{"value", "label"}],
                 "spread": [{"title", "bins", "median", "p95", "most"}]}
    manifest     [[name, value]]
"""

from collections.abc import Mapping, Sequence
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
from dreamgym_kit.report.metrics import CRITICAL, EpisodeLine, FindingGroup, RunMetrics
from dreamgym_kit.report.page.gathering import CODES, EpisodeExtras, PageData, faults
from dreamgym_kit.report.page.steps import without_none
from dreamgym_kit.report.percent import duration, format_count, whole_percent
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Source, Verdict

_PLACES = 200  # places listed per kind of finding; the filter finds all
_REASON = 300
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
    order = {line.id: number for number, line in enumerate(summary.episodes)}
    tasks = {name: number for number, name in enumerate(summary.tasks)}
    block = {
        "kind": "record" if summary.recorded else "simulate",
        "run": {
            "name": run_title(summary),
            "title": f"{headline(summary)}, {run_title(summary)}",
            "notes": list(notes),
        },
        "verdict": _verdict(summary, place),
        "findings": [_finding(group, order) for group in summary.findings],
        "violations": [[order[episode], text] for episode, text in summary.violations],
        "effects": _effects(gathered, summary, order),
        "tools": _tools(gathered, summary),
        "trust": _trust(summary),
        "tasks": [
            {"id": name, "text": gathered.tasks[name][0], "environment": str(gathered.tasks[name][1])}
            for name in tasks
        ],
        "episodes": [_episode(line, gathered.lines[line.id], tasks, tools) for line in summary.episodes],
        "cost": costs(gathered, summary),
        "manifest": summary.manifest,
        "executed": [[order[name], str(call), call.how] for name, call in summary.executed] or None,
        "faults": faults(gathered, summary, tools) or None,
    }
    return without_none(block)


def run_title(summary: RunMetrics) -> str:
    """Return the run's title: its graph and ID."""
    words = [summary.fact("graph"), summary.fact("run")]
    return " ".join(word for word in words if isinstance(word, str) and word) or "run"


def _verdict(summary: RunMetrics, place: str) -> dict[str, JsonValue]:
    low, high = summary.interval or (None, None)
    reasons = causes(summary)
    rate, *figures = format_figures(summary)
    broken = [["Gate", line.removeprefix("gate ")] for line in format_broken(summary.rules())]
    why: list[JsonValue] = [["Why", str(cause)] for cause in reasons[:_CAUSES]]
    if len(reasons) > _CAUSES:
        why.append(["Why", f"and {format_count(len(reasons) - _CAUSES, 'other reason')}"])
    return {
        "verdict": str(summary.verdict),
        "word": word(summary),
        "counted": format_counts(summary.by_verdict),
        "rate": summary.rate,
        "low": low,
        "high": high,
        "counts": {str(verdict): count for verdict, count in summary.by_verdict.items()},
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


def _finding(group: FindingGroup, order: dict[str, int]) -> dict[str, JsonValue]:
    title = group.kind.replace("_", " ")
    entry = {
        "kind": group.kind,
        "title": f"{title[:1].upper()}{title[1:]}",
        "text": group.text,
        "critical": group.severity == CRITICAL,
        "count": group.count,
        "at": [[order[episode], step] for episode, step in group.at[:_PLACES]],
        "tool": group.tool,
    }
    return without_none(entry)


def _effects(gathered: PageData, summary: RunMetrics, order: dict[str, int]) -> list[JsonValue]:
    return [
        {
            "tool": tool.name,
            "effect": str(tool.effect),
            "calls": tool.calls,
            "episodes": tool.episodes,
            "wrong": tool.wrong,
            "sample": [
                call | {"episode": order[call["episode"]]} for call in gathered.uses[tool.name].trim()
            ],
        }
        for tool in summary.tools
        if tool.effect.changes_environment and tool.calls
    ]


def _tools(gathered: PageData, summary: RunMetrics) -> list[JsonValue]:
    return [
        without_none(
            {
                "name": tool.name,
                "effect": str(tool.effect),
                "calls": tool.calls,
                "episodes": tool.episodes,
                "errors": tool.errors,
                "dreamt": tool.dreamt,
                "grounded": tool.grounded,
                "sources": _by_code(tool.sources),
                "confidence": gathered.uses[tool.name].confidence() or None,
            }
        )
        for tool in summary.tools
    ]


def _by_code(sources: Mapping[str, int]) -> dict[str, JsonValue]:
    return {CODES[Source(source)]: count for source, count in sources.items()}


def _trust(summary: RunMetrics) -> dict[str, JsonValue]:
    """Return tools with dreamed answers, the least grounded first."""

    def weakness(number: int) -> tuple[float, int, str]:
        tool = summary.tools[number]
        return tool.grounded / tool.dreamt, -tool.calls, tool.name

    dreamt = [number for number, tool in enumerate(summary.tools) if tool.dreamt]
    curve = [
        [point.threshold, round(point.answered, 4), None if point.exact is None else round(point.exact, 4)]
        for point in summary.curve
    ]
    entry = {
        "text": format_coverage(summary),
        "order": sorted(dreamt, key=weakness),
        "sources": _by_code(summary.sources),
        "curve": curve or None,
    }
    return without_none(entry)


def _episode(
    line: EpisodeLine, more: EpisodeExtras, tasks: dict[str, int], tools: dict[str, int]
) -> dict[str, JsonValue]:
    usual = {Verdict.PASSED: 1.0, Verdict.FAILED: 0.0}.get(line.verdict)
    least = more.least_confidence
    entry = {
        "id": line.id,
        "task": tasks[line.task],
        "verdict": str(line.verdict),
        "reason": line.reason[:_REASON],
        "path": " ".join(f"{tools[tool]}{code}{'!' * bad}" for tool, code, bad in more.path),
        "s": round(line.elapsed_s, 3),
        "bad": 1 if line.mark == "!" else None,
        "kinds": list(more.kinds) or None,
        "stop": line.stop if line.stop != "finished" else None,
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
