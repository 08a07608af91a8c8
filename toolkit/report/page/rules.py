"""The gate's rules as the page lists them: those that passed too, and what nobody asked it to look at."""

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.figures import Summary
from dreamgym_kit.report.gating import Rule

_HOLDS = {
    "nothing real": "A dream answers each call that reads or changes the world; nothing else tried to run.",
    "findings critical": "No finding that a person should look at first.",
}


def rules_told(summary: Summary, *, fail_on_findings: bool = False) -> list[JsonValue]:
    """Give every rule of `Summary.rules` as the page holds it; one not asked for passes neither nor fails."""
    rules = summary.rules(fail_on_findings=fail_on_findings)
    told: list[JsonValue] = [_told(rule) for rule in rules]
    if summary.recorded:
        ran = f"{summary.real_calls} of {summary.calls} calls"
        told.insert(0, _noted("real tools ran", ran, "none", "This run recorded, so its tools were real."))
    if not any(rule.rule.startswith("findings ") for rule in rules):
        why = "Only --fail-on-findings, or findings under [gate], makes the gate look at these."
        told.append(_noted("findings critical", f"{summary.critical:,} critical", "not set", why))
    return told


def _told(rule: Rule) -> dict[str, JsonValue]:
    return {
        "rule": rule.rule,
        "passed": rule.passed,
        "measured": rule.measured,
        "limit": rule.limit,
        "why": rule.why or _HOLDS.get(rule.rule, ""),
    }


def _noted(name: str, measured: str, limit: str, why: str) -> dict[str, JsonValue]:
    return {"rule": name, "passed": None, "measured": measured, "limit": limit, "why": why}
