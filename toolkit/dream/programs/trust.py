"""Confidence of each kind of answer, measured on recordings that the programs were not mined from."""

import copy
import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dreamgym_kit.dream.programs.collections import RecordedCalls
from dreamgym_kit.dream.programs.scope import Parameters
from dreamgym_kit.dream.programs.values import SeenStep, has_digits, same
from dreamgym_kit.dream.things import is_id_name
from dreamgym_kit.serialization import JsonValue

_FOLDS = 3
_MIN_WORLDS = 6  # from which on whole worlds are held out as well
_WORLD_FOLDS = 2
MININGS = _FOLDS + _WORLD_FOLDS
"""Maximum number of minings in `measure`."""
_Z = 0.84  # one-sided: four of five bounds hold
_Z_SURE = 1.64  # one-sided: 95 of 100 bounds hold
_SURE = 0.8  # confidence that only such a bound gives: few answers, all right, are no proof
NEAR = 0.5
"""Z-score for shares that are not a measured exactness: one-sided, 70% of such bounds hold."""
_UNTRIED = 0.3  # of a kind that no held-out recording tried
CORRECTED = ", corrected"
"""Mark of held-out episodes in which recorded answers replaced missing dreamed ones."""
FEW = ":few"
"""Mark of an answer that few recordings show; other marks name other deviations from recordings."""
SUSPECTED = ":suspected"
"""Mark of an answer that a write with a related name may have changed; it is measured only by itself."""
_THRESHOLDS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
_MIN_TRIED = 100  # minimum held-out answers for a curve


class CurvePoint(NamedTuple):
    """One threshold on held-out recordings.

    Attributes:
        threshold: 0..1.
        answered: 0..1, share of calls answered with that confidence.
        exact: 0..1, share of those that were exact; None where none was answered.
    """

    threshold: float
    answered: float
    exact: float | None


def lower_bound(right: float, total: float, z: float = _Z) -> float:
    """Wilson's lower bound of a share, 0..1."""
    if total <= 0:
        return 0.0
    share, scale = right / total, 1 + z * z / total
    spread = z * ((share * (1 - share) + z * z / (4 * total)) / total) ** 0.5
    bound: float = max(0.0, (share + z * z / (2 * total) - spread) / scale)
    return bound


_Kind = tuple[str, str, str]  # what was held out, the tool, the kind of answer


class _Count(NamedTuple):
    tried: int = 0
    right: int = 0


def _bound(count: _Count, before: float) -> float:
    """Return the lower bound of a share with the prior `before`; only a wide bound reaches `_SURE`."""
    right, total = count.right + 2 * before, count.tried + 2
    return min(lower_bound(right, total), max(lower_bound(right, total, _Z_SURE), _SURE - 0.01))


