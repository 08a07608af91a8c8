"""Tasks from a file: every form of a line, and one message for each way to get it wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from each_row import each_row
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamgym_kit.errors import UserError
from dreamgym_kit.rollout.tasks import TASKS, read_tasks, task_from_record, tasks_digest
from dreamgym_kit.types import Environment, Split, Task

GOOD = '{"id": "a", "input": "hello"}\n'


def more(fields: str) -> str:
    return f'{{"id": "b", "input": "x", {fields}}}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.jsonl"


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_tasks(path)
    return str(caught.value).replace(str(path), "FILE")


def test_a_text_becomes_the_users_message(path: Path) -> None:
    path.write_text(GOOD)
    (task,) = read_tasks(path)
    assert task == Task("a", {"messages": [{"role": "user", "content": "hello"}]})
    assert (task.environment, task.split, task.replies) == (Environment(), Split.TRAIN, ())


def test_every_field_is_read(path: Path) -> None:
    row = {
        "id": "b",
        "input": {"question": "?", "k": 3},
        "world": {"name": "desk", "seed": 7},
        "checker": "checks:paid",
        "expect": {"calls": ["refund"], "forbid": ["delete_*"], "max": {"refund": 1}},
        "replies": ["yes", {"approve": True}],
        "split": "held_out",
        "meta": {"from": "ticket 7"},
    }
    path.write_text(json.dumps(row))
    assert read_tasks(path) == [
        Task(
            id="b",
            input={"question": "?", "k": 3},
            environment=Environment("desk", 7),
            checker="checks:paid",
            expect={"calls": ["refund"], "forbid": ["delete_*"], "max": {"refund": 1}},
            replies=("yes", {"approve": True}),
            split=Split.HELD_OUT,
            meta={"from": "ticket 7"},
        )
    ]


@each_row(
    ("world", "read"),
    [("desk", Environment("desk")), ("desk:7", Environment("desk", 7)),
     ("eu:desk:07", Environment("eu:desk", 7)),
     ({"name": "a:b"}, Environment("a:b", 0)),
     ({"name": "a", "variant": 2}, Environment("a", 2))],
)  # fmt: skip
def test_a_world_is_a_name_a_name_with_a_seed_or_an_object(
    path: Path, world: object, read: Environment
) -> None:
    for name in ("environment", "world"):
        path.write_text(json.dumps({"id": "a", "input": "x", name: world}))
        assert read_tasks(path)[0].environment == read


def test_blank_lines_and_windows_line_ends_are_fine(path: Path) -> None:
    path.write_bytes(b'\r\n{"id": "a", "input": "x"}\r\n\n  \n{"id": "b", "input": "x"}')
    assert [task.id for task in read_tasks(path)] == ["a", "b"]


@each_row(
    ("line", "problem"),
    [
        ("{oops", "not JSON: Expecting property name enclosed in double quotes at column 2"),
        ("[1]", "expected an object with an id and an input, got a list"),
        ('{"input": "x"}', "id: missing"),
        ('{"id": "b"}', "input: missing"),
        ('{"id": "b", "input": ["x"]}', "input: expected text or an object (the graph's state), got a list"),
        ('{"id": "b", "input": ""}', "input: is empty"),
        ('{"id": "a", "input": "x"}', "id: 'a' is also the id of line 1"),
        (more('"world": 7'), "world: expected 'name', 'name:7' or an object, got 7"),
        (more('"world": "a:b"'), "world: expected 'name', 'name:7' or an object, got 'a:b'"),
        (more('"world": {"seed": 7}'), "world.name: missing"),
        (more('"world": {"name": "a", "seed": true}'), "world.seed: expected a whole number, got true"),
        (more('"world": "a:9223372036854775808"'),
         "world: a variant must be 0 to 2**63 - 1, got a very large number"),
        (more('"environment": "a", "world": "a"'), "environment: given twice, also as 'world'"),
        (more('"expect": {"cals": []}'), "expect.cals: no such field; did you mean 'calls'?"),
        (more('"expect": {"max": {"a": -1}}'), "expect.max.a: expected a whole number >= 0, got -1"),
        (more('"id": "c"'), "not JSON: key 'id' stands twice in one object"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named_with_its_field(path: Path, line: str, problem: str) -> None:
    path.write_text(GOOD + line + "\n")
    end = "" if problem.endswith("?") else "."
    form = " Write each task as one JSON object on its own line." if problem.startswith("not JSON") else ""
    assert refusal(path) == f"FILE:2: {problem}{end} Nothing was run.{form}"


def test_all_problems_of_a_file_are_named_at_once(path: Path) -> None:
    path.write_text('{"id": 1, "inptu": "x"}\n' + GOOD + "{\n")
    assert refusal(path).splitlines() == [
        "FILE: 4 problems; nothing was run. Write each task as one JSON object on its own line.",
        "  FILE:1: inptu: no such field; did you mean 'input'?",
        "  FILE:1: id: expected text, got 1",
        "  FILE:1: input: missing",
        "  FILE:3: not JSON: Expecting property name enclosed in double quotes at column 2",
    ]


def test_twenty_problems_are_enough(path: Path) -> None:
    path.write_text("{\n" * 1000)
    lines = refusal(path).splitlines()
    form = "Write each task as one JSON object on its own line."
    assert (lines[0], len(lines)) == (f"FILE: the first 20 problems; nothing was run. {form}", 21)


@each_row(
    ("content", "message"),
    [
        (b"", "FILE: has no task; write one JSON object per line with an id and an input."),
        (b"\xef\xbb\xbf" + GOOD.encode(),
         "FILE:1: starts with a UTF-8 byte-order mark; save it as UTF-8 without one."),
        (GOOD.encode("utf-16"),
         "FILE:1: starts with a UTF-16 byte-order mark; save it as UTF-8 without one."),
        (b'{"id": "\xe4", "input": "x"}',
         "FILE:1: not JSON: not UTF-8 at byte 8. Nothing was run. Write each task as one JSON object on its own line."),  # noqa: E501
    ],
)  # fmt: skip
def test_a_file_that_is_no_task_file_is_named(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    assert refusal(path) == message


def test_a_missing_file_a_folder_and_a_pipe_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "none") == "FILE: does not exist; give --tasks a JSON Lines file."
    assert refusal(tmp_path) == "FILE: is not a file; give --tasks a JSON Lines file."
    assert refusal(tmp_path / "pipe") == "FILE: is not a file; give --tasks a JSON Lines file."


READ = """
import sys
from pathlib import Path
from dreamgym_kit.rollout.tasks import read_tasks

