"""Hidden state that no read shows: failures without arguments, and fields that only writes tell.

"Not logged in" says something about the world, whatever the call; the next ticket number is told by a
create alone. Both become pseudo-reads, and what moves them is mined like any effect.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from dreamgym_kit.dream.state.history import HistoryStep, Pool, RecordedEpisode
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.texts import has_holes, mask
from dreamgym_kit.dream.state.values import field_path, is_scalar, spell, walk
from dreamgym_kit.dream.state.views import args_of
from dreamgym_kit.serialization import JsonValue


def probes(pool: Pool, models: ToolModels) -> frozenset[tuple[str, str]]:
    """(tool, form) of failures that name no argument, and that all calls of the tool at a node share."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for told in pool.at.values():
        forms: dict[str, Counter[str]] = defaultdict(Counter)
        for (tool, spelled), (seen, _) in told.items():
            form = (
                models.form(HistoryStep(tool, args_of(spelled), spelled, seen, writes=False, failed=True))
                if failed(seen)
                else ""
            )
            forms[tool]["" if "@" in form or "#" in form else form] += 1
        for tool, found in forms.items():
            if found.total() > 1:
                for form in found:
                    if form:
                        counts[tool, form][len(found) > 1] += 1
    return frozenset(key for key, (alone, mixed) in counts.items() if alone and mixed <= 0.05 * alone)


def hidden_fields(
    episodes: Sequence[RecordedEpisode], pool: Pool, models: ToolModels
) -> frozenset[tuple[str, str]]:
    """(tool, field) of write answers that arguments do not explain and that all calls at a node share."""
    totals: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    for episode in episodes:
        for step in episode.steps:
            if not step.writes or step.failed:
                continue
            args = Names({f"args.{key}": value for key, value in step.args.items()})
            for name, value in _scalars(step.seen):
                count = totals[step.tool, name]
                count[0] += 1
                count[1] += spell(value) in args.by_spelling or (
                    isinstance(value, str) and has_holes(mask(value, args))
                )
                values[step.tool, name].add(spell(value))
    agreeing = _agreeing(pool, models)
    return frozenset(
        key
        for key, (total, explained) in totals.items()
        if key[1] not in models.fresh.get(key[0], {})
        and total >= 3
        and explained < 0.9 * total
        and len(values[key]) > 1
        and agreeing[key][0] >= 2
        and agreeing[key][1] <= 0.1 * agreeing[key][0]
    )


def _agreeing(pool: Pool, models: ToolModels) -> dict[tuple[str, str], list[int]]:
    """At how many nodes a field has one value for different calls, and at how many several."""
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for told in pool.at.values():
        answers: dict[str, list[JsonValue]] = defaultdict(list)
        for (tool, _), (seen, _) in told.items():
            if tool in models.writes and not failed(seen):
                answers[tool].append(seen)
        for tool, several in answers.items():
            if len(several) < 2:
                continue
            values: dict[str, set[str]] = defaultdict(set)
            for seen in several:
                for name, value in _scalars(seen):
                    values[name].add(spell(value))
            for name, kinds in values.items():
                found[tool, name][len(kinds) > 1] += 1
    return found


def _scalars(seen: JsonValue) -> list[tuple[str, JsonValue]]:
    return [
        (field_path(path), value)
        for path, value in walk(seen)
        if is_scalar(value) and value is not None and not any(isinstance(part, int) for part in path)
    ]
