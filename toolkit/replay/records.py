"""A transition as one JSON object, and back: the form of the buffer, of exports and of run journals.

Decides the names of the fields and which may be left out: those with a default in the vocabulary, and
`id`, which is computed from the content and compared when it is there. Whatever is written here can be
read here: the writer checks its own record with the reader's rules. Unknown fields are refused, so that
a misspelt one is not lost without a word.
"""

import json
from collections.abc import Mapping

from dreamgym_kit.errors import NotJson
from dreamgym_kit.jsonread import check_bounds, read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.replay.fields import (
    Fields,
    anything,
    items,
    mapping,
    name_of,
    number,
    shown,
    text,
    text_or_none,
    texts,
    whole,
)
from dreamgym_kit.replay.own_records import (
    ANSWER_FIELDS,
    CALL_FIELDS,
    TRANSITION_FIELDS,
    WORLD_FIELDS,
    read_own,
)
from dreamgym_kit.vocabulary import (
    SCHEMA_VERSION,
    Answer,
    Call,
    Effect,
    Provenance,
    Reply,
    Split,
    Transition,
    World,
)

_spell = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def transition_to_record(transition: Transition) -> dict[str, JsonValue]:
    """Give a transition as a JSON object with every field and its content-addressed `id`.

    Raises:
        NotJson: a value in it has no JSON form, or a field is not what the vocabulary says.
    """
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
        "call": _call_to_record(transition.call),
        "answer": answer_to_record(transition.answer),
        "elapsed_s": transition.elapsed_s,
        "recorded_at": transition.recorded_at,
    }
    if read_own(record) is None:
        _read_transition(record)
    return record


def _call_to_record(call: Call) -> dict[str, JsonValue]:
    record: dict[str, JsonValue] = {
        "tool": call.tool,
        "args": dict(call.args),
        "call_id": call.call_id,
        "node": call.node,
    }
    if call.replies:
        record["replies"] = [{"asked": one.asked, "reply": one.reply} for one in call.replies]
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
    transition = read_own(record) or _read_transition(record)
    if not checked and isinstance(record, dict) and "id" in record and record["id"] != transition.id:
        raise NotJson(
            f"id: {shown(record['id'])} is not the id of this content ({transition.id}); "
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
    fields = Fields(record, "", TRANSITION_FIELDS, what="a transition")
    schema = fields.take("schema", whole)
    if schema > SCHEMA_VERSION:
        raise NotJson(
            f"schema: {shown(schema)} is newer than {SCHEMA_VERSION}, the newest here; update dreamgym-kit"
        )
    if schema < 1:
        raise NotJson(f"schema: there is no schema {shown(schema)}; known: 1 to {SCHEMA_VERSION}")
    fields.refuse_unknown()
    return Transition(
        call=fields.take("call", _read_call),
        answer=fields.take("answer", _read_answer),
        effect=fields.take("effect", name_of(Effect)),
        episode=fields.take("episode", text),
        step=fields.take("step", _step),
        world=fields.take("world", _read_world, World()),
        task=fields.take("task", text, ""),
        after=fields.take("after", text, ""),
        tenant=fields.take("tenant", text, "default"),
        split=fields.take("split", name_of(Split), Split.TRAIN),
        elapsed_s=fields.take("elapsed_s", number, 0.0),
        recorded_at=fields.take("recorded_at", number, 0.0),
        schema=schema,
    )


def _read_world(value: object, where: str) -> World:
    fields = Fields(value, where, WORLD_FIELDS)
    fields.refuse_unknown()
    return World(name=fields.take("name", text), seed=fields.take("seed", whole, 0))


def _read_call(value: object, where: str) -> Call:
    fields = Fields(value, where, (*CALL_FIELDS, "replies"))
    fields.refuse_unknown()
    return Call(
        tool=fields.take("tool", text),
        args=fields.take("args", mapping),
        call_id=fields.take("call_id", text_or_none, None),
        node=fields.take("node", text_or_none, None),
        replies=fields.take("replies", _replies, ()),
    )


def _replies(value: object, where: str) -> tuple[Reply, ...]:
    return tuple(_read_reply(item, f"{where}[{place}]") for place, item in enumerate(items(value, where)))


def _read_reply(value: object, where: str) -> Reply:
    fields = Fields(value, where, ("asked", "reply"))
    fields.refuse_unknown()
    return Reply(asked=fields.take("asked", anything, None), reply=fields.take("reply", anything))


def _read_answer(value: object, where: str) -> Answer:
    fields = Fields(value, where, (*ANSWER_FIELDS, "changes"))
    fields.refuse_unknown()
    return Answer(
        content=fields.take("content", anything, None),
        provenance=fields.take("provenance", name_of(Provenance)),
        support=fields.take("support", _share, 1.0),
        artifact=fields.take("artifact", anything, None),
        error=fields.take("error", text_or_none, None),
        error_type=fields.take("error_type", text_or_none, None),
        update=fields.take("update", _mapping_or_none, None),
        cites=fields.take("cites", texts, ()),
        why=fields.take("why", text, ""),
        changes=fields.take("changes", _mappings, ()),
    )


def _step(value: object, where: str) -> int:
    step = whole(value, where)
    if step < 1:
        raise NotJson(f"{where}: steps count from 1, got {shown(step)}")
    return step


def _share(value: object, where: str) -> float:
    share = number(value, where)
    if not 0 <= share <= 1:
        raise NotJson(f"{where}: expected a number from 0 to 1, got {share:g}")
    return share


def _mapping_or_none(value: object, where: str) -> Mapping[str, JsonValue] | None:
    return None if value is None else mapping(value, where)


def _mappings(value: object, where: str) -> tuple[Mapping[str, JsonValue], ...]:
    return tuple(mapping(item, f"{where}[{place}]") for place, item in enumerate(items(value, where)))
