"""What is printed below unanswered calls comes true, and `-k` selects tasks."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row

AGENT = """
import json, os
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

@tool
def book(room: str, note: str) -> dict:
    "Book."
    if note == "not today please":
        raise ValueError("closed")
    return {"room": room, "note": note}

@tool
def tell(to: str, body: str) -> str:
    "Tell."
    return f"sent to {to}"

@tool
def find(text: str) -> list:
    "Find."
    return [text]

def model(state):
    calls = json.loads(state["messages"][0].content)
    done = sum(message.type == "ai" for message in state["messages"])
    if done == len(calls):
        return {"messages": [AIMessage("done")]}
    name, arguments = calls[done]
    return {"messages": [AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": str(done)}])]}

flow = StateGraph(MessagesState)
flow.add_node("model", model)
flow.add_node("tools", ToolNode([book, tell, find], handle_tool_errors=True))
flow.add_edge(START, "model")
flow.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
flow.add_edge("tools", "model")
graph = flow.compile()
"""
LOOKS = """@tool
def rooms() -> list:
    "List the rooms."
    return [{"room": f"r{n}", "beds": n} for n in (1, 2, 3)]

@tool
def look(room: str) -> dict:
    "Look at a room."
    return {"room": room, "view": f"view of {room}", "floor": len(room)}

"""
SETTINGS = '[tools]\nbook = "write"\ntell = "destructive"\nfind = "read"\n'


@pytest.fixture
def tasks(project: Path) -> Any:
    """Write tasks: each a list of the calls that the agent makes."""
    (project / "booker.py").write_text(AGENT)
    (project / "dreamgym.toml").write_text(SETTINGS)

    def write(**tasks: list[Any]) -> None:
        rows = [
            {
                "id": name.replace("_", "-"),
                "input": {"messages": [{"role": "user", "content": json.dumps(calls)}]},
                "expect": {"max": {}},
            }
            for name, calls in tasks.items()
        ]
        (project / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    return write


def simulate(run: Any, *more: str) -> tuple[str, dict[str, Any]]:
    done = run("simulate", "booker.py:graph", "--tasks", "tasks.jsonl", *more)
    report = run("report", "--json")
    return done.stdout, json.loads(report.stdout)


def test_the_lines_answer_as_many_calls_as_they_say(tasks: Any, project: Path, run: Any) -> None:
    def asked(note: str, body: str) -> dict[str, Any]:
        booked, told = ["book", {"room": "r1", "note": note}], ["tell", {"to": "ann", "body": body}]
        return {"books": [booked], "tells_ann": [told], "finds": [["find", {"text": body}]]}

    tasks(**asked("with two beds", "Your room is r1."))
    run("record", "booker.py:graph", "--tasks", "tasks.jsonl", "--yes")
    tasks(**asked("two beds, please", "It is r1."))
    said, report = simulate(run)
    assert report["counts"] == {"passed": 0, "failed": 0, "inconclusive": 3, "errors": 0}
    assert {one["tool"]: (one["why"], one["ignore"]) for one in report["unanswered"]} == {
        "book": ("only `note` differs from a recording", ["note"]),
        "tell": ("only `body` differs from a recording", ["body"]),
        "find": ("only `text` differs from a recording", []),  # a read: what it looks for decides its answer
    }
    lines = said.splitlines()
    place = next(at for at, line in enumerate(lines) if "(answers 2):" in line)
    block = "\n".join(line.strip() for line in lines[place + 1 : place + 4])
    assert tomllib.loads(block)["match"].keys() == {"book", "tell"}
    assert lines[place + 4 : place + 6] == [
        "Record book(room='r1', note='two beds, please') (answers 1):",
        "  dreamgym-kit record booker.py:graph --tasks tasks.jsonl -k books",
    ]
    (project / "dreamgym.toml").write_text(f"{SETTINGS}{block}\n")
    said, report = simulate(run)
    assert report["counts"] == {"passed": 2, "failed": 0, "inconclusive": 1, "errors": 0}
    assert "  dreamgym-kit record booker.py:graph --tasks tasks.jsonl -k finds" in said.splitlines()


def test_record_and_crawl_steps_answer_as_many_calls_as_they_say(tasks: Any, project: Path, run: Any) -> None:
    """Room r2 was never looked at, but the list names it; r9 is named by nothing, so no crawl finds it."""
    looks = {"a": "r2", "b": "r2", "c": "r9"}
    calls = {name: [["rooms", {}], ["look", {"room": room}]] for name, room in looks.items()}
    (project / "dreamgym.toml").write_text('[tools]\nlook = "read"\nrooms = "read"\n')
    agent = (project / "booker.py").read_text().replace("@tool\ndef find", LOOKS + "@tool\ndef find")
    (project / "booker.py").write_text(agent.replace("[book, tell, find]", "[rooms, look]"))
    tasks(first=[["rooms", {}], ["look", {"room": "r1"}]])
    run("record", "booker.py:graph", "--tasks", "tasks.jsonl", "--yes")
    tasks(**calls)
    said, _ = simulate(run)
    steps = [line for line in said.splitlines() if line.startswith(("Record", "Crawl"))]
    assert steps == [
        "Record look(room='r2') and 2 more (answers 3):",
        "Crawl default:0 (answers 2):",
    ]
    command = next(line.split() for line in said.splitlines() if line.startswith("  dreamgym-kit crawl"))
    run(*command[1:], "--yes")
    assert simulate(run)[1]["counts"] == {"passed": 2, "failed": 0, "inconclusive": 1, "errors": 0}
    command = [line for line in simulate(run)[0].splitlines() if line.startswith("  dreamgym-kit record")]
    assert command == ["  dreamgym-kit record booker.py:graph --tasks tasks.jsonl -k c"]
    run("record", "booker.py:graph", "-k", "c", "--tasks", "tasks.jsonl", "--yes")
    assert simulate(run)[1]["counts"] == {"passed": 3, "failed": 0, "inconclusive": 0, "errors": 0}


BEDS = "with two beds"


@pytest.mark.parametrize(
    ("then", "closed", "note", "now"),
    [
        ([["find", {"text": BEDS}]], [], BEDS, "two beds, please"),  # a read shows it later
        ([], [["book", {"room": "r1", "note": "not today please"}]], BEDS, "two beds, please"),  # it matters
        ([], [], "2026-12-14 10:00", "2026-12-15 09:30"),  # neither a time nor an address is wording
        ([], [], "ann.green@example.com", "ben.brown@example.com"),
    ],
)
def test_no_line_is_offered_for_what_matters_or_reads_show_or_what_is_no_wording(
    tasks: Any, run: Any, then: list[Any], closed: list[Any], note: str, now: str
) -> None:
    tasks(a=[["book", {"room": "r1", "note": note}], *then], closed=closed)
    run("record", "booker.py:graph", "--tasks", "tasks.jsonl", "--yes")
    tasks(a=[["book", {"room": "r1", "note": now}]])
    said, report = simulate(run)
    assert "[match]" not in said
    assert [(one["why"], one["ignore"]) for one in report["unanswered"]] == [
        ("only `note` differs from a recording", [])
    ]


@each_row(
    ("expression", "selected"),
    [
        ("books", {"ann-books", "ben-books"}),
        ("BOOKS and not ben", {"ann-books"}),
        ("ben or (cy and tells)", {"ben-books", "cy-tells"}),
        ("not (books or cy)", {"dan"}),
    ],
)
def test_a_run_of_some_tasks(
    tasks: Any, project: Path, run: Any, expression: str, selected: set[str]
) -> None:
    nothing: list[Any] = []
    tasks(ann_books=nothing, ben_books=nothing, cy_tells=nothing, dan=nothing)
    _, report = simulate(run, "-k", expression)
    assert {one["task"] for one in report["list"]} == selected


@each_row(
    ("expression", "code", "said"),
    [
        ("nobody", 5, "selects none of 1 tasks"),
        ("a and", 2, "-k 'a and' is not a valid expression. Combine words with and, or, not and"),
        ("(a", 2, "is not a valid expression"),
        ("a b", 2, "is not a valid expression"),
        ("a (b) or ()", 2, "is not a valid expression"),
    ],
)
def test_what_selects_nothing_runs_nothing(
    tasks: Any, project: Path, run: Any, expression: str, code: int, said: str
) -> None:
    tasks(a=[])
    done = run("simulate", "booker.py:graph", "--tasks", "tasks.jsonl", "-k", expression)
    assert done.returncode == code
    assert re.search(said, done.stderr)
    assert not (project / "runs").exists()


def test_the_nearest_recording_is_kept_without_the_secrets_of_the_process(
    tasks: Any, project: Path, run: Any
) -> None:
    """It was recorded where nobody knew that this text is a key."""
    key = "quite-secret-value-1"
    tasks(a=[["tell", {"to": key, "body": "Your room is r1."}], ["book", {"room": "r1", "note": f"{key} x"}]])
    run("record", "booker.py:graph", "--tasks", "tasks.jsonl", "--yes")
    tasks(a=[["tell", {"to": "bob", "body": "It is r1."}]], b=[["book", {"room": "r1", "note": "two beds"}]])
    done = run(
        "simulate", "booker.py:graph", "--tasks", "tasks.jsonl", "-v", "-o", "x.html", SHOP_API_KEY=key
    )
    assert "nearest recording (" in done.stdout
    kept = [path for path in (project / "runs").rglob("*") if path.is_file()]
    newest = max(path.parent.stat().st_mtime for path in kept if path.name == "manifest.json")
    dreamt = [path for path in kept if path.parent.stat().st_mtime == newest]
    assert dreamt
    for text in (done.stdout, (project / "x.html").read_text(), *(path.read_text() for path in dreamt)):
        assert key not in text
