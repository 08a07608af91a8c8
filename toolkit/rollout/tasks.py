"""Read tasks from a JSON Lines file: all are valid, or nothing runs; and select tasks with `-k`.

The file is streamed, a line is bounded, and up to 20 problems are reported at once, each with its line and
field, so that they can be fixed in one go.

`-k` selects like pytest's: "books or (refund and not big)"; a word stands for every task whose ID contains
it, ignoring case.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.canonical import canonical, digest
from dreamgym_kit.codec import Codec, Count, shown
from dreamgym_kit.dream.user import wrong_user
from dreamgym_kit.errors import NoTaskSelected, NotSerializable, UserError
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Task

MAX_LINE = 4 * 2**20  # bytes of one task
MAX_TASKS_BYTES = 64 * 2**20  # of all tasks; their objects need about 5 times that
MAX_PROBLEMS = 20

_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


TASKS = Codec(Task)


@dataclass(frozen=True, slots=True)
class _Expectations:
    """A task's `expect`: required tools, forbidden tool patterns, maximum calls per tool."""

    calls: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    max: Mapping[str, Count] = field(default_factory=dict)


_EXPECTATIONS = Codec(_Expectations)


def read_tasks(path: Path) -> list[Task]:
    """Read every task of a file, in order.

    Raises:
        UserError: a single problem in one line ("tasks.jsonl:3: ..."), or several below a line with their
            number; nothing was run.
    """
    problems = _Problems(path)
    tasks: list[Task] = []
    first_line: dict[str, int] = {}
    for number, line in _lines(path, problems):
        task = _task(line, number, problems)
        if task is None:
            continue
        if task.id in first_line:
            problems.add(number, f"id: {shown(task.id)} is also the id of line {first_line[task.id]}")
        first_line.setdefault(task.id, number)
        tasks.append(task)
    problems.refuse()
    if not tasks:
        raise NoTaskSelected(f"{path}: has no task; write one JSON object per line with an id and an input.")
    return tasks


def task_from_record(record: object, *, source: str) -> Task:
    """Read one task from a JSON object in the form of a line.

    Raises:
        UserError: names `source` and the first wrong field.
    """
    problems: list[str] = []
    task = _read_task(record, problems.append)
    if task is None:
        raise UserError(f"{source}: {problems[0]}")
    return task


def checked_tasks(tasks: object) -> list[Task]:
    """Check tasks built in Python like the lines of a file, and return them.

    Raises:
        UserError: no task, not a `Task`, a duplicate ID, or the first wrong field.
    """
    if not isinstance(tasks, Sequence) or isinstance(tasks, (str, bytes)):
        raise UserError(
            f"tasks: expected a file or a list of Task, got {type(tasks).__name__}. Nothing was run."
        )
    if not tasks:
        raise NoTaskSelected("no tasks: nothing to run.")
    seen: set[str] = set()
    for place, task in enumerate(tasks):
        if not isinstance(task, Task):
            raise UserError(
                f"tasks[{place}]: expected a Task, got {type(task).__name__}; write "
                'Task("hello-1", {"messages": [{"role": "user", "content": "..."}]}). Nothing was run.'
            )
        source = f"tasks[{place}]"
        if not isinstance(task.input, Mapping):
            got = shown(task.input)
            raise UserError(
                f"{source}: input: expected an object (the graph's state), got {got}. Nothing was run."
            )
        try:
            task_from_record(TASKS.write(task), source=source)
            canonical([dict(task.input), list(task.replies), dict(task.meta), dict(task.context)])
        except (NotSerializable, TypeError, ValueError) as error:
            raise UserError(f"{source}: {error}; only JSON values are allowed. Nothing was run.") from None
        if task.id in seen:
            raise UserError(
                f"{source}: id: {shown(task.id)} is also the id of an earlier task. Nothing was run."
            )
        seen.add(task.id)
    return list(tasks)


def tasks_digest(tasks: Sequence[Task]) -> str:
    """Return a digest of the tasks' content; a run is resumed only with the same tasks."""
    return digest([TASKS.write(task) for task in tasks])


