"""The dream is told what the model asked for; a stranger's schema is checked where that is bounded."""

import asyncio
import re
from datetime import date
from enum import Enum
from typing import Any

import pytest
from bench.hostile import PATTERNS, schemas
from each_row import each_row
from langchain_core.tools import StructuredTool, tool
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel
from shapes.agents import CityState, city_tool, injected_tools, with_create_agent
from shapes.middleware import RewritesArgs, once
from shapes.models import asks
from shapes.stage import DREAMT, HELLO, ScriptedExperienceDouble, dream, tool_messages
from shapes.tools import ClassTool, add_tool, single_tool

from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.schema_work import MAX_WORK, first_problem, work_of_search
from dreamgym_kit.routing.session import Session

pytestmark = pytest.mark.usefixtures("gate")


@each_row("kind", ["sync", "async"])
def test_what_is_injected_is_not_told(kind: str) -> None:
    script = [
        [
            asks("inj", {"a": 1}, "A"),
            asks("runtime_tool", {"a": 2}, "B"),
            asks("runtime_class", {"a": 3}, "C"),
        ],
        "done",
    ]
    graph = with_create_agent(injected_tools(), script, store=InMemoryStore())
    experience = ScriptedExperienceDouble()
    with entered(dream(experience)):
        graph.invoke(HELLO) if kind == "sync" else asyncio.run(graph.ainvoke(HELLO))
    told = sorted((call.call_id, call.tool, dict(call.args), call.node) for call in experience.asked)
    assert told == [
        ("A", "inj", {"a": 1}, "tools"),
        ("B", "runtime_tool", {"a": 2}, "tools"),
        ("C", "runtime_class", {"a": 3}, "tools"),
    ]


def told(made: Any, given: Any) -> dict[str, Any]:
    """What a dream is told of one call."""
    experience = ScriptedExperienceDouble()
    with entered(dream(experience)):
        made.invoke(given)
    return dict(experience.asked[0].args)


def test_defaults_are_filled_in_so_that_equal_calls_are_equal() -> None:
    assert told(add_tool(), {"a": 1}) == told(add_tool(), {"a": "1", "b": 5}) == {"a": 1, "b": 5}


def test_a_tool_of_one_string_names_it() -> None:
    assert told(single_tool(), "find it") == {"tool_input": "find it"}


class Colour(Enum):
    RED = "red"


class Line(BaseModel):
    item: str
    on: date


def test_python_values_become_data() -> None:
    @tool
    def buy(lines: list[Line], colour: Colour, raw: bytes = b"x") -> str:
        """Buy."""
        return "real"

    assert told(buy, {"lines": [{"item": "pen", "on": "2026-01-02"}], "colour": "red"}) == {
        "lines": [{"item": "pen", "on": "2026-01-02"}],
        "colour": "red",
        "raw": {"$bytes": "eA=="},
    }


def test_the_dream_is_told_what_middleware_made_of_the_arguments() -> None:
    experience = ScriptedExperienceDouble()
    with entered(dream(experience)):
        with_create_agent([add_tool()], once(), middleware=[RewritesArgs()]).invoke(HELLO)
    assert dict(experience.asked[0].args) == {"a": 5, "b": 5}


def test_calls_by_hand_carry_no_call_id_and_positional_arguments_get_names() -> None:
    experience = ScriptedExperienceDouble()
    with entered(dream(experience)):
        add_tool().func(1, 2)
        ClassTool()._run(3)
    assert [(call.call_id, dict(call.args)) for call in experience.asked] == [
        (None, {"a": 1, "b": 2}),
        (None, {"a": 3}),
    ]


def test_an_async_only_tool_called_synchronously_fails_as_the_framework_says() -> None:
    async def later(a: int) -> int:
        return a

    made = StructuredTool.from_function(coroutine=later, name="later", description="d")
    with entered(dream()), pytest.raises(NotImplementedError, match="sync invocation"):
        made.invoke({"a": 1})


SET_CITY = [[asks("set_city", {"city": "Riga"})], "done"]


def test_a_recorded_command_updates_the_state_again(canary: Any) -> None:
    real = Session(CallRouter(Mode.RECORD))
    with entered(real):
        with_create_agent([city_tool()], SET_CITY, state_schema=CityState).invoke(HELLO)
    recorded = real.ledger.transitions()[0].answer
    with entered(dream(ScriptedExperienceDouble(lambda _: recorded))):
        result = with_create_agent([city_tool()], SET_CITY, state_schema=CityState).invoke(HELLO)
    assert result["city"] == "Riga"
    assert [message.content for message in tool_messages(result)] == ["ok"]
    assert canary.written() == ["set_city"]


def test_a_text_answer_of_a_command_tool_leaves_the_state_alone() -> None:
    with entered(dream()):
        result = with_create_agent([city_tool()], SET_CITY, state_schema=CityState).invoke(HELLO)
    assert tool_messages(result)[0].content == DREAMT
    assert "city" not in result


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
