"""What is absent, as against what was merely never seen: mined from failures on values that occur nowhere.

"Not found" of something that is there is the worst error of a dream, so an absence is claimed of few
arguments: those whose values, when calls go well, were shown by one read beforehand (the source), whose
unseen values have always failed where as much of that source was known, nearly as much as recorded worlds
came to show, and whose failures are about that argument: the message repeats its value, or all other values
of the call were known.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dreamgym_kit.dream.state.history import HistoryStep
from dreamgym_kit.dream.state.values import is_key, spell
from dreamgym_kit.dream.state.views import State, stands_in

_LEAST = 6  # examples either way
_MIN_WORLDS = 3
_NOT_THERE = re.compile(
    r"not[ _-]?(?:be )?(?:found|exist|known)|n[o']t exist|no such|unknown|unrecogni[sz]ed|non-?existent"
    r"|(?:cannot|can't|could not|couldn't|unable to) (?:find|locate)|\bno \w+ (?:with|named|called|\S*\d)"
    r"|NotFound|KeyError|LookupError|\b404\b|invalid \w*\bid\b",
    re.IGNORECASE,
)
_WHOLE = 0.9  # a world that was crawled in part knows many values that exist, and lacks many


class Absence(NamedTuple):
    """From how many known views of a read on a value that occurs nowhere is absent."""

    source: str
    least: int


Absences = Mapping[tuple[str, str], Absence]
"""By (tool, argument)."""


class _Given(NamedTuple):
    """One argument of a call."""

    shown: frozenset[str]  # reads whose answers have its value
    failed: bool
    about: bool  # whether its failure is about this argument
    breadth: Mapping[str, int]
    world: str


@dataclass(slots=True)
class GivenValues:
    """The arguments of all calls, with what was known of them beforehand."""

    cases: dict[tuple[str, str], list[_Given]] = field(default_factory=lambda: defaultdict(list))

    def see(self, step: HistoryStep, state: State, world: str) -> None:
        """Take one call."""
        keys = {name: str(value) for name, value in step.args.items() if is_key(value)}
        shown = {name: state.shown_by(text) for name, text in keys.items()}
        said = spell(step.seen) if step.failed else ""
        for name, text in keys.items():
            alone = all(shown[other] for other in keys if other != name)
            about = step.failed and (text in said or alone)
            self.cases[step.tool, name].append(_Given(shown[name], step.failed, about, state.breadth, world))

    def absences(self) -> dict[tuple[str, str], Absence]:
        """What can be claimed, and of how well known a world."""
        found = ((key, _claim(cases)) for key, cases in self.cases.items())
        return {key: claim for key, claim in found if claim is not None}


def _claim(cases: list[_Given]) -> Absence | None:
    worked = [case for case in cases if not case.failed]
    sources = Counter(tool for one in worked for tool in one.shown)
    if not sources:
        return None
    source, count = sources.most_common(1)[0]
    if count < _LEAST or len({one.world for one in worked if source in one.shown}) < _MIN_WORLDS:
        return None
    failures = [one for one in cases if one.about and not one.shown]
    if not failures:
        return None
    known = max((one.breadth.get(source, 0) for one in worked if not one.shown), default=0)
    least = max(known + 1, round(_WHOLE * _whole(cases, source)), 1)
    broad = [failure.world for failure in failures if failure.breadth.get(source, 0) >= least]
    enough = len(broad) >= _LEAST and len(set(broad)) >= _MIN_WORLDS
    return Absence(source, least) if enough else None


def _whole(cases: list[_Given], source: str) -> int:
    """How many views of the source a recorded world came to have in the end, in the middle of all worlds."""
    most: dict[str, int] = defaultdict(int)
    for case in cases:
        most[case.world] = max(most[case.world], case.breadth.get(source, 0))
    return sorted(most.values())[len(most) // 2]


def denied_by(step: HistoryStep) -> frozenset[str]:
    """What a failed call said not to be there: the arguments that it repeats, else all."""
    said = spell(step.seen)
    if not step.failed or _NOT_THERE.search(said) is None:
        return frozenset()
    keys = [str(value) for value in step.args.values() if is_key(value)]
    return frozenset([text for text in keys if stands_in(text, said)] or keys)


def surely_absent(absences: Absences, tool: str, keys: Mapping[str, str], state: State) -> Iterator[str]:
    """The arguments of a call whose values are absent from a world that is known well enough."""
    for (of, name), claim in absences.items():
        if of != tool or name not in keys or state.breadth.get(claim.source, 0) < claim.least:
            continue
        if not state.may_have(keys[name]):
            yield name
