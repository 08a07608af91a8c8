"""Find the test files of a suite by their text, so that pytest imports no others."""

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
LARGE = ("accelerate", "datasets", "peft", "ray", "sphinx", "torch", "transformers", "trl")
IMPORTS_LARGE = re.compile(
    rf"^(?:import|from) (?:{'|'.join(LARGE)})\b|importorskip\(\s*\"(?:{'|'.join(LARGE)})\b", re.MULTILINE
)


def marked(*marks: str) -> tuple[str, ...]:
    """The files in which one of these marks stands."""
    return _files(re.compile(rf"\bmark\.(?:{'|'.join(marks)})\b"))


def importing_large() -> tuple[str, ...]:
    """The files that import packages of some hundred thousand objects.

    A start of a dream looks at every object of its process: all other tests are faster without these.
    """
    return _files(IMPORTS_LARGE)


def _files(pattern: re.Pattern[str]) -> tuple[str, ...]:
    files = sorted((CHECKOUT / "tests").rglob("test_*.py"))
    return tuple(str(file.relative_to(CHECKOUT)) for file in files if pattern.search(file.read_text("utf-8")))