class Trust:
    """Counts of exact answers on held-out recordings, by tool and kind; for a new tool, by kind alone."""

    def __init__(self, counts: Mapping[_Kind, list[int]] | None = None, calls: int = 0) -> None:
        self.counts = defaultdict[_Kind, list[int]](lambda: [0, 0], counts or {})
        self.calls = calls  # of episodes that were held out as such

    def curve(self) -> tuple[CurvePoint, ...]:
        """Return coverage and exactness per threshold on held-out episodes; empty for too few answers."""
        kinds = [
            (self.confidence(tool, kind, 1.0), *count)
            for (held_out, tool, kind), count in list(self.counts.items())
            if held_out == "episode" and tool and _AFTER not in kind
        ]
        if sum(tried for _, tried, _ in kinds) < _MIN_TRIED:
            return ()
        points = []
        for threshold in _THRESHOLDS:
            sure = [(tried, right) for confidence, tried, right in kinds if confidence >= threshold]
            tried, right = sum(count for count, _ in sure), sum(count for _, count in sure)
            points.append(CurvePoint(threshold, tried / self.calls, right / tried if tried else None))
        return tuple(points)

    def count(self, held_out: str, tool: str, kind: str, *, right: bool, writes: Iterable[str] = ()) -> None:
        """Count one answer; `held_out`: "episode" or "world"; `writes`: tools that wrote before it."""
        general = (held_out, "", _general(kind))
        for key in (
            (held_out, tool, kind),
            general,
            *((held_out, tool, _after(kind, write)) for write in writes),
        ):
            self.counts[key][0] += 1
            self.counts[key][1] += right

    def confidence(self, tool: str, kind: str, at_most: float, writes: Iterable[str] = ()) -> float:
        """Return the lower bound of the measured share of exact answers: the lowest over all `writes`."""
        for held_out in ("episode", "world"):
            mine, all_of = self._of(held_out, tool, kind), self._of(held_out, "", _general(kind))
            if not (
                mine.tried or all_of.tried
            ):  # with few recordings the dream may not get that far by itself
                by = held_out + CORRECTED
                mine, all_of = self._of(by, tool, kind), self._of(by, "", _general(kind))
            if held_out == "world" and (not mine.tried or "|" not in kind):
                continue  # programs have to hold in other worlds; what was read in this world need not
            wide = self._wide(held_out, kind)
            if _general(kind).endswith(SUSPECTED) and not mine.tried:
                at_most = min(at_most, _UNTRIED)
                continue
            if not (mine.tried or all_of.tried or (wide.tried and _general(kind).endswith(FEW))):
                at_most = min(at_most, _UNTRIED)
                continue
            before = (all_of.right + 2 * (wide.right + 1) / (wide.tried + 2)) / (all_of.tried + 2)
            at_most = min(at_most, _bound(mine, before))
            before = (mine.right + 2 * before) / (mine.tried + 2)
            after = (self._of(held_out, tool, _after(kind, write)) for write in writes)
            at_most = min([at_most, *(_bound(count, before) for count in after if count.tried)])
        return at_most

    def of_tool(self, tool: str) -> tuple[int, int]:
        """Count a tool's answered held-out calls: (exact, not exact)."""
        counts = [
            count
            for (by, name, kind), count in list(self.counts.items())
            if by == "episode" and name == tool and _AFTER not in kind
        ]
        right = sum(right for _, right in counts)
        return right, sum(tried for tried, _ in counts) - right

    def _wide(self, held_out: str, kind: str) -> _Count:
        """Return the count of the kind without its last mark: the prior for a rare kind."""
        return self._of(held_out, "", _general(kind).rpartition(":")[0])

    def _of(self, held_out: str, tool: str, kind: str) -> _Count:
        return _Count(*self.counts.get((held_out, tool, kind), (0, 0)))


def measure(
    episodes: Sequence[RecordedCalls],
    parameters: Mapping[str, Parameters],
    writes: frozenset[str],
    only_worlds: Sequence[RecordedCalls] = (),
    watch: Callable[[float], None] = lambda _: None,
) -> Trust:
    """Hold a third of the episodes out at a time, and with enough worlds half of these; dream them freely.

    What is held out is dreamed from the rest, uncorrected, so that an answer that rests on a wrong one
    counts as wrong itself. Kinds of answers that none of these give are measured where calls that the dream
    cannot answer get their recorded answer. `watch` receives how many of at most `MININGS` are done.
    """
    from dreamgym_kit.dream.programs.mining import mine

    trust, order, done = Trust(), list(range(len(episodes))), itertools.count()
    random.Random(7).shuffle(order)  # noqa: S311

    def ask(apart: set[int], held_out: str) -> None:
        rest = [episode for place, episode in enumerate(episodes) if place not in apart]
        before = next(done)
        model = mine(rest, parameters, writes, only_worlds, watch=lambda part: watch(before + part))
        for place in sorted(apart):
            trust.calls += len(episodes[place].steps) * (held_out == "episode")
            for tool, kind, through, right in played(model, episodes[place]):
                trust.count(held_out, tool, kind, right=right, writes=through)
            for tool, kind, _, right in played(model, episodes[place], corrected=True):
                trust.count(held_out + CORRECTED, tool, kind, right=right)

    if len(episodes) < _FOLDS:
        return trust
    for fold in range(_FOLDS):
        ask(set(order[fold::_FOLDS]), "episode")
    worlds = sorted({episode.world for episode in episodes})
    if len(worlds) >= _MIN_WORLDS:
        random.Random(3).shuffle(worlds)  # noqa: S311
        for fold in range(_WORLD_FOLDS):
            some = set(worlds[fold::_WORLD_FOLDS])
            ask({place for place, episode in enumerate(episodes) if episode.world in some}, "world")
    return trust


