"""Names in the gate that fit nothing there is: a rule with a slip in it would hold for ever.

Told beside the rule and as a warning, never refused: `delete_*` may be there for a tool to come.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase

from dreamgym_kit.settings.schema import GateSettings


def unmatched(gate: GateSettings, tools: Iterable[str], kinds: Iterable[str]) -> list[tuple[str, str]]:
    """The patterns of the gate that fit nothing, each with a sentence that names what may have been meant."""
    tools, kinds = list(tools), list(kinds)
    of_tools = [
        (
            pattern,
            f"gate: {_rule(gate, pattern)} '{pattern}' fits no tool of this graph{_near(pattern, tools)}",
        )
        for pattern in dict.fromkeys([*gate.forbid, *gate.max_calls_per_tool])
        if not _fits(pattern, tools)
    ]
    return of_tools + [
        (pattern, f"gate: fail_on '{pattern}' fits no kind of finding{_near(pattern, kinds)}")
        for pattern in gate.fail_on
        if not _fits(pattern, kinds)
    ]


def _rule(gate: GateSettings, pattern: str) -> str:
    return "forbid" if pattern in gate.forbid else "max_calls_per_tool"


def _fits(pattern: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _near(pattern: str, known: list[str]) -> str:
    alike = {name.casefold(): name for name in known}
    near = get_close_matches(pattern.casefold(), list(alike), n=1)
    return f"; did you mean '{alike[near[0]]}'?" if near else ""
