"""Facts of imagined environments: one file each, shared by repeats, workers and runs.

A fact is an answer that an episode received about an environment's base state, or about the state after
given writes: equal calls get equal answers. A new fact may not contradict the others. Real recordings also
count as facts but are never stored here; they replace imagined facts, and the report lists these. A fact is
valid until the schema of its tool changes.
"""

import json
import re
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.canonical import digest
from dreamgym_kit.codec import Codec
from dreamgym_kit.dream.contradictions import Fact, contradictions
from dreamgym_kit.dream.things import opened, records
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Call, Environment, Source, ToolSpec, Transition, call_text, value_text

FORMAT = 1
DRAFTS = Environment("drafted programs")
"""Holds the drafted programs of write tools, each as the answer to a call without arguments."""
MAX_BYTES = 64 * 2**20
_LONGEST_NAME = 80  # characters of a value that may name a thing
MAX_FACTS = 8_000
"""Maximum characters of facts in a prompt."""
_NEWEST = 200  # facts considered per name; more than fit into a prompt
_WORD = re.compile(r"[\w@.+-]*[\w@+]")


class FactsFile(Protocol):
    """Storage for the facts of one environment, shared by processes."""

    def stamp(self) -> object:
        """Return a value that changes whenever another process writes."""
        ...

    def read(self, start: int = 0, most: int = MAX_BYTES) -> bytes | None:
        """Read up to `most` bytes from offset `start`; None if there is no file."""
        ...

    def changing(self) -> AbstractContextManager[Callable[[bytes, bool], None]]:
        """Lock the file for the block; yield write(data, whole), which appends lines or replaces the file."""
        ...

    def hold(self) -> None:
        """Use the environment: it cannot be reset until `release`."""
        ...

    def release(self) -> None:
        """Stop using it."""
        ...

    def begin(self, names: Collection[str]) -> bool:
        """Try to lock these names across processes, all or none; "" conflicts with every name."""
        ...

    def end(self, names: Collection[str]) -> None:
        """Unlock the names."""
        ...


@dataclass(frozen=True, slots=True)
class ImaginedFact:
    """An imagined answer of an environment."""

    tool: str
    args: Mapping[str, JsonValue]
    after: str = ""  # digest of the episode's earlier writes; "": the base state
    content: JsonValue = None
    error: str | None = None
    error_type: str | None = None
    artifact: JsonValue = None
    changes: tuple[Mapping[str, JsonValue], ...] = ()  # of a write
    origin: str = "imagined"  # or "seeded", before its task ran, or "drafted": by the tool's program
    reason: str = ""  # the model's
    model: str = ""
    prompt: str = ""  # version of the prompt
    date: str = ""  # ISO 8601, UTC
    schema: str = ""  # digest of its tool's schemas

    @property
    def call(self) -> Call:
        """The call that it answers."""
        return Call(self.tool, self.args)

    @property
    def answer(self) -> Answer:
        """The answer as the agent receives it."""
        return Answer(
            content=self.content,
            source=Source.IMAGINED,
            confidence=0.0,
            artifact=self.artifact,
            error=self.error,
            error_type=self.error_type,
            changes=self.changes,
            why=self.reason,
        )

    def __str__(self) -> str:
        """The call and its answer, on one line."""
        shown = self.content if self.error is None else {"error": self.error}
        return f"{call_text(self.tool, self.args)} -> {value_text(shown)}"

    @property
    def record(self) -> dict[str, JsonValue]:
        """The call and its answer as a prompt shows them."""
        return plain_record(self.tool, self.args, self.content, self.error)


@dataclass(frozen=True, slots=True)
class Replaced:
    """An imagined fact that a recording replaced."""

    call: str
    why: str


@dataclass(slots=True)
class Book:
    """The facts of one environment, as stored in its file."""

    facts: dict[tuple[str, str], ImaginedFact] = field(default_factory=dict)  # by state and call
    seeded: dict[str, str] = field(default_factory=dict)  # date, by digest of task and tools
    replaced: list[Replaced] = field(default_factory=list)
    index: "FactIndex" = field(default_factory=lambda: FactIndex())  # of the base state, recordings first
    head: bytes = b""  # first line of the file
    size: int = 0  # bytes of its complete lines
    stale: bool = False  # the file contains facts that are no longer valid

    def base(self) -> list[ImaginedFact]:
        """Facts of the base state, oldest first."""
        return [fact for (after, _), fact in self.facts.items() if not after]


