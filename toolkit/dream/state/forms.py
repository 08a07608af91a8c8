"""The form of an answer: its shape, truth values and recurring texts, without what differs from call to call.

Each form of a tool's answer has a template of its own. Texts count as part of a form only where they recur
in other worlds; booleans always.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

from dreamgym_kit.dream.state.history import RecordedEpisode
from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.texts import kind_of_text
from dreamgym_kit.dream.state.values import field_path, is_number, walk
from dreamgym_kit.serialization import JsonValue

Enumerated = frozenset[tuple[str, str]]
"""(path, kind of text) that recur; see `_FIXED`."""

_WORDED = re.compile(r"[^\W\d_]")  # a kind without a letter is nothing but what differs
_MAX_KINDS = 10
_WIDE = 14
_NOTHING = Names({})
_FIXED = "="  # before the path of a text that stays itself where an argument happens to say it too


def form_of(seen: JsonValue, args: Names, enumerated: Enumerated = frozenset()) -> str:
    """Name the form of an answer to a call with these arguments."""
    return _Form(args, enumerated, failed(seen)).of(seen, "")


class _Form:
    def __init__(self, args: Names, enumerated: Enumerated, is_failure: bool) -> None:
        self._args, self._enumerated, self._is_failure = args, enumerated, is_failure

    def of(self, value: JsonValue, path: str) -> str:
        if isinstance(value, dict):
            if len(value) >= _WIDE:
                return "{..}"
            inside = (f"{key}:{self.of(item, f'{path}.{key}')}" for key, item in sorted(value.items()))
            return "{" + ",".join(inside) + "}"
        if isinstance(value, list):
            return f"[{self.of(value[0], f'{path}.0')}]" if value and self._is_failure else "[]"
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, bool):
            return "true" if value else "false"
        return "n" if is_number(value) else "null"

    def _text(self, value: str, path: str) -> str:
        if self._is_failure:
            return kind_of_text(value, self._args) if " " in value else "s"
        kind = kind_of_text(value, _NOTHING)
        if (_FIXED + path, kind) in self._enumerated:
            return kind
        kind = kind_of_text(value, self._args)
        return kind if (path, kind) in self._enumerated else "s"


def enumerated_texts(episodes: Iterable[RecordedEpisode]) -> dict[str, Enumerated]:
    """For each writing tool, the texts of its answers that are one of a few and recur in other worlds."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    worlds: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    said_by_args: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for episode in episodes:
        for step in episode.steps:
            if step.failed or not step.writes:
                continue
            args = Names({f"args.{key}": value for key, value in step.args.items()})
            for path, value in walk(step.seen):
                if isinstance(value, str) and not any(isinstance(part, int) for part in path):
                    name, kind = f".{field_path(path)}" if path else "", kind_of_text(value, args)
                    bare = kind_of_text(value, _NOTHING)
                    said_by_args[step.tool, name][bare] += kind != bare
                    kind = kind if _WORDED.search(kind) else "s"
                    counts[step.tool, name][kind] += 1
                    worlds[step.tool, name, kind].add(episode.world)
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for (tool, name), kinds in counts.items():
        recurring = [kind for kind in kinds if len(worlds[tool, name, kind]) > 1]
        if len(kinds) <= _MAX_KINDS and sum(kinds[kind] for kind in recurring) > 0.8 * sum(kinds.values()):
            found[tool].update((name, kind) for kind in recurring)
            by_args = said_by_args[tool, name]
            found[tool].update((_FIXED + name, kind) for kind in recurring if kinds[kind] > 3 * by_args[kind])
    return {tool: frozenset(texts) for tool, texts in found.items()}
