"""Candidate writes: tools with the roles of their arguments, mined from recorded successful writes.

An argument is a thing in some role, a value that the request names, a field of the thing that the write is
for (or a simple share of it), or a constant that recurs in other worlds. Free text is how somebody words a
message: it is no part of what a write is, and two writes that differ in nothing else are one.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from dreamgym_kit.dream.checklist.focus import Focus
from dreamgym_kit.dream.checklist.things import Things
from dreamgym_kit.dream.checklist.wording import Reading
from dreamgym_kit.dream.state.values import as_number, spell
from dreamgym_kit.plain import JsonValue

_SHARES = tuple(Fraction(one) for one in ("1", "1/2", "1/4", "3/4", "1/3", "2/3", "1/10", "2"))
_LEAST_WORLDS = 2  # that must show a pattern


class Source(NamedTuple):
    """Where an argument's value comes from."""

    how: str  # thing, said, field, constant, text
    what: str = ""  # role, kind of value, field, or the constant as spelled
    share: str = "1"  # of a field


class Write(NamedTuple):
    """A write as it is compared: its tool, and its arguments without free text, spelled."""

    tool: str
    args: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.tool}({', '.join(f'{name} {value}' for name, value in self.args)})"


class Pattern(NamedTuple):
    """What writes of one kind have in common."""

    tool: str
    args: tuple[tuple[str, Source], ...]

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the things that it is for."""
        return tuple(source.what for _, source in self.args if source.how == "thing")

    def __str__(self) -> str:
        return f"{self.tool}({', '.join(f'{name} {_told(source)}' for name, source in self.args)})"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A write that there might have to be."""

    pattern: Pattern
    write: Write
    things: tuple[str, ...]  # that it is for


class Scene(NamedTuple):
    """A request in its world: what candidates are made of and judged by."""

    things: Things
    reading: Reading
    focus: Focus


def is_wording(value: JsonValue) -> bool:
    """Whether a value is something that somebody words: several words."""
    return isinstance(value, str) and len(value.split()) > 2


def write_of(tool: str, args: Mapping[str, JsonValue]) -> Write:
    """A call as it is compared with others."""
    kept = ((name, _spelled(value)) for name, value in sorted(args.items()) if not is_wording(value))
    return Write(tool, tuple(kept))


def pattern_of(scene: Scene, tool: str, args: Mapping[str, JsonValue]) -> Pattern | None:
    """What a write is in this scene; None where an argument comes from nowhere that can be named."""
    targets = [str(value) for value in args.values() if str(value) in scene.focus.own]
    found = []
    for name, value in sorted(args.items()):
        source = _source(scene, value, targets)
        if source is None:
            return None
        if source.how != "text":
            found.append((name, source))
    return Pattern(tool, tuple(found))


def mine_patterns(seen: Iterable[tuple[str, Pattern]]) -> tuple[Pattern, ...]:
    """The patterns that recur: (world, pattern) of each successful write."""
    worlds: dict[Pattern, set[str]] = defaultdict(set)
    for world, pattern in seen:
        worlds[pattern].add(world)
    return tuple(sorted(one for one, shown in worlds.items() if len(shown) >= _LEAST_WORLDS))


def candidates_in(scene: Scene, patterns: Sequence[Pattern]) -> list[Candidate]:
    """Every write that the patterns can make of a scene, none twice."""
    found: dict[Write, Candidate] = {}
    there = scene.focus.roles.keys()
    for pattern in patterns:
        if there >= set(pattern.roles):
            for one in _made(scene, pattern):
                found.setdefault(one.write, one)
    return list(found.values())


def _made(scene: Scene, pattern: Pattern) -> Iterator[Candidate]:
    pools = [scene.focus.roles.get(role, ()) for role in pattern.roles]
    for chosen in product(*pools):
        if any(scene.focus.own[one] != role for one, role in zip(chosen, pattern.roles, strict=True)):
            continue  # the same thing in another role is judged there
        things = iter(chosen)
        choices: list[list[tuple[str, str]]] = []
        for name, source in pattern.args:
            values = [next(things)] if source.how == "thing" else list(_values(scene, source, chosen))
            choices.append([(name, _spelled(value)) for value in values])
        for args in product(*choices):
            yield Candidate(pattern, Write(pattern.tool, args), chosen)


def _values(scene: Scene, source: Source, targets: Sequence[str]) -> Iterator[JsonValue]:
    if source.how == "constant":
        yield source.what
    elif source.how == "said":
        yield from scene.reading.mentions.get(source.what, ())
    elif source.how == "field":
        for one in targets:
            value = scene.things.fields.get(one, {}).get(source.what)
            made = None if value is None else _shared(value, Fraction(source.share))
            if made is not None:
                yield made


def _source(scene: Scene, value: JsonValue, targets: Sequence[str]) -> Source | None:
    text = _spelled(value)
    if text in scene.focus.own:
        return Source("thing", scene.focus.own[text])
    for kind, said in scene.reading.mentions.items():
        if text in said:
            return Source("said", kind)
    if as_number(value) is not None:
        return _as_share(scene, value, targets) or Source("constant", text)
    if is_wording(value):
        return Source("text")
    if text in scene.things.kinds:  # a thing that the request has nothing to do with
        return None
    return Source("constant", text)


def _as_share(scene: Scene, value: JsonValue, targets: Sequence[str]) -> Source | None:
    for share in _SHARES:
        for one in targets:
            for name, known in sorted(scene.things.fields.get(one, {}).items()):
                made = _shared(known, share)
                if made is not None and spell(made) == spell(value):
                    return Source("field", name, str(share))
    return None


def _shared(value: JsonValue, share: Fraction) -> JsonValue | None:
    """A share of a number, in the form that the number has."""
    number = as_number(value)
    if number is None:
        return None
    if share == 1:
        return value
    if isinstance(value, str):
        decimals = len(value.partition(".")[2])
        scaled = Fraction(value) * share * 10**decimals
        return f"{int(scaled) / 10**decimals:.{decimals}f}"
    exact = Fraction(value) * share
    return int(exact) if exact.denominator == 1 else float(exact)


def _spelled(value: JsonValue) -> str:
    return value if isinstance(value, str) else spell(value)


def _told(source: Source) -> str:
    share = "" if source.share == "1" else f"{source.share} of "
    return f"{share}{source.what}"
