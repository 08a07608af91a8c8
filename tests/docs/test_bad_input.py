"""tests/docs/bad-input.md names tests that are there, and every bar that has a mutant."""

import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS / "docs" / "bad-input.md"
NAMED = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)


def functions(folder: Path) -> set[str]:
    """Names of all tests below a folder."""
    return {name for path in folder.rglob("test_*.py") for name in NAMED.findall(path.read_text("utf-8"))}


def rows(page: str, columns: int) -> Iterator[list[str]]:
    """The rows of the page's table of so many columns."""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if len(cells) == columns and not set(line) <= set("|- ") and cells[0] not in ("input", "bar"):
            yield cells


def unheld(page: str, known: set[str]) -> list[str]:
    """Rows without a test, and names that no test has."""
    wrong = []
    for row in rows(page, 3):
        names = re.findall(r"`(test_\w+)`", row[2])
        wrong += [f"{row[0]}: {name}" for name in names if name not in known] or ([] if names else [row[0]])
    return wrong


def test_every_row_of_bad_input_is_held_by_tests_that_are_there() -> None:
    page = PAGE.read_text("utf-8")
    assert len(list(rows(page, 3))) > 35
    assert unheld(page, functions(TESTS)) == []


def test_every_bar_has_its_file_and_its_mutant_in_it() -> None:
    listed = list(rows(PAGE.read_text("utf-8"), 4))
    assert len(listed) > 15
    for bar, _, file, mutant in listed:
        path = TESTS / "bars" / file.strip("`")
        assert path.name.startswith(f"test_{bar.lower()}_")
        assert mutant.strip("`") in NAMED.findall(path.read_text("utf-8")), bar


def test_a_row_that_rots_is_found() -> None:
    page = "| input | what happens | held by |\n| --- | --- | --- |\n| a | b | `test_gone` |\n| c | d |  |\n"
    assert unheld(page, {"test_other"}) == ["a: test_gone", "c"]