_FACTS, _REPLACED = Codec(ImaginedFact), Codec(Replaced)


def plain_record(
    tool: str, args: Mapping[str, JsonValue], content: JsonValue, error: str | None
) -> dict[str, JsonValue]:
    """Return a call and its answer or error as a `Fact`."""
    outcome: dict[str, JsonValue] = {"answer": content} if error is None else {"error": error}
    return {"tool": tool, "args": dict(args), **outcome}


def episode_records(call: Call, answer: Answer, history: Sequence[Transition]) -> list[Fact]:
    """Return a call and the episode's earlier calls as `Fact`s."""
    given = ((call, answer), *((step.call, step.answer) for step in history))
    return [plain_record(call.tool, call.args, answer.content, answer.error) for call, answer in given]


def recorded_facts(rows: Iterable[Transition]) -> "FactIndex":
    """Index real answers of one environment about its base state."""
    facts = {
        row.call.key: plain_record(row.call.tool, row.call.args, row.answer.content, row.answer.error)
        for row in rows
        if row.answer.source is Source.REAL and not row.after and not row.effect.changes_environment
    }
    return FactIndex(facts.values())


def schema_digest(spec: ToolSpec) -> str:
    """Return a digest of a tool's argument and answer schemas and effect: facts of another digest expire."""
    return digest([dict(spec.args_schema), dict(spec.answer_schema), spec.answer_form, str(spec.effect)])[:16]


def shape_of(seen: JsonValue, depth: int = 4) -> JsonValue:
    """What a value looks like: keys and kinds, no values."""
    if isinstance(seen, dict) and depth:
        return {key: shape_of(item, depth - 1) for key, item in list(seen.items())[:30]}
    if isinstance(seen, list):
        return [shape_of(seen[0], depth - 1)] if seen and depth else []
    return {bool: "boolean", int: "integer", float: "number", str: "string"}.get(type(seen), "null")


def names_in(value: JsonValue) -> frozenset[str]:
    """Return the short strings and integers in a value, in lowercase: each may name a thing."""
    if isinstance(value, Mapping):
        return frozenset().union(*map(names_in, value.values())) if value else frozenset()
    if isinstance(value, (list, tuple)):
        return frozenset().union(*map(names_in, value)) if value else frozenset()
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return frozenset()
    text = str(value).strip().casefold()
    return frozenset({text}) if 0 < len(text) <= _LONGEST_NAME else frozenset()


class _Names(NamedTuple):
    """The names in a call and its answer, by role."""

    things: frozenset[str]  # IDs of the things that the answer describes
    args: frozenset[str]
    all: frozenset[str]


def _names_of(row: Fact) -> _Names:
    content = opened(row.get("answer"))
    args = names_in(dict(_args(row)))
    entities = records(content, Call(str(row["tool"]), _args(row)))
    things = frozenset(record.thing[1].casefold() for record in entities)
    return _Names(things, args, args | things | names_in(content))


class FactIndex:
    """Answers about one state, oldest first, indexed by the names in them.

    Two answers can contradict each other only if they describe the same thing, or if one names an argument
    of the other's call.
    """

    def __init__(self, rows: Iterable[Fact] = ()) -> None:
        self.rows: list[Fact] = []
        self.by_call: dict[str, Fact] = {}
        self._sizes: list[int] = []  # characters per row; `_size` is their sum
        self._size = 0
        self._places: tuple[dict[str, list[int]], ...] = ({}, {}, {})  # as `_Names` has them
        for row in rows:
            self.add(row)

    def add(self, row: Fact) -> None:
        """Add the newest fact."""
        for places, names in zip(self._places, _names_of(row), strict=True):
            for name in names:
                places.setdefault(name, []).append(len(self.rows))
        self.rows.append(row)
        self.by_call[Call(str(row["tool"]), _args(row)).key] = row
        self._sizes.append(len(json.dumps(row, ensure_ascii=False)))
        self._size += self._sizes[-1]

    def related(self, rows: Iterable[Fact]) -> list[Fact]:
        """Return the facts that may contradict any of these rows."""
        by_thing, by_argument, by_any = self._places
        places: set[int] = set()
        for things, args, every in map(_names_of, rows):
            for index, names in ((by_thing, things), (by_argument, every), (by_any, args)):
                places.update(*(index.get(name, ()) for name in names))
        return [self.rows[place] for place in sorted(places)]

    def shown(self, about: JsonValue) -> list[Fact]:
        """Return facts for a prompt: all if `MAX_FACTS` allows, else those `about` names, then the newest."""
        if self._size <= MAX_FACTS:
            return list(self.rows)
        words = _WORD.findall(json.dumps(about, ensure_ascii=False).casefold())
        runs = {" ".join(words[at : at + long]) for at in range(len(words)) for long in (1, 2, 3)}
        named: set[int] = set()
        for name in runs | names_in(about):
            named.update(self._places[2].get(name, ())[-_NEWEST:] if len(name) > 1 else ())
        chosen, room = set[int](), MAX_FACTS
        newest = range(len(self.rows) - 1, max(-1, len(self.rows) - 1 - _NEWEST), -1)
        for at in (*sorted(named, reverse=True), *newest):
            if at not in chosen and self._sizes[at] <= room:
                chosen.add(at)
                room -= self._sizes[at]
        return [self.rows[at] for at in sorted(chosen)]


