"""The gate's rules one by one: what each asks for, what was measured, and whether it holds.

Together they say what `Summary.gate` says; a rule that is told but not asked for passes neither nor fails.
"""

from dataclasses import dataclass

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.figures import Summary


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the gate."""

    rule: str
    passed: bool | None  # None: measured, but nobody asked the gate to look at it
    measured: str
    limit: str
    why: str

    def to_json(self) -> dict[str, JsonValue]:
        """Give it as the page holds it."""
        return {
            "rule": self.rule,
            "passed": self.passed,
            "measured": self.measured,
            "limit": self.limit,
            "why": self.why,
        }


def rules_of(summary: Summary, *, fail_on_findings: bool = False) -> list[Rule]:
    """Give every rule, those that passed too: trust needs them."""
    strays = summary.fact("strays")
    refused = len(summary.violations) + (len(strays) if isinstance(strays, list) else bool(strays))
    real = Rule(
        "No real tool ran",
        summary.real_calls == 0,
        f"{summary.real_calls} of {summary.calls} calls",
        "0",
        "A dream answers each call that reads or changes the world.",
    )
    recorded = Rule(
        "Real tools ran",
        None,
        f"{summary.real_calls} of {summary.calls} calls",
        "none",
        "This run was asked to record, so its tools were real.",
    )
    return [
        recorded if summary.recorded else real,
        Rule(
            "Nothing tried to get past the gate",
            refused == 0,
            f"{refused:,} refused",
            "0",
            "Tools, connections and programs that nobody allowed are refused, and fail the gate.",
        ),
        Rule(
            "No critical finding",
            summary.critical == 0 if fail_on_findings else (True if summary.critical == 0 else None),
            f"{summary.critical:,} critical",
            "0" if fail_on_findings else "not set",
            "Asked for." if fail_on_findings else "Only --fail-on-findings makes the gate look at these.",
        ),
    ]
