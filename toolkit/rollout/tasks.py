"""Tasks from a JSON-lines file: all of them are good, or nothing runs.

Decides the forms of a line (README of the recipes shows them) and the words for what is wrong with one.
The file is streamed, a line is bounded, and up to 20 problems are named at once, each with its line and
field, so that a person mends the file in one go.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

from dreamgym_kit.canonical import canonical, digest
from dreamgym_kit.dream.outcome import EXPECTATIONS
from dreamgym_kit.dream.user import wrong_user
from dreamgym_kit.errors import NoTaskSelected, NotJson, UserError
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.replay.fields import (
    REQUIRED,
    Fields,
    Required,
    filled_text,
    items,
    mapping,
    name_of,
    shown,
    texts,
    whole,
)
from dreamgym_kit.vocabulary import Split, Task, World

T = TypeVar("T")

MAX_LINE = 4 * 2**20  # bytes of one task
MAX_TASKS_BYTES = 64 * 2**20  # of all lines that hold a task; their objects need about 5 times that
MAX_PROBLEMS = 20

_NOTHING: Mapping[str, JsonValue] = {}
_NO_TEXTS: tuple[str, ...] = ()
_TASK = ("id", "input", "world", "checker", "expect", "replies", "split", "meta")
_WORLD = ("name", "seed")
_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def read_tasks(path: Path) -> list[Task]:
    """Read every task of a file, in its order.

    Raises:
        UserError: one line for a single problem ("tasks.jsonl:3: ..."), else one line each below a
            line that counts them; nothing was run.
    """
    problems = _Problems(path)
    tasks: list[Task] = []
    first_line: dict[str, int] = {}
    for number, line in _lines(path, problems):
        task = _task(line, number, problems)
        if task is None:
            continue
        if task.id in first_line:
            problems.add(number, f"id: {shown(task.id)} is the id of line {first_line[task.id]} too")
        first_line.setdefault(task.id, number)
        tasks.append(task)
    problems.refuse()
    if not tasks:
        raise NoTaskSelected(f"{path}: holds no task; write one JSON object a line with an id and an input.")
    return tasks


def task_from_record(record: object, *, source: str) -> Task:
    """Read one task from a JSON object of the same form as a line.

    Raises:
        UserError: names `source` and the first wrong field.
    """
    found: list[str] = []
    task = _read_task(record, found.append)
    if task is None:
        raise UserError(f"{source}: {found[0]}")
    return task


def task_to_record(task: Task) -> dict[str, JsonValue]:
    """Give a task as the JSON object that `task_from_record` reads."""
    return {
        "id": task.id,
        "input": dict(task.input),
        "world": {"name": task.world.name, "seed": task.world.seed},
        "checker": task.checker,
        "expect": dict(task.expect),
        "replies": list(task.replies),
        "split": str(task.split),
        "meta": dict(task.meta),
    }


def checked_tasks(tasks: object) -> list[Task]:
    """Tasks that were made in Python, held to what a line of a file is held to.

    Raises:
        UserError: no task, no `Task`, two of one id, or the first wrong field of one.
    """
    if not isinstance(tasks, Sequence) or isinstance(tasks, (str, bytes)):
        raise UserError(
            f"tasks: expected a file or a list of Task, got {type(tasks).__name__}. Nothing was run."
        )
    if not tasks:
        raise NoTaskSelected("no tasks: there is nothing to run.")
    seen: set[str] = set()
    for place, task in enumerate(tasks):
        if not isinstance(task, Task):
            raise UserError(
                f"tasks[{place}]: expected a Task, got {type(task).__name__}; write "
                'Task("hello-1", {"messages": [{"role": "user", "content": "..."}]}). Nothing was run.'
            )
        source = f"tasks[{place}]"
        if not isinstance(task.input, Mapping):
            found = shown(task.input)
            raise UserError(
                f"{source}: input: expected an object (the graph's state), got {found}. Nothing was run."
            )
        try:
            task_from_record(task_to_record(task), source=source)
            canonical([dict(task.input), list(task.replies), dict(task.meta)])
        except (NotJson, TypeError, ValueError) as error:
            raise UserError(f"{source}: {error}; a task holds JSON values only. Nothing was run.") from None
        if task.id in seen:
            raise UserError(
                f"{source}: id: {shown(task.id)} is the id of an earlier task too. Nothing was run."
            )
        seen.add(task.id)
    return list(tasks)


def tasks_digest(tasks: Sequence[Task]) -> str:
    """Name these tasks by their content; a run is resumed only with the tasks that it was begun with."""
    return digest([task_to_record(task) for task in tasks])


class _Problems:
    """What is wrong with one file; stops the reading once a person has enough to mend."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: list[str] = []
        self._form = ""

    def add_not_json(self, number: int, problem: str) -> None:
        """A line that is no JSON: the form of the whole file may be another one, such as one large list."""
        self._form = " A task is one JSON object on a line of its own."
        self.add(number, f"not JSON: {problem}")

    def add(self, number: int, problem: str) -> None:
        self._found.append(f"{self._path}:{number}: {problem}")
        if len(self._found) >= MAX_PROBLEMS:
            self.refuse()

    def refuse(self) -> None:
        if len(self._found) == 1:
            end = "" if self._found[0].endswith("?") else "."
            raise UserError(f"{self._found[0]}{end} Nothing was run.{self._form}")
        if self._found:
            first = "the first " if len(self._found) >= MAX_PROBLEMS else ""
            lines = "\n  ".join(self._found)
            count = f"{first}{len(self._found)} problems; nothing was run.{self._form}"
            raise UserError(f"{self._path}: {count}\n  {lines}")