def peak():  # of this program alone: what getrusage says begins with that of the process it was forked from
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

before = peak()
try:
    read_tasks(Path(sys.argv[1]))
except Exception as error:
    print(str(error))
print((peak() - before) // 1024)
"""


@pytest.mark.parametrize("size", [2**27, pytest.param(2**30, marks=pytest.mark.nightly)])
def test_a_line_of_a_gigabyte_is_named_and_not_held_in_memory(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.write(GOOD.encode())
        file.truncate(size)  # sparse: a line of NUL bytes
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    message, grown_mb = done.stdout.splitlines()
    assert message.endswith("tasks.jsonl:2: longer than 4194304 bytes; one task is one JSON object per line."
                            " Nothing was run.")  # fmt: skip
    assert int(grown_mb) < 50


def test_more_tasks_than_a_run_can_use_are_refused_by_line(path: Path) -> None:
    row = '{"id": "%d", "input": "' + "x" * 1_000_000 + '"}\n'
    with path.open("w") as file:
        for number in range(70):
            file.write(row % number)
    assert refusal(path) == "FILE:68: over 67108864 bytes of tasks; split it."


def test_the_first_wrong_field_of_a_record_is_named_with_its_source() -> None:
    with pytest.raises(UserError, match=r"^tasks\[3\]: id: missing$"):
        task_from_record({"input": "x"}, source="tasks[3]")


texts = st.text(st.characters(), min_size=1).filter(str.strip)
objects = st.dictionaries(
    st.text(), st.one_of(st.none(), st.integers(), st.floats(allow_nan=False), st.text())
)
finite = objects.filter(lambda found: all(abs(v) < 1e300 for v in found.values() if isinstance(v, float)))
expectations = st.fixed_dictionaries(
    {},
    optional={
        "calls": st.lists(texts, max_size=3),
        "forbid": st.lists(texts, max_size=3),
        "max": st.dictionaries(texts, st.integers(0, 9), max_size=3),
    },
)
tasks = st.builds(
    Task,
    id=texts,
    input=finite,
    environment=st.builds(Environment, texts, st.integers(0, 2**63 - 1)),
    checker=st.one_of(st.none(), texts),
    expect=expectations,
    replies=st.lists(st.one_of(st.text(), finite), max_size=3).map(tuple),
    split=st.sampled_from(Split),
    meta=finite.filter(lambda found: "user" not in found),  # it plays the user, and has a form of its own
)


@settings(max_examples=50, derandomize=True, deadline=None)
@given(tasks)
def test_a_task_is_read_as_it_was_written(task: Task) -> None:
    written = json.loads(json.dumps(TASKS.write(task)))
    assert task_from_record(written, source="here") == task


def test_other_tasks_have_another_digest() -> None:
    one, other = Task("a", {"x": 1}), Task("a", {"x": 2})
    assert tasks_digest([one]) == tasks_digest([Task("a", {"x": 1})])
    assert len({tasks_digest(some) for some in ([], [one], [other], [one, other], [other, one])}) == 5


@each_row(
    ("user", "said"),
    [
        ({"scrpt": ["yes"]}, "meta.user: 'scrpt' is none of script, goal, persona and knows"),
        ({"script": "yes"}, "meta.user.script: expected a list of lines, alone"),
        ({"script": ["yes"], "goal": "z"}, "meta.user.script: expected a list of lines, alone"),
        ("yes", 'meta.user: expected {"script": [...]}, or an object with goal, persona and knows'),
        ({}, 'meta.user: expected {"script": [...]}, or an object with goal, persona and knows'),
    ],
)
def test_a_user_that_cannot_be_played_is_named_before_anything_runs(
    path: Path, user: object, said: str
) -> None:
    path.write_text(GOOD + json.dumps({"id": "b", "input": "hello", "meta": {"user": user}}))
    assert refusal(path) == f"FILE:2: {said}. Nothing was run."


def test_users_that_can_be_played_are_read(path: Path) -> None:
    users = [None, {"script": []}, {"goal": "a refund", "persona": "curt", "knows": {"order": "o1"}}]
    path.write_text(
        "\n".join(
            json.dumps({"id": str(n), "input": "hi", "meta": {"user": one}}) for n, one in enumerate(users)
        )
    )
    assert [task.meta["user"] for task in read_tasks(path)] == users
