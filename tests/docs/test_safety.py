"""docs/safety.md names every known gap of the guard, and every pair of packages that was tried."""

import re
from pathlib import Path

from dreamgym_kit.adapters.langgraph.intercept.foreign_names import PAIRS
from dreamgym_kit.guard.egress import KNOWN_GAPS

PAGE = Path(__file__).parents[2] / "docs" / "safety.md"


def listed() -> str:
    return "".join(f"- {text}\n" for text in KNOWN_GAPS.values())


def test_the_page_lists_the_known_gaps_of_the_guard() -> None:
    (between,) = re.findall(r"<!-- generated from .*? -->\n(.*)<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert between == listed(), "run: python tests/docs/test_safety.py"


def pairs() -> str:
    head = "| MCP SDK | with | environment |\n| --- | --- | --- |\n"
    rows = (
        f"| {one.sdk}.x | {one.package} {one.series}.x | `.ci/env {one.environment}` |\n" for one in PAIRS
    )
    return head + "".join(rows)


def test_the_page_lists_the_pairs_that_were_tried() -> None:
    (between,) = re.findall(r"<!-- pairs of .*? -->\n(.*?)<!-- end of pairs -->", PAGE.read_text(), re.DOTALL)
    assert between == pairs(), "run: python tests/docs/test_safety.py"


if __name__ == "__main__":
    text = PAGE.read_text()
    new = re.sub(
        r"(<!-- generated from .*? -->\n).*(<!-- end -->)",
        lambda m: m[1] + listed() + m[2],
        text,
        flags=re.DOTALL,
    )
    new = re.sub(
        r"(<!-- pairs of .*? -->\n).*?(<!-- end of pairs -->)",
        lambda m: m[1] + pairs() + m[2],
        new,
        flags=re.DOTALL,
    )
    PAGE.write_text(new)
