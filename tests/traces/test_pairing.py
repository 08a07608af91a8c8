"""Calls find their answers, however a recorder numbered them; those without are told, nothing is dropped."""

import json
from pathlib import Path
from typing import Any

from each_row import each_row

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.traces.importing import TraceReport, import_traces
from dreamgym_kit.adapters.traces.seen import arguments, failure, reply, seconds


def call(name: str, args: object, call_id: str | None = None) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": args}}


def asks(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def tells(content: object, call_id: str | None = None, **more: object) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": call_id, **more}


def imported(tmp_path: Path, *rows: dict[str, Any]) -> tuple[list[tuple[str, object]], TraceReport]:
    (path := tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    store = MemoryStore()
    report = import_traces(path, store)
    return [(next(iter(row.call.args.values()), ""), row.answer.content) for row in store.scan()], report


def test_parallel_answers_in_any_order_find_their_calls_by_id(tmp_path: Path) -> None:
    messages = [
        asks(call("f", '{"n": 1}', "a"), call("f", '{"n": 2}', "b")),
        tells("two", "b"),
        tells("one", "a"),
    ]
    assert imported(tmp_path, {"messages": messages})[0] == [(1, "one"), (2, "two")]


def test_an_id_used_again_belongs_to_the_latest_turn(tmp_path: Path) -> None:
    lost = asks(call("f", '{"n": 1}', "x"))
    messages = [lost, asks(call("f", '{"n": 2}', "x")), tells("two", "x"), asks(call("f", '{"n": 3}', "x"))]
    found, report = imported(tmp_path, {"messages": [*messages, tells("three", "x")]})
    assert found == [(2, "two"), (3, "three")]
    assert (report.unanswered, report.unread) == (1, 0)


def test_answers_without_an_id_go_by_name_and_order(tmp_path: Path) -> None:
    messages = [
        asks(call("f", {"n": 1}), call("g", {"n": 2}), call("f", {"n": 3})),
        tells("g2", name="g"),
        tells("f1", name="f"),
        tells("f3"),
    ]
    assert imported(tmp_path, {"messages": messages, "tools": []})[0] == [(1, "f1"), (2, "g2"), (3, "f3")]


def test_an_answer_without_a_call_and_a_call_without_a_name_are_told_with_their_line(tmp_path: Path) -> None:
    nameless = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"arguments": "{}"}}, "odd"]}
    found, report = imported(
        tmp_path,
        {"messages": [asks(call("f", "{}", "a")), tells("yes", "a")]},
        {"messages": [tells("what?", "z"), nameless, "no object"]},
    )
    assert found == [("", "yes")]
    path = tmp_path / "rows.jsonl"
    assert report.problems == (
        f"{path}:2: an answer (z) without a call in this conversation",
        f"{path}:2: a call without a tool's name",
        f"{path}:2: a call without a tool's name",
        f"{path}:2: a message that is not an object",
    )


DIALECTS: dict[str, dict[str, Any]] = {
    "openai": {"messages": [asks(call("f", '{"n": 1}', "a")), tells("one", "a")]},
    "openai, before tools": {
        "messages": [
            {"role": "assistant", "function_call": {"name": "f", "arguments": '{"n": 1}'}},
            {"role": "function", "name": "f", "content": "one"},
        ]
    },
    "responses": {
        "response": {
            "output": [
                {"type": "function_call", "name": "f", "arguments": '{"n": 1}', "call_id": "a"},
                {"type": "function_call_output", "call_id": "a", "output": "one"},
            ]
        }
    },
    "trl": {
        "prompt": [{"role": "user", "content": "go"}],
        "completion": [asks(call("f", {"n": 1})), tells("one")],
    },
    "sharegpt": {
        "conversations": [
            {"from": "function_call", "value": '{"name": "f", "arguments": {"n": 1}}'},
            {"from": "observation", "value": "one"},
        ]
    },
    "langchain": {
        "messages": [
            {"type": "ai", "content": "", "tool_calls": [{"name": "f", "args": {"n": 1}, "id": "a"}]},
            {"type": "tool", "content": "one", "tool_call_id": "a", "name": "f"},
        ]
    },
    "anthropic": {
        "messages": [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {"n": 1}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "one"}]},
        ]
    },
    "steps": {"steps": [{"action": 1, "observation": "odd"}, {"action": "one", "observation": "one"}]},
}


@each_row("dialect", DIALECTS)
def test_every_dialect_of_messages_is_read(tmp_path: Path, dialect: str) -> None:
    found, report = imported(tmp_path, DIALECTS[dialect])
    assert found == [("one" if dialect == "steps" else 1, "one")]
    assert report.unread == (dialect == "steps")


