"""How an unanswered call differs from the recording that it came nearest to, piece by piece."""

from collections.abc import Iterable, Mapping, Sequence

from dreamgym_kit.dream.matching import MISSING, same
from dreamgym_kit.report.sanitize import clean
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Call, Nearest, Transition

_MOST = 300  # characters of one value


def shown(value: object, most: int = _MOST) -> str:
    """A value on one line, as Python's repr would have it, cut where it is long; no terminal obeys it."""
    text = "nothing" if value is MISSING else repr(value)
    return clean(text if len(text) <= most else f"{text[: most - 3]}...")


def shown_call(tool: str, args: Mapping[str, object]) -> str:
    """A call as one would write it."""
    return f"{clean(tool)}({', '.join(f'{clean(name)}={shown(value)}' for name, value in args.items())})"


def changes(recorded: JsonValue, now: JsonValue, where: str = "", most: int = _MOST) -> list[str]:
    """Where two values differ, path by path: "payment: recorded 'p1', now 'p2'"."""
    if same(recorded, now):
        return []
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        names = [*recorded, *(name for name in now if name not in recorded)]
        return [
            line
            for name in names
            for line in changes(
                recorded.get(name, MISSING),
                now.get(name, MISSING),
                f"{where}.{name}" if where else str(name),
                most,
            )
        ]
    if isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        pairs = enumerate(zip(recorded, now, strict=True))
        return [line for place, (old, new) in pairs for line in changes(old, new, f"{where}[{place}]", most)]
    return [f"{clean(where) or 'value'}: recorded {shown(recorded, most)}, now {shown(now, most)}"]


def format_nearest(call: Call, near: Nearest, history: Iterable[Transition], most: int = _MOST) -> list[str]:
    """Lines below an unanswered call: which recording came nearest, and what differs.

    Args:
        call: the call of now.
        near: the recording.
        history: the episode's calls before.
        most: characters shown of a value.
    """
    lines = [f"nearest recording ({clean(near.episode)}, call {near.step}):"]
    lines += [
        f"  {change}"
        for name in near.differs
        for change in changes(near.call.args.get(name, MISSING), call.args.get(name, MISSING), name, most)
    ]
    replied, now = ([reply.reply for reply in each.replies] for each in (near.call, call))
    lines += [f"  {change}" for change in changes(replied, now, "replies", most)]
    if near.elsewhere:
        writes = [step.call for step in history if step.effect.changes_environment]
        lines += [
            f"  changed before it: recorded {_calls(near.writes)}",
            f"                     now      {_calls(writes)}",
        ]
    answer = near.content if near.error is None else near.error
    lines.append(f"  {'answer' if near.error is None else 'error'}: {shown(answer, most)}")
    return lines


def _calls(calls: Sequence[Call]) -> str:
    return " -> ".join(shown_call(call.tool, call.args) for call in calls) or "nothing"