def _lines(path: Path, problems: _Problems) -> Iterator[tuple[int, bytes]]:
    """Lines that hold something, with their numbers; never more than `MAX_LINE` bytes in memory."""
    if not path.exists():
        raise UserError(f"{path}: there is no such file; give --tasks a JSON-lines file.")
    if not path.is_file():
        raise UserError(f"{path}: is not a file; give --tasks a JSON-lines file.")
    try:
        with path.open("rb") as file:
            yield from _bounded(file, path, problems)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or type(error).__name__}).") from error


def _bounded(file: BinaryIO, path: Path, problems: _Problems) -> Iterator[tuple[int, bytes]]:
    number = held = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if number == 1:
            _refuse_byte_order_mark(line, path)
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            problems.add(number, f"longer than {MAX_LINE} bytes; one task is one JSON object a line")
            while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                pass
        elif line.strip():
            held += len(line)
            if held > MAX_TASKS_BYTES:
                raise UserError(f"{path}:{number}: over {MAX_TASKS_BYTES} bytes of tasks; split the file.")
            yield number, line


def _refuse_byte_order_mark(line: bytes, path: Path) -> None:
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if line.startswith(mark):
            raise UserError(
                f"{path}:1: begins with a {encoding} byte-order mark; save it as UTF-8 without one."
            )


def _task(line: bytes, number: int, problems: _Problems) -> Task | None:
    try:
        record = read_json(line.rstrip(), max_bytes=MAX_LINE)
    except NotJson as error:
        # a line is one line: the parser's own line number would send the reader to the wrong one
        problems.add_not_json(number, str(error).replace(" at line 1 column", " at column"))
        return None
    return _read_task(record, lambda problem: problems.add(number, problem))


def _read_task(record: object, report: Callable[[str], None]) -> Task | None:
    """Read one task, or report each of its wrong fields and give None."""
    try:
        fields = Fields(record, "", _TASK)
    except NotJson:
        report(f"expected an object with an id and an input, got {shown(record)}")
        return None
    wrong = fields.unknown()

    def take(name: str, read: Callable[[object, str], T], default: T | Required = REQUIRED) -> T | None:
        try:
            return fields.take(name, read, default)
        except NotJson as error:
            wrong.append(str(error))
            return None

    identity, given = take("id", filled_text), take("input", _input)
    world = take("world", _world, World())
    checker = take("checker", _checker, None)
    expect, meta = take("expect", _expect, _NOTHING), take("meta", mapping, _NOTHING)
    replies, split = take("replies", items, None), take("split", name_of(Split), Split.TRAIN)
    user = wrong_user(meta["user"]) if meta and meta.get("user") is not None else None
    for problem in [*wrong, *([user] if user is not None else [])]:
        report(problem)
    if wrong or user is not None or identity is None or given is None or world is None or split is None:
        return None
    return Task(
        identity, given, world, checker, expect or _NOTHING, tuple(replies or ()), split, meta or _NOTHING
    )


def _input(value: object, where: str) -> Mapping[str, JsonValue]:
    if isinstance(value, str):
        return {"messages": [{"role": "user", "content": filled_text(value, where)}]}
    if not isinstance(value, dict):
        raise NotJson(f"{where}: expected text or an object (the graph's state), got {shown(value)}")
    return value


def _world(value: object, where: str) -> World:
    if isinstance(value, str):
        name, colon, seed = filled_text(value, where).rpartition(":")
        if not colon:
            return World(value)
        if not name.strip() or not (seed.isascii() and seed.isdigit()):
            raise NotJson(f"{where}: expected 'name', 'name:7' or an object, got {shown(value)}")
        return World(name, _seed(int(seed) if len(seed) < 30 else 2**63, where))
    if not isinstance(value, dict):
        raise NotJson(f"{where}: expected 'name', 'name:7' or an object, got {shown(value)}")
    fields = Fields(value, where, _WORLD)
    fields.refuse_unknown()
    return World(fields.take("name", filled_text), fields.take("seed", _seed, 0))


def _seed(value: object, where: str) -> int:
    """A whole number that every store and generator takes: 0 to 2**63 - 1."""
    seed = whole(value, where)
    if not 0 <= seed < 2**63:
        raise NotJson(f"{where}: a seed is 0 to 2**63 - 1, got {shown(seed)}")
    return seed


def _expect(value: object, where: str) -> Mapping[str, JsonValue]:
    """Expectations; a misspelt one would hold whatever the agent does."""
    fields = Fields(value, where, EXPECTATIONS)
    fields.refuse_unknown()
    for name in ("calls", "forbid"):
        fields.take(name, texts, _NO_TEXTS)
    for tool, most in fields.take("max", mapping, _NOTHING).items():
        if whole(most, f"{where}.max.{tool}") < 0:
            raise NotJson(f"{where}.max.{tool}: calls are 0 or more, got {shown(most)}")
    return mapping(value, where)


def _checker(value: object, where: str) -> str | None:
    return None if value is None else filled_text(value, where)