def played(
    model: Any, episode: RecordedCalls, *, corrected: bool = False
) -> list[tuple[str, str, frozenset[str], bool]]:
    """Dream a recorded episode; return the tool, kind, writes and exactness of each answer.

    `corrected`: calls that the dream cannot answer get their recorded answer.
    """
    from dreamgym_kit.dream.programs.dreaming import ProgramEpisode

    dream, names, results = ProgramEpisode(model, episode.world, None, episode.id), MadeUpNames(), []
    for step in episode.steps:
        args = names.renamed(step.args)
        answer = dream.consider(step.tool, args)
        if answer is None:
            if corrected:
                dream.observe(step._replace(args=args, out=names.renamed(step.out)))
            else:
                dream.unseen(step.tool, args)
            continue
        dream.observe(
            SeenStep(step.tool, args, answer.ok, answer.out, step.writes, step.wrap), answer.confidence
        )
        for other in dream.proposed:
            if other.kind != answer.kind:
                right = other.ok == step.ok and copy.deepcopy(names).equal(other.out, step.out, dream.made_up)
                results.append((step.tool, other.kind, other.writes, right))
        right = answer.ok == step.ok and names.equal(answer.out, step.out, dream.made_up)
        writes = next(
            (proposal.writes for proposal in dream.proposed if proposal.kind == answer.kind), frozenset()
        )
        results.append((step.tool, answer.kind, writes, right))
    return results


class MadeUpNames:
    """Pairs made-up values with recorded ones, one to one."""

    def __init__(self) -> None:
        self._dreamed: dict[JsonValue, JsonValue] = {}
        self._real: dict[JsonValue, JsonValue] = {}

    def renamed(self, value: Any, name: str = "") -> Any:
        """Replace recorded values by the made-up values paired with them. `name`: of the value."""
        if not self._real:
            return value
        if isinstance(value, dict):
            return {field: self.renamed(item, field) for field, item in value.items()}
        if isinstance(value, list):
            return [self.renamed(item, name) for item in value]
        return self._real.get(value, value) if _may_be_made_up(value, name) else value

    def equal(self, dreamed: JsonValue, real: JsonValue, made_up: set[JsonValue], name: str = "") -> bool:
        """Whether both values are equal except for made-up values. `name`: of the field that has them."""
        if _may_be_made_up(dreamed, name) and type(dreamed) is type(real):
            if dreamed in self._dreamed:
                return bool(self._dreamed[dreamed] == real)
            if dreamed == real:
                return True
            if dreamed in made_up and real not in self._real and (has_digits(str(real)) or not real):
                self._dreamed[dreamed], self._real[real] = real, dreamed
                return True
            return False
        if isinstance(dreamed, dict) and isinstance(real, dict):
            return dreamed.keys() == real.keys() and all(
                self.equal(dreamed[field], real[field], made_up, field) for field in dreamed
            )
        if isinstance(dreamed, list) and isinstance(real, list):
            return len(dreamed) == len(real) and all(
                self.equal(item, real_item, made_up, name)
                for item, real_item in zip(dreamed, real, strict=True)
            )
        return same(dreamed, real)


def _may_be_made_up(value: JsonValue, name: str) -> bool:
    """Whether a value may be an id: a text, or a whole number in a field that is named so."""
    return isinstance(value, str) or (type(value) is int and is_id_name(name))


_AFTER = "\x1f"


def _after(kind: str, write: str) -> str:
    return f"{kind}{_AFTER}{write}"


def _general(kind: str) -> str:
    return kind.split("|", maxsplit=1)[0]