class EnvironmentFacts:
    """Facts of all environments in a run. Thread-safe.

    Args:
        place: returns the file of an environment.
        specs: the agent's tools.
        recorded: returns real recordings of an environment; its base-state ones override imagined facts.
        model, prompt: model and prompt version stored with new facts.
        clock: returns the date stored with new facts, ISO 8601.
    """

    def __init__(
        self,
        place: Callable[[Environment], FactsFile],
        specs: Mapping[str, ToolSpec],
        *,
        recorded: Callable[[Environment], Iterable[Transition]] = lambda _: (),
        model: str = "",
        prompt: str = "",
        clock: Callable[[], str] = lambda: "",
    ) -> None:
        self._place, self._specs, self._recorded = place, specs, recorded
        self._about = {"model": model, "prompt": prompt}
        self._clock = clock
        self._schemas = {name: schema_digest(spec) for name, spec in specs.items()}
        self._files: dict[Environment, FactsFile] = {}
        self._books: dict[Environment, tuple[object, Book]] = {}
        self._real: dict[Environment, FactIndex] = {}
        self._lock = threading.RLock()

    def file(self, environment: Environment) -> FactsFile:
        """Return the file of an environment's facts; it cannot be reset until `close`."""
        with self._lock:
            if environment not in self._files:
                file = self._place(environment)
                file.hold()
                self._files[environment] = file
            return self._files[environment]

    def close(self) -> None:
        """Release the files: they may be reset."""
        for file in self._files.values():
            file.release()

    def all_facts(self, environment: Environment) -> list[Fact]:
        """Return all facts of the base state: recorded ones, then imagined ones."""
        with self._lock:
            return list(self.book(environment).index.rows)

    def shown(self, environment: Environment, about: JsonValue) -> list[Fact]:
        """Return the base-state facts that a prompt shows; see `FactIndex.shown`."""
        with self._lock:
            return self.book(environment).index.shown(about)

    def related(self, environment: Environment, *rows: Fact) -> list[Fact]:
        """Return base-state facts that may contradict these rows."""
        with self._lock:
            return self.book(environment).index.related(rows)

    def find(self, environment: Environment, call: Call, after: str = "") -> Answer | None:
        """Return the stored answer to a call in a state; None if there is none."""
        fact = self.book(environment).facts.get((after, call.key))
        return fact.answer if fact is not None else None

    def is_seeded(self, environment: Environment, task: str) -> bool:
        """Whether the entities of a task (named by its digest) were created."""
        return task in self.book(environment).seeded

    def shapes(self, environment: Environment) -> dict[str, JsonValue]:
        """Return by reading tool what its newest known answer looks like, without values."""
        answers = {str(row["tool"]): row["answer"] for row in self.all_facts(environment) if "answer" in row}
        return {tool: shape_of(opened(answer)) for tool, answer in answers.items()}

    def accept(
        self,
        environment: Environment,
        call: Call,
        answer: Answer,
        *,
        after: str = "",
        origin: str = "imagined",
    ) -> list[str]:
        """Store an answer as a fact, or return the sentences that say which facts it contradicts.

        Raises:
            RunDirectoryError: the file cannot be written.
        """
        return self._add(environment, [(call, answer)], after=after, origin=origin)

    def seed(self, environment: Environment, task: str, answers: Sequence[tuple[Call, Answer]]) -> list[str]:
        """Store the entities of a task: all, or none if any contradicts a fact; then return why.

        Raises:
            RunDirectoryError: the file cannot be written.
        """
        return self._add(environment, answers, after="", origin="seeded", task=task)

    def book(self, environment: Environment) -> Book:
        """Return the current facts; reads only the new lines of a file that grew.

        Raises:
            UserError: the file is damaged.
        """
        with self._lock:
            file = self.file(environment)
            stamp = file.stamp()
            if environment in self._books:
                before, book = self._books[environment]
                if before == stamp:
                    return book
                if book.size and stamp is not None:
                    new = file.read(book.size)
                    if new is not None and file.read(0, len(book.head)) == book.head:
                        for line in _whole(new):
                            self._take(environment, book, _entry(line))
                            book.size += len(line)
                        self._books[environment] = (stamp, book)
                        return book
            book = self._valid(environment, read_book(file.read()))
            self._books[environment] = (stamp, book)
            return book

    def books(self) -> list[tuple[Environment, Book]]:
        """Return the facts of all environments used so far."""
        return [(environment, self.book(environment)) for environment in self._files if environment != DRAFTS]

    def _add(
        self,
        environment: Environment,
        answers: Sequence[tuple[Call, Answer]],
        *,
        after: str,
        origin: str,
        task: str = "",
    ) -> list[str]:
        file, date = self.file(environment), self._clock()
        with self._lock, file.changing() as write:
            book = self.book(environment)
            facts: dict[str, ImaginedFact] = {}
            for call, answer in answers:
                if (after, call.key) in book.facts or call.key in facts:
                    continue  # another process was first: its answer counts
                fact = ImaginedFact(
                    tool=call.tool,
                    args=dict(call.args),
                    after=after,
                    content=answer.content,
                    error=answer.error,
                    error_type=answer.error_type,
                    artifact=answer.artifact,
                    changes=answer.changes,
                    origin=origin,
                    reason=answer.why,
                    date=date,
                    schema=self._schemas.get(call.tool, ""),
                    **self._about,
                )
                if not after and not self._writes(call.tool):
                    rows = [*book.index.related([fact.record]), *(other.record for other in facts.values())]
                    if problems := self._conflicts(fact, rows):
                        return problems
                facts[call.key] = fact
            entry = _Entry(tuple(facts.values()), {task: date} if task else {})
            if not entry.facts and not entry.seeded:
                return []
            fresh = book.stale or not book.size
            data = spell_book(book, environment, entry) if fresh else _spell_entry(entry)
            write(data, fresh)
            if fresh:
                book.head, book.size, book.stale = next(_whole(data)), 0, False
            book.size += len(data)
            for fact in entry.facts:
                self._keep(book, fact)
            book.seeded |= entry.seeded
            self._books[environment] = (file.stamp(), book)
        return []

    def _keep(self, book: Book, fact: ImaginedFact) -> None:
        book.facts[fact.after, fact.call.key] = fact
        if not fact.after and not self._writes(fact.tool):
            book.index.add(fact.record)

    def _take(self, environment: Environment, book: Book, entry: "_Entry") -> None:
        """Add facts that another process wrote."""
        for fact in entry.facts:
            if self._holds(fact) and self._replaced(environment, fact) is None:
                self._keep(book, fact)
        book.seeded |= entry.seeded

    def _valid(self, environment: Environment, read: Book) -> Book:
        """Drop facts of tools whose schema changed, and facts that recordings replace."""
        book = replace(read, facts={}, index=FactIndex(self._recordings(environment).rows))
        replaced = {row.call: row for row in read.replaced}
        valid: list[ImaginedFact] = []
        for fact in read.facts.values():
            if not self._holds(fact):
                book.seeded, book.stale = {}, True
                continue
            why = self._replaced(environment, fact)
            if why is None:
                valid.append(fact)
                continue
            book.stale = True
            if why:
                replaced[str(fact)] = Replaced(str(fact), why)
        for fact in valid:
            if not fact.after or not book.stale:  # later states depend on facts that were dropped
                self._keep(book, fact)
        book.replaced = list(replaced.values())
        return book

    def _holds(self, fact: ImaginedFact) -> bool:
        return not self._specs or fact.schema == self._schemas.get(fact.tool)

    def _replaced(self, environment: Environment, fact: ImaginedFact) -> str | None:
        """Return why a recording replaces a fact; "" if both agree, None if no recording replaces it."""
        if fact.after or self._writes(fact.tool):
            return None
        real = self._recordings(environment)
        row = real.by_call.get(fact.call.key)
        if row is not None:
            return "was recorded otherwise" if row != fact.record else ""
        problems = self._conflicts(fact, real.related([fact.record])) if real.rows else []
        return problems[0] if problems else None

    def _conflicts(self, fact: ImaginedFact, rows: Sequence[Fact]) -> list[str]:
        """List what a base-state fact contradicts."""
        return contradictions(fact.call, fact.answer, spec=self._specs[fact.tool], facts=rows)

    def _recordings(self, environment: Environment) -> FactIndex:
        if environment not in self._real:
            self._real[environment] = recorded_facts(self._recorded(environment))
        return self._real[environment]

    def _writes(self, tool: str) -> bool:
        spec = self._specs.get(tool)
        return spec is not None and spec.effect.changes_environment


