"""`simulate --imagine`: nothing was recorded, a model over HTTP plays the system behind a foreign agent."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fiction_double import FictionDouble

from dreamgym_kit.rollout.environment_files import EnvironmentFile

AGENT = '''\
"""Lends books; a script stands for its model and goes by the task's words."""

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def find_book(book_id: str) -> dict:
    """A book of the library by its ID."""
    raise RuntimeError("the real library")


@tool
def list_loans(member_id: str) -> list:
    """What a member has borrowed: loan ID, member_id, book_id."""
    raise RuntimeError("the real library")


@tool
def lend_book(book: str, member: str) -> dict:
    """Lend a book to a member; gives the loan."""
    raise RuntimeError("the real library")


@tool
def extend_loan(loan_id: str, days: int) -> dict:
    """Extend a loan."""
    raise RuntimeError("the real library")


CALLS = {
    "lend": [("find_book", {"book_id": "B7"}), ("list_loans", {"member_id": "M1"}),
             ("lend_book", {"book": "B7", "member": "M1"})],
    "look": [("find_book", {"book_id": "B7"}), ("find_book", {"book_id": "B8"})],
    "extend": [("find_book", {"book_id": "B8"}), ("extend_loan", {"loan_id": "L3", "days": 4}),
               ("extend_loan", {"loan_id": "L3", "days": 4})],
    "crash": [("find_book", {"book_id": "B7"})],
}


def lent(outcome):
    return any(step.call.tool == "lend_book" for step in outcome.transitions)


lent.pure = True


def agent(state):
    task, done = state["messages"][0].content.split()[0], len(state["messages"]) // 2
    if task == "crash" and done:
        raise KeyError("shelf")
    if done == len(CALLS[task]):
        return {"messages": [AIMessage("Done.")]}
    name, args = CALLS[task][done]
    return {"messages": [AIMessage("", tool_calls=[{"id": f"c{done}", "name": name, "args": args}])]}


