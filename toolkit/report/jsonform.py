"""The JSON form of a summary, for `--json` and `report.json`.

Fields (schema 2; a later version adds fields and keeps these):

    schema       2
    manifest     the run's manifest as it was written; "servers" in it, if vLLM served: [{"server",
                 "prompt_tokens", "generated_tokens", "cached_share": 0..1 or null, "most_running",
                 "most_waiting": requests}], from their /metrics during the run, for all clients; "spent":
                 {"calls", "usd", "seconds"} of all parts, including repeated episodes;
                 "unaccounted": [{"episode", "tool", "calls"}], real writes outside of finished episodes
    verdict      "passed", "failed", "inconclusive" or "error"; the run's
    exit_code    of the command
    headline     the verdict with the counts of all episodes, in words
    gate         [{"key", "passed": bool, "verdict": the run's if it broke, else null, "measured", "limit",
                  "why": text, "at": [{"episode", "step"}]}]
    counts       {"passed", "failed", "inconclusive", "errors": int}; of all episodes
    imagined     {"episodes": int that rest on imagined answers, "would_pass", "would_fail": int of the
                  inconclusive ones, if these counted}
    pass_rate    {"value", "low", "high": mean over tasks of the passed share of conclusive episodes with its
                  95 % interval by task, "all_low", "all_high": that mean if all others failed, or passed};
                  0..1, or null if no episode is conclusive
    calls        {"total", "real", "executed", "unanswered": int}; real = real runs of tools that must not run
                 in a dream, executed = those of them where none may run
    would_have   [tool] of effect write or destructive, destructive first
    tools        [{"name", "effect", "calls", "episodes", "errors", "repeated", "wrong": int,
                   "sources": {source: answers}}]
    coverage     {"share": 0..1 of calls answered from recordings or rules, or null, "presumed": int,
                  "weakest": tool or null, "sources": {source: answers}}
    fidelity     {"exact": 0..1 of held-out recordings reproduced exactly, or null, "curve": [{"confidence",
                  "answered", "exact": 0..1}]}; [] without inferred rules
    findings     [{"kind", "severity", "tool", "text", "count", "at": [{"episode", "step"}]}], worst first
    unanswered   [{"tool", "why": text, "calls": int, "tasks": [id], "ignore": [argument]: with these in
                 [match] recordings would answer, [] if they may matter; "args": of the first call, "crawls":
                 {"environment:variant": calls that its crawl answers}}], the most frequent first
    executed     [{"episode", "tool", "args": {name: value}, "how": text}]: real calls that ran; exit code 6
    violations   [{"episode", "text"}]: real calls that were blocked
    sandbox      {"kind": "namespaces", "landlock", "external" or "none", "why": text, not stronger} of
                 a dream, else null
    reached      {"name:port": episodes}: reached allowed hosts, except those of models
    noted        {name: int}, such as bad_arguments, unknown_tool
    faults       {"calls", "passed", "failed", "inconclusive", "error": int}: calls with an injected fault,
                  and the episodes with one, by verdict
    judges       {"agree", "disagree": int}: the LLM judge and the checker
    cost         {"model_calls", "tokens": int (of the agent), "usd" (of all), "seconds": float,
                  "dream": {part: {"calls", "prompt_tokens", "completion_tokens", "cached_tokens": int,
                  "cached_share": 0..1 or null if no server states it, "usd": float}}},
                  part = experience, judge or user
    list         [{"id", "task", "repeat", "verdict", "reason", "stop", "calls", "anomaly", "step",
                   "faults": int, "traceback": [text]}]
"""

from collections.abc import Iterable

from dreamgym_kit.codec import Codec
from dreamgym_kit.report.headline import fidelity_point, headline
from dreamgym_kit.report.metrics import SUMMARY_SCHEMA, RunMetrics, ToolUse, Unanswered
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import REACHED, Spend, Verdict

_PASS_RATE = {"value": "mean", "low": "low", "high": "high", "all_low": "worst", "all_high": "best"}
_TOOLS, _UNANSWERED = Codec(ToolUse), Codec(Unanswered)


