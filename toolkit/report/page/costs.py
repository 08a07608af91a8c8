"""What a run took: totals, and how time, calls, tokens and money spread over its episodes."""

from collections.abc import Sequence
from statistics import quantiles

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.figures import Summary
from dreamgym_kit.report.page.gathering import Gathered
from dreamgym_kit.report.whole import duration, whole_percent

_BINS = 24


def costs(gathered: Gathered, summary: Summary) -> dict[str, JsonValue]:
    """Give `{"stats": [{"value", "label"}], "spread": [{"title", "bins", "median", "p95", "most"}]}`."""
    stats: list[JsonValue] = [
        {"value": duration(summary.elapsed_s), "label": "from the first start to the last end"},
        {"value": f"{summary.model_calls:,}", "label": "model calls of the agent"},
    ]
    if summary.tokens:
        stats.append({"value": f"{summary.tokens:,}", "label": "tokens of the agent"})
    if summary.cost_usd:
        stats.append({"value": f"USD {summary.cost_usd:.2f}", "label": "spent"})
    for part, spend in summary.dream_spend.items():
        stats.append(
            {"value": f"{spend.tokens:,}", "label": f"tokens of the dream: {part}, {spend.calls:,} answers"}
        )
        if spend.cached_share is not None:
            share = f"{whole_percent(spend.cached_share)} %"
            stats.append(
                {"value": share, "label": f"of the prompts of the {part} came from the prefix cache"}
            )
    lines = [gathered.lines[line.id] for line in summary.episodes]
    found = [
        spread("Time per episode", [line.seconds for line in lines], "s"),
        spread("Calls per episode", [len(line.path) for line in lines], ""),
        spread("Tokens per episode", [line.tokens for line in lines], ""),
        spread("Cost per episode", [line.usd for line in lines], "USD"),
    ]
    return {"stats": stats, "spread": [one for one in found if one]}


def spread(title: str, values: Sequence[float], unit: str) -> dict[str, JsonValue]:
    """Give a histogram from 0 to the largest value with its median and 95th percentile; empty for nothing."""
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
        "median": told(cuts[9], unit),
        "p95": told(cuts[18], unit),
        "most": told(most, unit),
    }


def told(value: float, unit: str) -> str:
    """A figure in words."""
    if unit == "s":
        return duration(value) if value >= 1 else f"{value * 1000:.0f} ms"
    if unit:
        return f"{unit} {value:.4f}" if value < 0.01 else f"{unit} {value:.2f}"
    return f"{value:,.0f}"
