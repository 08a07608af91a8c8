"""docs/safety.md names every known gap of the guard, in the guard's own words."""

import re
from pathlib import Path

from dreamgym_kit.gate.egress import KNOWN_GAPS

PAGE = Path(__file__).parents[2] / "docs" / "safety.md"


def listed() -> str:
    return "".join(f"- {text}\n" for text in KNOWN_GAPS.values())


def test_the_page_lists_the_known_gaps_of_the_guard() -> None:
    (between,) = re.findall(r"<!-- generated from .*? -->\n(.*)<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert between == listed(), "run: python tests/docs/test_safety.py"


if __name__ == "__main__":
    text = PAGE.read_text()
    new = re.sub(
        r"(<!-- generated from .*? -->\n).*(<!-- end -->)",
        lambda m: m[1] + listed() + m[2],
        text,
        flags=re.DOTALL,
    )
    PAGE.write_text(new)
