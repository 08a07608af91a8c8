"""Names in the gate that fit nothing there is: a rule with a slip in it would hold for ever.

Told beside the rule and as a warning, never refused: `delete_*` may be there for a tool to come.
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase

from dreamgym_kit.settings.model import GateSettings


def unmatched_tools(gate: GateSettings, tools: Iterable[str]) -> list[str]:
    """The patterns of `forbid` and `max` that fit no tool of the graph."""
    known = list(tools)
    asked = dict.fromkeys([*gate.forbid, *gate.max])
    return [pattern for pattern in asked if not any(fnmatchcase(tool, pattern) for tool in known)]


def unmatched_kinds(gate: GateSettings, kinds: Iterable[str]) -> list[str]:
    """The patterns of `findings` that fit no kind."""
    known = list(kinds)
    return [pattern for pattern in gate.findings if not any(fnmatchcase(kind, pattern) for kind in known)]


def told(gate: GateSettings, tools: Iterable[str], kinds: Iterable[str]) -> Iterator[str]:
    """A sentence for each of them, with the name that may have been meant."""
    tools, kinds = list(tools), list(kinds)
    for pattern in unmatched_tools(gate, tools):
        rule = "forbid" if pattern in gate.forbid else "max"
        yield f"gate: {rule} '{pattern}' fits no tool of this graph{_near(pattern, tools)}"
    for pattern in unmatched_kinds(gate, kinds):
        yield f"gate: findings '{pattern}' fits no kind of finding{_near(pattern, kinds)}"


def _near(pattern: str, known: list[str]) -> str:
    alike = {name.casefold(): name for name in known}
    near = get_close_matches(pattern.casefold(), list(alike), n=1)
    return f"; did you mean '{alike[near[0]]}'?" if near else ""
