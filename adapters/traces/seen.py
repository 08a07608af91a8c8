"""What every format gives, and what becomes of it: calls, turns of models, or why something is neither.

Formats know where tool, arguments and answer lie. Here seen calls become transitions: order, turns, and the
name of the state that each call met. Calls of one turn of the model do not see each other, as in the ledger.
Where a format tells turns, they hold; else a turn ends where a model call of that trace ends; else calls that
overlap in time are one turn. A call that nobody answered may have changed the world, so it counts among the
writes, and gives no transition.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from dreamgym_kit.dream.call_log import CallPosition, WriteLog
from dreamgym_kit.replay.transfer import UnreadableLine
from dreamgym_kit.routing.effects import guess_effect
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One JSON object of a file: a span, a run, an observation, a conversation."""

    line: int  # where it begins, 1-based
    value: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Passed:
    """Something that was understood and holds no call."""

    kind: str  # "model span", "thought", "span"


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A tool call in a trace. Order within an episode: by `turn` where the format tells it, else by time."""

    line: int
    episode: str
    tool: str
    args: Mapping[str, JsonValue]
    answer: Answer | None  # None: the trace ends before it, or left it out
    call_id: str | None = None
    node: str | None = None
    description: str = ""
    turn: int | None = None  # the model's turn that asked; None: found from `SeenTurn`s and times
    index: int | None = None  # place among the calls of its turn, where a model span tells it
    start_s: float = 0.0  # Unix time; 0.0 where the format has no times
    end_s: float = 0.0
    span: str = ""  # id of the span or run
    bare: bool = False  # the arguments are one value without its name


RequestedCall = tuple[str | None, str, Mapping[str, JsonValue]]  # call id, tool, arguments


@dataclass(frozen=True, slots=True)
class SeenTurn:
    """A model call in a trace: what it asked for, and when it was done."""

    line: int
    episode: str
    end_s: float
    calls: tuple[RequestedCall, ...] = ()


Item = SeenCall | SeenTurn | UnreadableLine | Passed | Transition


Effects = Callable[[str, str], Effect]  # tool name, description


@dataclass(frozen=True, slots=True)
class Belonging:
    """Where imported transitions belong; None: where they say themselves, else the default."""

    environment: Environment | None = None
    tenant: str | None = None


def guessed(name: str, description: str) -> Effect:
    """The effect that name and description suggest; see `gate.effects`."""
    return guess_effect(name, description)[0]


def transitions_of(
    calls: Iterable[SeenCall], turns: Iterable[SeenTurn], belonging: Belonging, effects: Effects = guessed
) -> Iterator[Transition | UnreadableLine]:
    """Put each episode in order and name the states; episodes come in the order in which they begin."""
    episodes: dict[str, list[SeenCall]] = defaultdict(list)
    for call in calls:
        episodes[call.episode].append(call)
    ends: dict[str, list[float]] = defaultdict(list)
    for turn in turns:
        ends[turn.episode].append(turn.end_s)
    for name, episode in episodes.items():
        yield from _episode(_with_turns(episode, sorted(ends[name])), belonging, effects)


def _with_turns(calls: Sequence[SeenCall], ends: Sequence[float]) -> list[SeenCall]:
    if all(call.turn is not None for call in calls):
        return sorted(calls, key=lambda call: call.turn or 0)
    ordered = sorted(calls, key=lambda call: call.start_s)
    turn, latest, model_calls = 0, ordered[0].start_s, bisect_right(ends, ordered[0].start_s)
    numbered: list[SeenCall] = []
    for call in ordered:
        before = bisect_right(ends, call.start_s)
        if (before > model_calls) if ends else (bool(numbered) and call.start_s >= latest):
            turn, latest = turn + 1, call.end_s
        model_calls, latest = before, max(latest, call.end_s)
        numbered.append(replace(call, turn=turn))
    by_turn = groupby(numbered, key=lambda call: call.turn)
    return [call for _, together in by_turn for call in _in_order(list(together))]


def _in_order(together: list[SeenCall]) -> list[SeenCall]:
    """Calls of one turn in the order asked, where all of them tell it: threads start them in any order."""
    if any(call.index is None for call in together):
        return together
    return sorted(together, key=lambda call: call.index or 0)


def _episode(
    calls: Sequence[SeenCall], belonging: Belonging, effects: Effects
) -> Iterator[Transition | UnreadableLine]:
    writes = WriteLog()
    for step, seen in enumerate(calls, start=1):
        turn = seen.turn or 0
        call = Call(seen.tool, seen.args, seen.call_id, seen.node)
        effect = effects(seen.tool, seen.description)
        if seen.answer is None:
            yield UnreadableLine(seen.line, _unanswered(seen), unanswered=True)
        else:
            yield Transition(
                call=call,
                answer=seen.answer,
                effect=effect,
                episode=seen.episode,
                step=step,
                environment=belonging.environment or Environment(),
                after=writes.before(turn),
                tenant=belonging.tenant or "default",
                elapsed_s=max(0.0, seen.end_s - seen.start_s) if seen.start_s else 0.0,
                recorded_at=seen.start_s,
            )
        if effect.changes_environment:
            writes.add(CallPosition(turn, step, step), call.key)


def _unanswered(seen: SeenCall) -> str:
    named = f" (span {seen.span})" if seen.span else f" ({seen.call_id})" if seen.call_id else ""
    return f"call of {seen.tool}{named}: the trace holds no answer to it"
