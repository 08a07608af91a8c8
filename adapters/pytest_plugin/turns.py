"""What the agent's model was told and said, as a cassette keeps it.

A turn names the messages that it was told by their digests and spells only those that no earlier turn of
its task was told: so a file reads like the conversation, and grows no faster.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dreamgym_kit.adapters.langgraph.tapes import message_of
from dreamgym_kit.errors import NotJson
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.replay.fields import Fields, items, mapping, text, texts, whole

_FIELDS = ("task", "turn", "model", "tools", "options", "told", "new", "said")


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One answer of the agent's model.

    Attributes:
        told: digests of the messages that it was told.
        new: those of the messages that are spelt here, in order.
        said: the answer (`tapes.answer_record`).
    """

    task: str
    number: int
    model: str
    tools: tuple[str, ...]
    options: str
    told: tuple[str, ...]
    new: tuple[Mapping[str, JsonValue], ...]
    said: Mapping[str, JsonValue]


def turn_to_record(turn: ModelTurn) -> dict[str, JsonValue]:
    """A turn as one JSON object."""
    return {
        "task": turn.task,
        "turn": turn.number,
        "new": [dict(one) for one in turn.new],
        "said": dict(turn.said),
        "model": turn.model,
        "tools": list(turn.tools),
        "options": turn.options,
        "told": list(turn.told),
    }


def turn_from_record(record: object) -> ModelTurn:
    """Read what `turn_to_record` wrote.

    Raises:
        NotJson: names the wrong field.
    """
    fields = Fields(record, "", _FIELDS, what="a recorded turn")
    fields.refuse_unknown()
    turn = ModelTurn(
        task=fields.take("task", text),
        number=fields.take("turn", whole),
        model=fields.take("model", text),
        tools=fields.take("tools", texts),
        options=fields.take("options", text),
        told=fields.take("told", texts),
        new=tuple(mapping(one, "new") for one in fields.take("new", items)),
        said=fields.take("said", mapping),
    )
    try:
        message_of(turn.said)
    except ValueError as error:
        raise NotJson(f"said: {' '.join(str(error).split())[:200]}") from None
    return turn
