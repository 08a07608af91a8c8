"""The gate's rules as the page lists them: those that passed too, and what nobody asked it to look at."""

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.figures import Summary
from dreamgym_kit.report.gating import Rule
from dreamgym_kit.vocabulary import Verdict

_HOLDS = {
    "real_calls": "A dream answers each call that reads or changes the world; nothing else tried to run.",
    "fail_on critical": "No finding that a person should look at first.",
}


def rules_told(summary: Summary) -> list[JsonValue]:
    """Give every rule of `Summary.rules` as the page holds it; one not asked for passes neither nor fails."""
    rules = summary.rules()
    told: list[JsonValue] = [_told(rule) for rule in rules]
    if summary.recorded:
        ran = f"{summary.real_calls} of {summary.calls} calls"
        told.insert(0, _noted("real tools ran", ran, "none", "This run recorded, so its tools were real."))
    if not any(rule.key.startswith("fail_on ") for rule in rules):
        why = "Only --fail-on, or fail_on under [gate], makes these fail a run."
        told.append(_noted("fail_on critical", f"{summary.critical:,} critical", "not set", why))
    return told


def _told(rule: Rule) -> dict[str, JsonValue]:
    return {
        "key": rule.key,
        "passed": rule.passed,
        "verdict": str(Verdict.PASSED if rule.passed else rule.broken),
        "measured": rule.measured,
        "limit": rule.limit,
        "why": rule.why or _HOLDS.get(rule.key, ""),
    }


def _noted(name: str, measured: str, limit: str, why: str) -> dict[str, JsonValue]:
    return {"key": name, "passed": None, "verdict": None, "measured": measured, "limit": limit, "why": why}
