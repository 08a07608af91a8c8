"""A transition as one JSON object, and back: the form of the buffer, of exports and of run journals.

Decides the names of the fields and which may be left out: those with a default in the vocabulary, and
`id`, which is computed from the content and compared when it is there. Whatever is written here can be
read here: the writer checks its own record with the reader's rules. Unknown fields are refused, so that
a misspelt one is not lost without a word.
"""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from enum import StrEnum
from math import isfinite
from typing import TypeVar

from dreamgym_kit.errors import NotJson
from dreamgym_kit.jsonread import check_bounds, read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.vocabulary import SCHEMA_VERSION, Answer, Call, Effect, Provenance, Split, Transition, World

T = TypeVar("T")
Name = TypeVar("Name", bound=StrEnum)

_WORLD = ("name", "seed")
_CALL = ("tool", "args", "call_id", "node")
_ANSWER = (
    *("content", "provenance", "support", "artifact", "error", "error_type", "update", "cites", "why"),
    "changes",
)
_TRANSITION = (
    *("schema", "id", "tenant", "split", "world", "task", "episode", "step", "after", "effect"),
    *("call", "answer", "elapsed_s", "recorded_at"),
)


_spell = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def transition_to_record(transition: Transition) -> dict[str, JsonValue]:
    """Give a transition as a JSON object with every field and its content-addressed `id`.

    Raises:
        NotJson: a value in it has no JSON form, or a field is not what the vocabulary says.
    """
    call = transition.call
    record: dict[str, JsonValue] = {
        "schema": transition.schema,
        "id": transition.id,
        "tenant": transition.tenant,
        "split": str(transition.split),
        "world": {"name": transition.world.name, "seed": transition.world.seed},
        "task": transition.task,
        "episode": transition.episode,
        "step": transition.step,
        "after": transition.after,
        "effect": str(transition.effect),
        "call": {"tool": call.tool, "args": dict(call.args), "call_id": call.call_id, "node": call.node},
        "answer": answer_to_record(transition.answer),
        "elapsed_s": transition.elapsed_s,
        "recorded_at": transition.recorded_at,
    }
    _read_transition(record)
    return record


def transition_from_record(record: object, *, checked: bool = False) -> Transition:
    """Read what `transition_to_record` wrote, or a person did.

    Args:
        record: a JSON object.
        checked: the text of the record was compared with a checksum, so that its id need not be made again.

    Raises:
        NotJson: names the missing, wrong or unknown field; a newer schema; an `id` that the content
            does not have.
    """
    transition = _read_transition(record)
    if not checked and isinstance(record, dict) and "id" in record and record["id"] != transition.id:
        raise NotJson(
            f"id: {_shown(record['id'])} is not the id of this content ({transition.id}); "
            "if the row was edited on purpose, remove its id"
        )
    return transition


def answer_to_record(answer: Answer) -> dict[str, JsonValue]:
    """Give an answer as a JSON object with every field; its values are taken as they are."""
    record: dict[str, JsonValue] = {
        "content": answer.content,
        "provenance": str(answer.provenance),
        "support": answer.support,
        "artifact": answer.artifact,
        "error": answer.error,
        "error_type": answer.error_type,
        "update": None if answer.update is None else dict(answer.update),
        "cites": list(answer.cites),
        "why": answer.why,
    }
    if answer.changes:
        record["changes"] = [dict(change) for change in answer.changes]
    return record


def answer_from_record(record: object) -> Answer:
    """Read what `answer_to_record` wrote.

    Raises:
        NotJson: names the missing, wrong or unknown field.
    """
    return _read_answer(record, "answer")


def dump_transition(transition: Transition) -> str:
    """Spell a transition as one line of ASCII JSON without its line end; `load_transition` reads it.

    Keeps what the canonical form would not: the order of keys and 1.0 beside 1, which the agent saw.

    Raises:
        NotJson: see `transition_to_record`.
    """
    return dump_record(transition_to_record(transition))


def dump_record(record: Mapping[str, JsonValue]) -> str:
    """Spell a record as one line; see `dump_transition`."""
    try:
        line = _spell(record)
    except (ValueError, TypeError, RecursionError) as error:
        raise NotJson(f"cannot be written as JSON: {error}") from None
    check_bounds(line)
    return line


def load_transition(text: str | bytes) -> Transition:
    """Read one line of JSON; see `transition_from_record`, and `read_json` for its bounds."""
    return transition_from_record(read_json(text))


def _read_transition(record: object) -> Transition:
    fields = _Fields(record, "", known=None)
    schema = fields.take("schema", _whole)
    if schema > SCHEMA_VERSION:
        raise NotJson(
            f"schema: {_shown(schema)} is newer than {SCHEMA_VERSION}, the newest here; update dreamgym-kit"
        )
    if schema < 1:
        raise NotJson(f"schema: there is no schema {_shown(schema)}; known: 1 to {SCHEMA_VERSION}")
    fields.refuse_unknown(_TRANSITION)
    return Transition(
        call=fields.take("call", _read_call),
        answer=fields.take("answer", _read_answer),
        effect=fields.take("effect", _name_of(Effect)),
        episode=fields.take("episode", _text),
        step=fields.take("step", _step),
        world=fields.take("world", _read_world, World()),
        task=fields.take("task", _text, ""),
        after=fields.take("after", _text, ""),
        tenant=fields.take("tenant", _text, "default"),
        split=fields.take("split", _name_of(Split), Split.TRAIN),
        elapsed_s=fields.take("elapsed_s", _number, 0.0),
        recorded_at=fields.take("recorded_at", _number, 0.0),
        schema=schema,
    )