def _args(row: Fact) -> Mapping[str, JsonValue]:
    args = row["args"]
    return args if isinstance(args, Mapping) else {}


@dataclass(frozen=True, slots=True)
class _Entry:
    """The facts of one model reply: a line of the file, so that the reply is stored in full or not at all."""

    facts: tuple[ImaginedFact, ...] = ()
    seeded: Mapping[str, str] = field(default_factory=dict)
    replaced: tuple[Replaced, ...] = ()


_ENTRIES = Codec(_Entry)


def _whole(data: bytes) -> Iterator[bytes]:
    """Yield complete lines; skip a partial line that a killed process left."""
    return (line for line in data.splitlines(keepends=True) if line.endswith(b"\n"))


def _entry(line: bytes) -> _Entry:
    """Parse a line. Raises like `read_book`."""
    try:
        return _ENTRIES.read(read_json(line.decode(), max_bytes=MAX_BYTES), label="a line")
    except (NotSerializable, UnicodeDecodeError) as error:
        raise _damaged(error) from None


def _damaged(error: object) -> UserError:
    return UserError(
        f"a file of environment facts cannot be read ({error}). Remove it: dreamgym-kit environments reset"
    )


def read_book(data: bytes | None) -> Book:
    """Parse a facts file; returns an empty `Book` for None.

    Raises:
        UserError: the file is damaged.
    """
    book = Book()
    if data is None:
        return book
    lines = list(_whole(data))
    try:
        head = read_json(lines[0].decode(), max_bytes=MAX_BYTES) if lines else None
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise NotSerializable("another format")
    except (NotSerializable, UnicodeDecodeError) as error:
        raise _damaged(error) from None
    book.head, book.size = lines[0], sum(map(len, lines))
    for entry in map(_entry, lines[1:]):
        book.facts |= {(fact.after, fact.call.key): fact for fact in entry.facts}
        book.seeded |= entry.seeded
        book.replaced += entry.replaced
    return book


def book_to_json(book: Book) -> dict[str, JsonValue]:
    """Return seeded tasks, replaced facts and facts as JSON."""
    return {
        "seeded": dict(book.seeded),
        "replaced": [_REPLACED.write(row) for row in book.replaced],
        "facts": [_FACTS.write(fact) for fact in book.facts.values()],
    }


def _spell_entry(entry: _Entry) -> bytes:
    return json.dumps(_ENTRIES.write(entry)).encode() + b"\n"


def spell_book(book: Book, environment: Environment, *entries: _Entry) -> bytes:
    """Serialize a book and further entries: a unique head line, then JSON lines."""
    head = {
        "format": FORMAT,
        "environment": str(environment),
        "written": secrets.token_hex(8),
    }
    facts = (_Entry((fact,)) for fact in book.facts.values())
    rest = _Entry(seeded=book.seeded, replaced=tuple(book.replaced))
    lines = map(_spell_entry, (rest, *facts, *entries))
    return b"".join([json.dumps(head, ensure_ascii=False).encode() + b"\n", *lines])
