"""Planned faults: what was made to fail, and how the agent came through it."""

from collections import Counter

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.figures import Summary
from dreamgym_kit.report.page.gathering import Gathered
from dreamgym_kit.vocabulary import Verdict


def faults(gathered: Gathered, summary: Summary, tools: dict[str, int]) -> dict[str, JsonValue]:
    """Give `{"calls", "kinds": [{"kind", "calls", "tools"}], "split": [...]}`; empty where none is."""
    if not gathered.faults and not summary.fact("faults"):
        return {}
    by_kind: dict[str, list[tuple[int, int]]] = {}
    for (kind, tool), calls in sorted(gathered.faults.items()):
        by_kind.setdefault(kind, []).append((tools[tool], calls))
    return {
        "calls": gathered.faults.total(),
        "kinds": [
            {
                "kind": kind,
                "calls": sum(calls for _, calls in places),
                "tools": [[tool, calls] for tool, calls in sorted(places, key=lambda one: -one[1])],
            }
            for kind, places in by_kind.items()
        ],
        "split": _split(gathered, summary),
    }


def _split(gathered: Gathered, summary: Summary) -> list[JsonValue]:
    """Verdicts of the episodes that met a fault, beside those of the others."""
    counts = {True: Counter[str](), False: Counter[str]()}
    for line in summary.episodes:
        counts[gathered.lines[line.id].faulted][str(line.verdict)] += 1
    names = {True: "with a fault", False: "without"}
    return [
        {"name": names[faulted], "episodes": count.total(), **{str(said): count[said] for said in Verdict}}
        for faulted, count in counts.items()
        if count
    ]