def summary_to_json(summary: RunMetrics) -> dict[str, JsonValue]:
    """Return a summary as the JSON object of the module docstring."""
    fidelity = fidelity_point(summary)
    return {
        "schema": SUMMARY_SCHEMA,
        "manifest": dict(summary.manifest),
        **verdict_to_json(summary),
        "calls": {
            "total": summary.calls,
            "real": summary.real_calls,
            "executed": len(summary.executed),
            "unanswered": summary.abstentions,
        },
        "would_have": [tool.name for tool in summary.tools if tool.effect.changes_environment],
        "tools": [_TOOLS.write(tool) for tool in summary.tools],
        "coverage": {
            "share": summary.grounded,
            "presumed": summary.presumed,
            "weakest": summary.weakest.name if summary.weakest is not None else None,
            "sources": summary.sources,
        },
        "fidelity": {
            "exact": None if fidelity is None else _rounded(fidelity.answered * (fidelity.exact or 0.0)),
            "curve": [
                {
                    "confidence": point.threshold,
                    "answered": round(point.answered, 4),
                    "exact": _rounded(point.exact),
                }
                for point in summary.curve
            ],
        },
        "findings": [
            _picked(group, "kind", "severity", "tool", "text", "count") | {"at": _places(group.at)}
            for group in summary.findings
        ],
        "unanswered": [_UNANSWERED.write(row) for row in summary.unanswered],
        "executed": [
            {"episode": episode, "tool": call.tool, "args": dict(call.args), "how": call.how}
            for episode, call in summary.executed
        ],
        "violations": [{"episode": episode, "text": text} for episode, text in summary.violations],
        "sandbox": summary.fact("sandbox"),
        "reached": summary.reached,
        "noted": {
            name: count
            for name, count in summary.counts.items()
            if name.removeprefix(REACHED) not in summary.reached
        },
        "faults": {"calls": summary.faults, **{str(member): summary.faulted(member) for member in Verdict}},
        "judges": dict(zip(("agree", "disagree"), summary.judges, strict=True)),
        "cost": {
            "model_calls": summary.model_calls,
            "tokens": summary.tokens,
            "usd": summary.cost_usd,
            "seconds": summary.elapsed_s,
            "dream": {part: _spend(spend) for part, spend in summary.dream_spend.items()},
        },
        "list": [
            _picked(line, "id", "task", "repeat")
            | {"verdict": str(line.verdict)}
            | _picked(line, "reason", "stop", "calls", "anomaly")
            | {"step": line.anomaly_step, "faults": line.faults, "traceback": list(line.traceback)}
            | {"blame": None if line.blame is None else str(line.blame)}
            for line in summary.episodes
        ],
    }


def verdict_to_json(summary: RunMetrics) -> dict[str, JsonValue]:
    """Return a run's verdict, exit code, headline, gate, counts and pass rate."""
    once = summary.once
    return {
        "verdict": str(summary.verdict),
        "exit_code": summary.exit_code,
        "headline": headline(summary),
        "gate": [
            _picked(rule, "key", "passed")
            | {"verdict": None if rule.passed else str(rule.broken)}
            | _picked(rule, "measured", "limit", "why")
            | {"at": _places(rule.at)}
            for rule in summary.rules()
        ],
        "counts": _picked(summary, "passed", "failed", "inconclusive", "errors"),
        "imagined": {
            "episodes": summary.imagined,
            "would_pass": summary.would(Verdict.PASSED),
            "would_fail": summary.would(Verdict.FAILED),
        },
        "pass_rate": {name: once and getattr(once, field) for name, field in _PASS_RATE.items()},
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _spend(spend: Spend) -> dict[str, JsonValue]:
    counts = _picked(spend, "calls", "prompt_tokens", "completion_tokens", "cached_tokens")
    return counts | {"cached_share": _rounded(spend.cached_share), "usd": spend.cost_usd}


def _picked(record: object, *names: str) -> dict[str, JsonValue]:
    return {name: getattr(record, name) for name in names}


def _places(places: Iterable[tuple[str, int | None]]) -> list[JsonValue]:
    return [{"episode": episode, "step": step} for episode, step in places]
