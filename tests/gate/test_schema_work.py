"""A stranger's schema is checked where that is bounded, and left to the server where it is not."""

import re
from typing import Any

import pytest
from bench.hostile import PATTERNS, schemas
from each_row import each_row
from langchain_core.tools import StructuredTool
from shapes.stage import DREAMT, dream

from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.schema_work import MAX_WORK, first_problem, work_of_search

HOSTILE = {name: (schema, given) for name, schema, given in schemas()}
CHECKED: dict[str, dict[str, int]] = {"long list of values": {"bad_arguments": 1}, "deep": {}}
BOUNDED = {  # by pattern: a text that fits, and one that does not
    r"^[a-z]+$": ("order", "Order 1"),
    r"^\d{4}-\d{2}-\d{2}$": ("2026-11-24", "24.11.2026"),
    r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$": ("0f8fad5b-d9cb-469f-a165-70867728950e", "0f8fad5b"),
    r"^(GET|POST)$": ("GET", "PUT"),
    r"^[^@]+@[^@]+\.[^@]+$": ("anna@example.com", "anna"),
    r"^\+?[1-9]\d{1,14}$": ("+4930123456", "abc"),
    r"[A-Z]{2}\d+": ("order AB12", "order 12"),
    r"^(?=.*\d)(?=.*[a-z]).{8,40}$": ("abcdefg1", "abcdefgh"),
}


@pytest.mark.usefixtures("gate")
@each_row("name", HOSTILE)
def test_a_hostile_schema_ends(name: str) -> None:
    """That this test ends is what is promised; how soon, the bench `dos` says."""
    schema, given = HOSTILE[name]
    session = dream()
    tool = StructuredTool(
        name="search", description="d", args_schema=schema, func=lambda **_: "real", handle_tool_error=True
    )
    with entered(session):
        said = tool.invoke({"type": "tool_call", "name": "search", "id": "1", "args": dict(given)})
    counts = CHECKED.get(name, {"unchecked_arguments": 1})
    assert session.counts == counts
    assert (said.content == DREAMT) == ("bad_arguments" not in counts)


@each_row("pattern", PATTERNS)
def test_the_work_of_a_hostile_pattern_is_known_beforehand(pattern: str) -> None:
    assert work_of_search(pattern, len(PATTERNS[pattern])) > MAX_WORK


@each_row("pattern", BOUNDED)
def test_a_pattern_as_people_write_them_is_checked(pattern: str) -> None:
    fits, other = BOUNDED[pattern]
    schema: Any = {"type": "object", "properties": {"q": {"type": "string", "pattern": pattern}}}
    assert first_problem(schema, {"q": fits}) is None
    problem = first_problem(schema, {"q": other})
    assert problem is not None
    assert "does not match" in problem.message


def test_a_bound_is_never_below_what_is_tried() -> None:
    """Held against the number of ways in which a text that cannot fit is taken apart."""
    for ways, pattern in ((11, "^a*b"), (66, "^a*a*b"), (286, "^a*a*a*b"), (1024, "^(?:a|a){10}b")):
        assert work_of_search(pattern, 10) >= ways
        assert re.search(pattern, "a" * 10) is None


def test_rows_of_an_ordinary_size_are_checked() -> None:
    row = {
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": r"^[A-Z]{2}\d{4,10}$"},
            "tags": {"uniqueItems": True},
        },
        "required": ["id"],
        "additionalProperties": False,
    }
    schema = {"properties": {"rows": {"items": {"$ref": "#/$defs/row"}}}, "$defs": {"row": row}}
    rows: list[Any] = [{"id": f"AB{number:05}", "tags": ["a", "b"]} for number in range(300)]
    assert first_problem(schema, {"rows": rows}) is None
    rows[-1]["tags"] = ["a", "a"]
    problem = first_problem(schema, {"rows": rows})
    assert problem is not None
    assert list(problem.absolute_path) == ["rows", 299, "tags"]
