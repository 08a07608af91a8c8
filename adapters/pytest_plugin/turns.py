"""What the agent's model was told and said, as a cassette keeps it.

A turn names the messages that it was told by their digests and spells only those that no earlier turn of
its task was told: so a file reads like the conversation, and grows no faster.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dreamgym_kit.adapters.langgraph.tapes import message_of
from dreamgym_kit.codec import Codec
from dreamgym_kit.errors import NotJson
from dreamgym_kit.plain import JsonValue


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One answer of the agent's model.

    Attributes:
        turn: its number in the task.
        new: those of the messages that are spelt here, in order.
        said: the answer (`tapes.answer_record`).
        told: digests of the messages that it was told.
    """

    task: str
    turn: int
    new: tuple[Mapping[str, JsonValue], ...]
    said: Mapping[str, JsonValue]
    model: str
    tools: tuple[str, ...]
    options: str
    told: tuple[str, ...]


TURNS = Codec(ModelTurn)


def turn_from_record(record: object) -> ModelTurn:
    """Read what `TURNS` wrote.

    Raises:
        NotJson: names the wrong field.
    """
    turn = TURNS.read(record, what="a recorded turn")
    try:
        message_of(turn.said)
    except ValueError as error:
        raise NotJson(f"said: {' '.join(str(error).split())[:200]}") from None
    return turn