def test_failures_that_a_dialect_marks_are_errors(tmp_path: Path) -> None:
    flat = {"type": "tool", "content": "no such order", "tool_call_id": "a", "status": "error"}
    block = {"type": "tool_result", "tool_use_id": "b", "content": "too late", "is_error": True}
    rows = [
        {"messages": [asks(call("f", "{}", "a")), flat]},
        {"messages": [asks(call("f", "{}", "b")), {"role": "user", "content": [block]}]},
    ]
    (path := tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    import_traces(path, store := MemoryStore())
    assert [row.answer.error for row in store.scan()] == ["no such order", "too late"]


def test_conversations_of_one_name_stay_apart_and_come_in_once(tmp_path: Path) -> None:
    row = {"id": "task-1", "messages": [asks(call("f", '{"n": 1}', "a")), tells("one", "a")]}
    (path := tmp_path / "rows.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(row)}")
    store = MemoryStore()
    assert import_traces(path, store).new == 2
    assert [row.episode for row in store.scan()] == ["task-1", "task-1#2"]
    assert import_traces(path, store).new == 0


@each_row(
    ("text", "args", "bare"),
    [
        ('{"a": 1}', {"a": 1}, False),
        ("{'a': True, 'b': None, 'c': (1, 2)}", {"a": True, "b": None, "c": [1, 2]}, False),
        ({"input_str": "{'a': 'x'}", "tags": []}, {"a": "x"}, False),
        ({"input_str": "{'a': 'x'}", "inputs": {"a": "y"}}, {"a": "y"}, False),
        ({"args": ["x"], "kwargs": {"b": 2}, "sanitize_inputs_outputs": False}, {"arg0": "x", "b": 2}, True),
        ({"input": "{'a': 1}"}, {"a": 1}, False),
        ({"input": "plain"}, {"input": "plain"}, False),
        ("plain", {"input": "plain"}, True),
        ("{not python}", {"input": "{not python}"}, True),
        ("{'a': __import__('os').getcwd()}", {"input": "{'a': __import__('os').getcwd()}"}, True),
        ("{" * 5_000, {"input": "{" * 5_000}, True),
        ("[" + "-" * 5_000 + "1]", {"input": "[" + "-" * 5_000 + "1]"}, True),
        ("{'a': " + "[" * 80 + "]" * 80 + "}", {"input": "{'a': " + "[" * 80 + "]" * 80 + "}"}, True),
        (None, {}, False),
        ("", {}, False),
    ],
)
def test_arguments_are_read_from_every_wrapping_and_nothing_is_run(
    text: object, args: object, bare: bool
) -> None:
    read = arguments(text)
    assert (read.args, read.bare) == (args, bare)


def test_a_positional_value_gets_its_name_from_the_schema() -> None:
    assert arguments({"args": ["x"], "kwargs": {}}, names=["answer"]).args == {"answer": "x"}
    assert arguments("x", names=["query"]).args == {"query": "x"}


MESSAGE = {"content": "done", "tool_call_id": "c", "name": "f", "status": "success"}


@each_row(
    "wrapped",
    [
        MESSAGE,
        json.dumps(MESSAGE),
        {"output": MESSAGE},
        {"output": {"lc": 1, "type": "constructor", "id": ["ToolMessage"], "kwargs": MESSAGE}, "kwargs": {}},
        {"type": "tool", "data": MESSAGE},
        {"content": [{"type": "text", "text": "done"}], "isError": False},
        [{"text": "done"}],
    ],
)
def test_answers_are_unwrapped_to_what_the_agent_saw(wrapped: object) -> None:
    assert reply(wrapped).content == "done"


def test_text_that_happens_to_be_json_stays_text_unless_the_format_says_so() -> None:
    assert reply('{"status": "paid"}').content == '{"status": "paid"}'
    assert reply('{"status": "paid"}', is_json=True).content == {"status": "paid"}


def test_an_mcp_result_that_failed_is_an_error() -> None:
    found = reply({"content": [{"type": "text", "text": "no access"}], "isError": True})
    assert (found.content, found.error) == ("no access", "no access")


@each_row(
    ("text", "found"),
    [
        ("ValueError('too much')Traceback (most recent call last):\n ...", ("too much", "ValueError")),
        ("app.NoOrderError(\"no 'x'\")", ("no 'x'", "NoOrderError")),
        ("KeyError(1, 2)", ("KeyError(1, 2)", "KeyError")),
        ("it broke", ("it broke", None)),
    ],
)
def test_an_exception_as_text_gives_its_message_and_class(text: str, found: object) -> None:
    assert failure(text) == found


@each_row(
    ("stamp", "unix"),
    [
        (1_700_000_000, 1.7e9),
        (1_700_000_000_000, 1.7e9),
        (1_700_000_000_000_000, 1.7e9),
        ("1700000000000000000", 1.7e9),
        ("2023-11-14T22:13:20Z", 1.7e9),
        ("yesterday", 0.0),
        (None, 0.0),
        (-5, 0.0),
        (True, 0.0),
    ],
)
def test_time_stamps_of_every_unit_are_seconds(stamp: object, unix: float) -> None:
    assert seconds(stamp) == unix
