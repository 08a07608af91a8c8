"""What a request that is not in the cassette came nearest to, and what differed, piece by piece."""

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from dreamgym_kit.adapters.langgraph.tapes import Asked
from dreamgym_kit.adapters.pytest_plugin.turns import ModelTurn
from dreamgym_kit.canonical import canonical
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.ports import Situation
from dreamgym_kit.report.clean import clean
from dreamgym_kit.vocabulary import Call, Transition

_MOST = 300  # characters of one value
_MISSING = object()


def shown(value: object) -> str:
    """A value on one line, as Python's repr would have it, cut where it is long; no terminal obeys it."""
    text = "nothing" if value is _MISSING else repr(value)
    return clean(text if len(text) <= _MOST else f"{text[: _MOST - 3]}...")


def shown_call(tool: str, args: Mapping[str, object]) -> str:
    """A call as one would write it."""
    return f"{clean(tool)}({', '.join(f'{clean(name)}={shown(value)}' for name, value in args.items())})"


def changes(recorded: JsonValue, now: JsonValue, where: str = "") -> list[str]:
    """Where two values differ, path by path: "payment: recorded 'p1', now 'p2'"."""
    if _same(recorded, now):
        return []
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        names = [*recorded, *(name for name in now if name not in recorded)]
        return [
            line
            for name in names
            for line in changes(
                recorded.get(name, _MISSING),
                now.get(name, _MISSING),
                f"{where}.{name}" if where else str(name),
            )
        ]
    if isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        pairs = enumerate(zip(recorded, now, strict=True))
        return [line for place, (old, new) in pairs for line in changes(old, new, f"{where}[{place}]")]
    return [f"{clean(where) or 'value'}: recorded {shown(recorded)}, now {shown(now)}"]


def call_miss(call: Call, situation: Situation, recorded: Sequence[Transition]) -> str:
    """Say of a tool call that no recording answers which one came nearest."""
    first = f"{_written(call)} is not in the cassette"
    same = [entry for entry in recorded if entry.call.tool == call.tool]
    if not same:
        return f"{first}\n  {_other_tools(call.tool, recorded)}"
    after, world = situation.after, situation.world
    nearest = min(
        same,
        key=lambda entry: (
            *(_distance(entry.call.args, call.args), entry.world != world, entry.after != after),
            *(entry.task != situation.task, entry.step),
        ),
    )
    lines = [first, f"  nearest: {_written(nearest.call)}, call {nearest.step} of {nearest.task}"]
    different = changes(dict(nearest.call.args), dict(call.args))
    replied, now = ([one.reply for one in each.replies] for each in (nearest.call, call))
    different += changes(replied, now, "replies")
    lines.extend(f"    {line}" for line in different)
    if nearest.world != world:
        lines.append(f"    world: recorded {clean(str(nearest.world))}, now {clean(str(world))}")
    if nearest.after != after:
        writes = [entry.call for entry in situation.history if entry.effect.changes_world]
        before = [
            entry.call
            for entry in recorded
            if entry.task == nearest.task and entry.step < nearest.step and entry.effect.changes_world
        ]
        lines.append("    what the agent changed before it differs:")
        lines.append(f"      recorded: {_calls(before)}")
        lines.append(f"      now:      {_calls(writes)}")
    if len(lines) == 2:
        lines.append("    recordings of this very call disagree, so neither is repeated")
    return "\n".join(lines)


def model_miss(
    asked: Asked,
    told: Sequence[str],
    turns: Sequence[ModelTurn],
    spelt: Mapping[str, Mapping[str, JsonValue]],
) -> str:
    """Say of a request to the agent's model that no recording answers which one came nearest.

    Args:
        asked: what the model was asked now.
        told: its messages' digests.
        turns: what is in the cassette.
        spelt: messages by their digest.
    """
    first = f"the agent's model ({clean(asked.model)}) was asked something that is not in the cassette"
    if not turns:
        return (
            f"{first}\n  no answer of a model was recorded for this test (models='live': it answers itself)"
        )
    nearest = max(turns, key=lambda turn: (_in_common(turn.told, told), -abs(len(turn.told) - len(told))))
    lines = [first, f"  nearest: turn {nearest.turn} of {nearest.task}"]
    if nearest.model != asked.model:
        lines.append(f"    model: recorded {shown(nearest.model)}, now {shown(asked.model)}")
    if nearest.tools != asked.tools:
        lines.append(f"    tools: recorded {', '.join(nearest.tools)}, now {', '.join(asked.tools)}")
    place = _in_common(nearest.told, told)
    if tuple(nearest.told) != tuple(told):
        old = spelt.get(nearest.told[place], {}) if place < len(nearest.told) else _MISSING
        new = asked.messages[place] if place < len(told) else _MISSING
        role = new.get("role") if isinstance(new, Mapping) else "?"
        name = f"message {place + 1} ({role})"
        old, new = (dict(one) if isinstance(one, Mapping) else one for one in (old, new))
        lines.extend(f"    {name} {line}" for line in changes(old, new))
    elif len(lines) == 2:
        lines.append("    what the tools or options say of themselves differs (a description, a schema)")
    return "\n".join(lines)


def _in_common(recorded: Sequence[str], now: Sequence[str]) -> int:
    """How many messages are the same from the first on."""
    count = 0
    for old, new in zip(recorded, now, strict=False):
        if old != new:
            break
        count += 1
    return count


def _distance(recorded: Mapping[str, JsonValue], now: Mapping[str, JsonValue]) -> tuple[int, int]:
    """How many arguments differ, and by how many characters all in all."""
    names = set(recorded) | set(now)
    different = [name for name in names if not _same(recorded.get(name, _MISSING), now.get(name, _MISSING))]
    far = sum(abs(len(_spelled(recorded.get(name))) - len(_spelled(now.get(name)))) for name in different)
    return len(different), far


def _written(call: Call) -> str:
    return shown_call(call.tool, call.args)


def _same(recorded: object, now: object) -> bool:
    """Equal as recordings are looked up: 1 is 1.0, and True is neither."""
    if recorded is _MISSING or now is _MISSING:
        return recorded is now
    return canonical(recorded) == canonical(now)


def _spelled(value: JsonValue) -> str:
    return json.dumps(value, default=str)


def _calls(calls: Sequence[Call]) -> str:
    return " -> ".join(_written(call) for call in calls) or "nothing"


def _other_tools(tool: str, recorded: Sequence[Transition]) -> str:
    names = sorted({entry.call.tool for entry in recorded})
    if not names:
        return "the cassette holds no call at all"
    near = get_close_matches(tool, names, n=1)
    hint = f"; nearest name: {near[0]}" if near else ""
    return f"no call of {clean(tool)} was recorded, only of {', '.join(names)}{hint}"