def _read_world(value: object, where: str) -> World:
    fields = _Fields(value, where, known=_WORLD)
    return World(name=fields.take("name", _text), seed=fields.take("seed", _whole, 0))


def _read_call(value: object, where: str) -> Call:
    fields = _Fields(value, where, known=_CALL)
    return Call(
        tool=fields.take("tool", _text),
        args=fields.take("args", _object),
        call_id=fields.take("call_id", _text_or_none, None),
        node=fields.take("node", _text_or_none, None),
    )


def _read_answer(value: object, where: str) -> Answer:
    fields = _Fields(value, where, known=_ANSWER)
    return Answer(
        content=fields.take("content", _anything, None),
        provenance=fields.take("provenance", _name_of(Provenance)),
        support=fields.take("support", _share, 1.0),
        artifact=fields.take("artifact", _anything, None),
        error=fields.take("error", _text_or_none, None),
        error_type=fields.take("error_type", _text_or_none, None),
        update=fields.take("update", _object_or_none, None),
        cites=fields.take("cites", _texts, ()),
        why=fields.take("why", _text, ""),
        changes=fields.take("changes", _objects, ()),
    )


class _Required:
    """Marks a field without a default."""


_REQUIRED = _Required()


class _Fields:
    """The fields of one object, each read once and named by its path when it is wrong."""

    def __init__(self, value: object, where: str, *, known: Collection[str] | None) -> None:
        if not isinstance(value, dict):
            raise NotJson(f"{where or 'a transition'}: expected an object, got {_shown(value)}")
        self._value = value
        self._where = where
        if known is not None:
            self.refuse_unknown(known)

    def refuse_unknown(self, known: Collection[str]) -> None:
        unknown = next((name for name in self._value if name not in known), None)
        if unknown is not None:
            raise NotJson(f"{self._path(unknown)}: no such field; known: {', '.join(known)}")

    def take(self, name: str, read: Callable[[object, str], T], default: T | _Required = _REQUIRED) -> T:
        if name in self._value:
            return read(self._value[name], f"{self._where}.{name}" if self._where else name)
        if isinstance(default, _Required):
            raise NotJson(f"{self._path(name)}: missing")
        return default

    def _path(self, name: object) -> str:
        short = name if isinstance(name, str) and name.isidentifier() and len(name) <= 60 else _shown(name)
        return f"{self._where}.{short}" if self._where else short


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise NotJson(f"{where}: expected text, got {_shown(value)}")
    return value


def _text_or_none(value: object, where: str) -> str | None:
    return None if value is None else _text(value, where)


def _texts(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise NotJson(f"{where}: expected a list of texts, got {_shown(value)}")
    return tuple(_text(item, f"{where}[{place}]") for place, item in enumerate(value))


def _objects(value: object, where: str) -> tuple[Mapping[str, JsonValue], ...]:
    if not isinstance(value, list):
        raise NotJson(f"{where}: expected a list of objects, got {_shown(value)}")
    return tuple(_object(item, f"{where}[{place}]") for place, item in enumerate(value))


def _whole(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise NotJson(f"{where}: expected a whole number, got {_shown(value)}")
    return value


def _step(value: object, where: str) -> int:
    step = _whole(value, where)
    if step < 1:
        raise NotJson(f"{where}: steps count from 1, got {_shown(step)}")
    return step


def _number(value: object, where: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with suppress(OverflowError):  # isfinite of an integer beyond every float
            if isfinite(value):
                return value
    raise NotJson(f"{where}: expected a finite number, got {_shown(value)}")


def _share(value: object, where: str) -> float:
    share = _number(value, where)
    if not 0 <= share <= 1:
        raise NotJson(f"{where}: expected a number from 0 to 1, got {share:g}")
    return share


def _object(value: object, where: str) -> Mapping[str, JsonValue]:
    if not isinstance(value, dict):
        raise NotJson(f"{where}: expected an object, got {_shown(value)}")
    return value


def _object_or_none(value: object, where: str) -> Mapping[str, JsonValue] | None:
    return None if value is None else _object(value, where)


def _anything(value: object, _where: str) -> JsonValue:
    return value


def _name_of(kind: type[Name]) -> Callable[[object, str], Name]:
    def read(value: object, where: str) -> Name:
        name = _text(value, where)
        try:
            return kind(name)
        except ValueError:
            raise NotJson(f"{where}: {_shown(name)} is none of {', '.join(kind)}") from None

    return read


def _shown(value: object) -> str:
    """A value as a short word for a message; never a whole payload."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            return repr(value[:40])
        case float():
            return f"{value:g}"
        case int():
            return str(value) if value.bit_length() < 64 else "a very large number"
        case dict():
            return "an object"
        case list():
            return "a list"
    return type(value).__name__