builder = StateGraph(MessagesState)
builder.add_node("agent", agent)
builder.add_node("tools", ToolNode([find_book, list_loans, lend_book, extend_loan]))
builder.add_edge(START, "agent")
builder.add_conditional_edges("agent", tools_condition)
builder.add_edge("tools", "agent")
graph = builder.compile()
'''
TASKS = [
    {"id": "lend", "input": "lend B7 to M1", "checker": "library:lent"},
    {"id": "look", "input": "look at B7 and B8", "expect": {"calls": ["find_book"]}},
    {"id": "extend", "input": "extend L3, if B8 is not wanted", "expect": {"max": {"extend_loan": 1}}},
]
SETTINGS = """\
graph = "library:graph"
tasks = "tasks.jsonl"

[tools]
find_book = "read"
list_loans = "read"
lend_book = "write"
extend_loan = "write"

[experience]
urls = ["{url}"]
model = "fiction"
usd_per_million_input = 1.0
"""


@pytest.fixture
def fiction() -> Iterator[FictionDouble]:
    """The model over HTTP."""
    with closing(FictionDouble()) as double:
        yield double


@pytest.fixture
def project(tmp_path: Path, fiction: FictionDouble) -> Path:
    """The agent, its tasks and settings; nothing was recorded."""
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "library.py").write_text(AGENT)
    (folder / "tasks.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in TASKS))
    (folder / "dreamgym.toml").write_text(SETTINGS.format(url=fiction.url))
    return folder


def test_imagined_run_is_inconclusive_and_says_what_it_would_be(run, project, fiction) -> None:
    done = run("simulate", "--imagine", "--repeats", "4")
    line = (
        "INCONCLUSIVE  0 passed, 0 failed, 12 inconclusive (imagined: 8 would pass, 4 would fail), 0 errors"
    )
    assert done.stdout.splitlines()[0] == line, done.stdout + done.stderr
    assert done.returncode == 3
    assert [one for one in fiction.questions if one != "entities"] == ["rules", "rules"], (
        "a write tool is drafted once, and its program answers its calls"
    )


def test_imagined_run_says_what_it_costs_and_what_to_record_first(run, project) -> None:
    done = run("simulate", "--imagine")
    assert "about 15 questions" in done.stderr
    assert "budget.max_usd" in done.stderr
    assert "record first: dreamgym-kit record -k 'lend or extend'" in done.stdout
    again = run("simulate")
    assert again.returncode == 3
    assert "dreamgym-kit simulate --imagine" in again.stderr


def test_second_run_asks_nothing_and_environments_can_be_reset(run, project, fiction) -> None:
    first = json.loads(run("simulate", "--imagine", "--json").stdout)
    asked = len(fiction.questions)
    second = json.loads(run("simulate", "--imagine", "--json").stdout)
    assert len(fiction.questions) == asked
    assert first["reached"] == {}, "the dream's own model is no host that an agent reached"
    assert first["imagined"] == second["imagined"] == {"episodes": 3, "would_pass": 2, "would_fail": 1}
    shown = json.loads(run("environments", "show", "default", "--json").stdout)["default:0"]
    assert {fact["origin"] for fact in shown["facts"]} == {"drafted", "seeded"}
    assert {fact["model"] for fact in shown["facts"]} == {"fiction"}
    (row, _) = json.loads(run("rules", "show", "--json").stdout)["rules"]
    assert (row["tool"], row["source"], row["says"]) == ("extend_loan", "drafted", "1 outcome, 1 update")
    assert "Assign(" in run("rules", "show", "extend_loan").stdout
    assert run("environments", "reset", "default").returncode == 0
    assert run("environments", "reset", "drafted programs").returncode == 0
    assert run("environments", "show", "--json").stdout.strip() == "{}"
    run("simulate", "--imagine")
    assert len(fiction.questions) == 2 * asked


def test_no_environment_is_reset_while_a_run_uses_it(run, project) -> None:
    run("simulate", "--imagine", "-k", "look")
    file = EnvironmentFile(project / "environments" / "default-0.json")
    file.hold()
    refused = run("environments", "reset", "default")
    assert (refused.returncode, "a run uses" in refused.stderr) == (2, True)
    assert file.path.exists()
    file.release()
    assert run("environments", "reset", "default").returncode == 0


def test_imagined_outcomes_count_where_the_gate_says_so(run, project, tmp_path) -> None:
    outputs = [project / name for name in ("r.xml", "r.md", "r.html", "r.json")]
    flags = [part for path in outputs for part in ("-o", str(path))]
    done = run("simulate", "--imagine", "--set", "gate.imagined=count", "-k", "lend or look", *flags)
    line = "PASSED (imagined)  2 passed, 0 failed, 0 inconclusive, 0 errors"
    assert done.stdout.splitlines()[0] == line, done.stderr
    assert done.returncode == 0
    assert "2 passed, 0 failed, 0 inconclusive, 0 errors (imagined)" in done.stderr
    assert json.loads(outputs[3].read_text())["headline"] == line
    for path in outputs[:2]:
        assert "imagined" in path.read_text().partition("2 passed")[0], path.name
    assert "PASSED (imagined)" in outputs[2].read_text()
    assert " look.1 passed (imagined) " in " ".join(run("report", "--list").stdout.split())
    assert "\n passed (imagined)  " in run("report", "--episode", "look.1").stdout
    failed = run("simulate", "--imagine", "--set", "gate.imagined=count")
    assert failed.returncode == 1


def test_evaluate_and_train_refuse_imagined_answers_by_default(run, project) -> None:
    with (project / "dreamgym.toml").open("a") as settings:
        settings.write("\n[simulate]\nimagine = true\n")
    refused = run("evaluate")
    assert (refused.returncode, "train.imagined" in refused.stderr) == (2, True)
    taken = run("evaluate", "--set", "train.imagined=true")
    assert taken.stdout.splitlines()[0].startswith("EVALUATED (imagined)"), taken.stdout + taken.stderr


def test_agent_exception_keeps_its_verdict(run, project) -> None:
    (project / "tasks.jsonl").write_text('{"id": "crash", "input": "crash on B7"}\n')
    done = run("simulate", "--imagine")
    assert (done.returncode, done.stdout.split()[0]) == (1, "FAILED")


def test_a_failed_seeding_is_an_error_of_its_episode_alone(run, project, fiction) -> None:
    fiction.status = lambda question: 401 if question == "entities" and len(fiction.questions) == 1 else 200
    done = run("simulate", "--imagine", "--set", "simulate.concurrency=1")
    assert "2 inconclusive" in done.stdout.splitlines()[0], done.stdout
    assert ", 1 error" in done.stdout.splitlines()[0]
    assert done.returncode == 4
    shown = json.loads(run("environments", "show", "default", "--json").stdout)["default:0"]
    assert len(shown["seeded"]) == 2


def test_unusable_seeding_is_an_error_and_is_paid_once(run, project, fiction) -> None:
    fiction.spoil = lambda question, reply: (
        {"facts": [{"tool": "find_book", "args": {"book_id": "B7"}, "answer": 3}, {"tool": "shelve"}]}
        if question == "entities" and "lend B7" in fiction.heard
        else reply
    )
    done = run("simulate", "--imagine", "--repeats", "2", "--set", "simulate.concurrency=1")
    assert "4 inconclusive" in done.stdout.splitlines()[0], done.stdout
    assert ", 2 errors" in done.stdout.splitlines()[0]
    assert "entities" in done.stdout
    assert done.returncode == 4
    assert fiction.questions.count("entities") == 4  # one correction, nothing for the second repeat
    shown = json.loads(run("environments", "show", "default", "--json").stdout)["default:0"]
    assert len(shown["seeded"]) == 2


def test_seeding_is_shown_the_forms_that_reading_tools_declare(run, project, fiction) -> None:
    source = (project / "library.py").read_text()
    fields = "".join(f"    field_{number}: str\n" for number in range(12))
    kind = f"from typing import TypedDict\n\n\nclass Book(TypedDict):\n    book_id: str\n{fields}\n\n@tool"
    source = source.replace("@tool", kind, 1).replace("(book_id: str) -> dict", "(book_id: str) -> Book")
    (project / "library.py").write_text(source)
    done = run("simulate", "--imagine", "--json", "-k", "look")
    shown = json.loads(run("environments", "show", "default", "--json").stdout)["default:0"]
    assert [fact["origin"] for fact in shown["facts"]][:2] == ["seeded", "seeded"], done.stdout
    assert fiction.questions == ["entities"]


def test_openapi_documents_say_what_imagined_answers_look_like(run, project, fiction) -> None:
    book = {"type": "object", "required": ["isbn"], "properties": {"isbn": {"type": "string"}}}
    answers = {"200": {"content": {"application/json": {"schema": book}}}}
    document = {"paths": {"/books/{book_id}": {"get": {"operationId": "findBook", "responses": answers}}}}
    (project / "library.json").write_text(json.dumps(document))
    (project / "dreamgym.toml").write_text('openapi = ["library.json"]\n' + SETTINGS.format(url=fiction.url))
    facts = [{"tool": "find_book", "args": {"book_id": "B7"}, "answer": {"id": "B7"}}]
    fiction.spoil = lambda question, reply: (
        reply | {"facts": facts} if "cannot be used" not in fiction.heard else reply
    )
    run("simulate", "--imagine", "-k", "look")
    assert fiction.questions == ["entities", "entities"]
    assert "'isbn' is a required property" in fiction.heard
    shown = json.loads(run("environments", "show", "default", "--json").stdout)["default:0"]
    assert all("isbn" in row["content"] for row in shown["facts"] if row["tool"] == "find_book")


def test_unusable_answer_is_shown_for_its_unanswered_call(run, project, fiction) -> None:
    fiction.spoil = lambda question, reply: reply if question == "entities" else {"outcome": "perhaps"}
    done = json.loads(run("simulate", "--imagine", "--json", "-k", "extend").stdout)
    (row,) = done["unanswered"]
    assert (row["tool"], row["why"][:11]) == ("extend_loan", "the model's"), row


def test_checker_that_is_not_pure_is_not_run(run, project) -> None:
    source = (project / "library.py").read_text()
    (project / "library.py").write_text(source.replace("lent.pure = True", ""))
    done = run("simulate", "--imagine", "-k", "lend")
    assert "0 would pass, 0 would fail" in done.stdout.splitlines()[0]
    assert "not marked" in done.stdout


def test_single_tool_can_be_imagined(run, project) -> None:
    text = (project / "dreamgym.toml").read_text()
    tables = (
        text.replace('find_book = "read"\n', "") + '\n[tools.find_book]\neffect = "read"\nimagine = true\n'
    )
    (project / "dreamgym.toml").write_text(tables)
    done = json.loads(run("simulate", "--json", "-k", "look or extend").stdout)
    assert done["imagined"]["would_pass"] == 1
    assert [row["tool"] for row in done["unanswered"]] == ["extend_loan"]


def test_workers_share_one_environment(run, project, fiction) -> None:
    done = json.loads(run("simulate", "--imagine", "--json", "-n", "4", "--set", "workers.count=2").stdout)
    assert done["imagined"] == {"episodes": 12, "would_pass": 8, "would_fail": 4}
    asked = [json.dumps(question) for question in fiction.questions]
    assert sorted(asked) == ['"entities"'] * 3 + ['"rules"'] * 2
    facts = done["manifest"]["environment_facts"]
    assert [(row["environment"], row["seeded"]) for row in facts] == [("default:0", 3)]


def test_exceeded_budget_stops_imagining(run, project, fiction) -> None:
    run("simulate", "--imagine", "--set", "budget.max_usd=0.000001", "--set", "simulate.concurrency=1")
    assert len(fiction.questions) <= 1