class _Problems:
    """Problems of one file; stops reading when there are enough to fix."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._texts: list[str] = []
        self.form = ""  # a hint about the whole file

    def add(self, number: int, problem: str) -> None:
        self._texts.append(f"{self._path}:{number}: {problem}")
        if len(self._texts) >= MAX_PROBLEMS:
            self.refuse()

    def refuse(self) -> None:
        if len(self._texts) == 1:
            end = "" if self._texts[0].endswith("?") else "."
            raise UserError(f"{self._texts[0]}{end} Nothing was run.{self.form}")
        if self._texts:
            first = "the first " if len(self._texts) >= MAX_PROBLEMS else ""
            lines = "\n  ".join(self._texts)
            count = f"{first}{len(self._texts)} problems; nothing was run.{self.form}"
            raise UserError(f"{self._path}: {count}\n  {lines}")


def _lines(path: Path, problems: _Problems) -> Iterator[tuple[int, bytes]]:
    """Yield non-empty lines with their numbers; at most `MAX_LINE` bytes in memory."""
    if not path.exists():
        raise UserError(f"{path}: does not exist; give --tasks a JSON Lines file.")
    if not path.is_file():
        raise UserError(f"{path}: is not a file; give --tasks a JSON Lines file.")
    try:
        with path.open("rb") as file:
            yield from _bounded(file, path, problems)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or type(error).__name__}).") from error


def _bounded(file: BinaryIO, path: Path, problems: _Problems) -> Iterator[tuple[int, bytes]]:
    number = size = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if number == 1:
            _refuse_byte_order_mark(line, path)
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            problems.add(number, f"longer than {MAX_LINE} bytes; one task is one JSON object per line")
            while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                pass
        elif line.strip():
            size += len(line)
            if size > MAX_TASKS_BYTES:
                raise UserError(f"{path}:{number}: over {MAX_TASKS_BYTES} bytes of tasks; split it.")
            yield number, line


def _refuse_byte_order_mark(line: bytes, path: Path) -> None:
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if line.startswith(mark):
            raise UserError(
                f"{path}:1: starts with a {encoding} byte-order mark; save it as UTF-8 without one."
            )


def _task(line: bytes, number: int, problems: _Problems) -> Task | None:
    try:
        record = read_json(line.rstrip(), max_bytes=MAX_LINE)
    except NotSerializable as error:
        problems.form = " Write each task as one JSON object on its own line."
        # the parser's line number counts within this line and would mislead
        problems.add(number, f"not JSON: {error}".replace(" at line 1 column", " at column"))
        return None
    return _read_task(record, lambda problem: problems.add(number, problem))


def _read_task(record: object, report: Callable[[str], None]) -> Task | None:
    """Read one task; report each wrong field and return None if there are any."""
    if not isinstance(record, dict):
        report(f"expected an object with an id and an input, got {shown(record)}")
        return None
    full = dict(record)
    wrong, task = _spell_out(full), None
    try:
        task = TASKS.read(full)
    except NotSerializable:
        wrong += TASKS.problems(full)
    if isinstance(expect := full.get("expect"), dict):
        wrong += _EXPECTATIONS.problems(expect, "expect")
    if isinstance(meta := full.get("meta"), dict) and meta.get("user") is not None:
        wrong += [problem] if (problem := wrong_user(meta["user"])) is not None else []
    for text in wrong:
        report(text)
    return None if wrong else task


def _spell_out(task: dict[str, JsonValue]) -> list[str]:
    """Replace short forms of `input` and `environment` by long ones; return the problems.

    Task files may also use `world`, as recordings do.
    """
    twice = {"environment", "world"} <= task.keys()
    wrong = ["environment: given twice, also as 'world'"] if twice else []
    for name, spell_out in (("input", _input), ("environment", _environment), ("world", _environment)):
        if name in task:
            try:
                task[name] = spell_out(task[name])
            except NotSerializable as error:
                wrong.append(f"{name}: {error}")
                del task[name]
                if name == "input":
                    task[name] = {}
    return wrong


def _input(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        if not value.strip():
            raise NotSerializable("is empty")
        return {"messages": [{"role": "user", "content": value}]}
    if not isinstance(value, dict):
        raise NotSerializable(f"expected text or an object (the graph's state), got {shown(value)}")
    return value


def _environment(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        name, colon, number = value.rpartition(":")
        if colon and not (number.isascii() and number.isdigit()):
            raise NotSerializable(f"expected 'name', 'name:7' or an object, got {shown(value)}")
        value = (
            {"name": name, "variant": int(number) if len(number) < 30 else 2**63}
            if colon
            else {"name": value}
        )
    if not isinstance(value, dict):
        raise NotSerializable(f"expected 'name', 'name:7' or an object, got {shown(value)}")
    if isinstance(environment := value.get("name"), str) and not environment.strip():
        raise NotSerializable(f"expected 'name', 'name:7' or an object with a name, got {shown(environment)}")
    variant = value.get("variant", value.get("seed", 0))
    if isinstance(variant, int) and not 0 <= variant < 2**63:  # the range of all stores and generators
        raise NotSerializable(f"a variant must be 0 to 2**63 - 1, got {shown(variant)}")
    return value


_PIECES = re.compile(r"[()]|[^\s()]+")
_OPERATORS = ("and", "or", "not", "(", ")")


def select_tasks(tasks: Sequence[Task], expression: str) -> list[Task]:
    """Return the tasks that an expression selects, in order.

    Raises:
        UserError: the expression is malformed.
        NoTaskSelected: it selects none.
    """
    pieces = [piece.casefold() for piece in _PIECES.findall(expression)]
    # each word becomes a name, so that Python's own parser reads the operators
    spelled = [piece if piece in _OPERATORS else f"w{place}" for place, piece in enumerate(pieces)]
    words = dict(zip(spelled, pieces, strict=True))
    try:
        body = ast.parse(" ".join(spelled), mode="eval").body
        selected = [task for task in tasks if _holds(body, words, task.id.casefold())]
    except (SyntaxError, TypeError, RecursionError, MemoryError):
        raise UserError(
            f"-k {expression!r} is not a valid expression. Combine words with and, or, not and parentheses: "
            "'refund and not big'. Nothing was run."
        ) from None
    if not selected:
        some = ", ".join(task.id for task in tasks[:3])
        raise NoTaskSelected(f"-k {expression!r} selects none of {len(tasks)} tasks ({some}, ...).")
    return selected


def _holds(node: ast.expr, words: Mapping[str, str], task: str) -> bool:
    match node:
        case ast.Name(id=name):
            return words[name] in task
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _holds(operand, words, task)
        case ast.BoolOp(op=operator, values=parts):
            values = [_holds(part, words, task) for part in parts]
            return all(values) if isinstance(operator, ast.And) else any(values)
    raise TypeError(node)  # two words in a row before a parenthesis, or nothing inside it


def selectable(name: str) -> bool:
    """Return whether a task's ID can be typed in an expression."""
    return bool(_PIECES.fullmatch(name)) and name.isprintable() and name.casefold() not in _OPERATORS
