"""Calls and answers of one conversation, joined: by id where there is one, else by name and order.

Ids are not to be trusted: some recorders give all calls of a conversation one id, some answers have none. An
answer goes to the oldest open call of its id in the latest turn that asked, then to older turns.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dreamgym_kit.adapters.traces.seen import SeenCall, Unread
from dreamgym_kit.adapters.traces.values import Reply, answer, arguments
from dreamgym_kit.plain import JsonValue


@dataclass(frozen=True, slots=True)
class Asked:
    """The model asks for a call."""

    turn: int
    tool: str
    args: JsonValue
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """A tool's answer."""

    reply: Reply
    call_id: str | None = None
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class Unclear:
    """A part of a conversation that looks like a call or an answer and is neither."""

    why: str


Said = Asked | Told | Unclear


def joined(
    said: Iterable[Said], *, episode: str, line: int, descriptions: Mapping[str, str]
) -> Iterator[SeenCall | Unread]:
    """Give every call with its answer, in the order asked, and every answer that has no call."""
    asked: list[Asked] = []
    open_calls: list[int] = []
    answers: dict[int, Reply] = {}
    for item in said:
        if isinstance(item, Asked):
            open_calls.append(len(asked))
            asked.append(item)
        elif isinstance(item, Told):
            place = _find(item, asked, open_calls)
            if place is None:
                yield Unread(line, f"an answer{_named(item)} to no call in this conversation")
            else:
                open_calls.remove(place)
                answers[place] = item.reply
        else:
            yield Unread(line, item.why)
    for place, call in enumerate(asked):
        found = answers.get(place)
        read = arguments(call.args)
        yield SeenCall(
            line=line,
            episode=episode,
            tool=call.tool,
            args=read.args,
            answer=None if found is None else answer(found),
            call_id=call.call_id,
            description=descriptions.get(call.tool, ""),
            turn=call.turn,
            bare=read.bare,
        )


def _find(told: Told, asked: list[Asked], open_calls: list[int]) -> int | None:
    """The open call that an answer belongs to."""
    if told.call_id is not None:
        fitting = [place for place in open_calls if asked[place].call_id == told.call_id]
    else:
        fitting = [place for place in open_calls if told.tool in (None, asked[place].tool)]
    if not fitting:
        return None
    latest = asked[fitting[-1]].turn
    return next(place for place in fitting if asked[place].turn == latest)


def _named(told: Told) -> str:
    return f" of {told.tool}" if told.tool else f" ({told.call_id})" if told.call_id else ""
