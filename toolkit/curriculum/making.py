"""Tasks like those that the policy can nearly do: which ones are varied, and which of the variations stay.

Patterns are chosen by what they promise to teach, those first whose failures are about the tool (or step)
that fails most now, and no two of one cluster while others are left. What a maker gives for them is checked,
named after its pattern, and kept before it is used, so that a killed training goes on with the same tasks.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dreamgym_kit.canonical import digest
from dreamgym_kit.curriculum.choosing import Standing
from dreamgym_kit.curriculum.failures import tool_of
from dreamgym_kit.curriculum.records import DRAWS, Draw, Made
from dreamgym_kit.curriculum.wellformed import Bounds, fault_of, read_again
from dreamgym_kit.ports import Pattern, TaskMaker
from dreamgym_kit.rollout.files import read_whole, write_atomically
from dreamgym_kit.vocabulary import Task

UNJUDGED = "unjudged"  # why a task is not taken: nobody may judge it
MARK = "~"  # between a pattern's id and the number of a task that was made like it


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Who makes tasks, and what is done with them.

    Attributes:
        makers: asked one after the other for each pattern.
        bounds: what a made task is held against.
        judged: gives the task with who judges it, None where nobody may.
        admit: makes tasks known to whoever runs them.
        folder: where what was made is kept; it is made when it is needed.
    """

    makers: Sequence[TaskMaker]
    bounds: Bounds
    judged: Callable[[Task], Task | None]
    admit: Callable[[Sequence[Task]], None]
    folder: Path

    async def make(
        self, patterns: Sequence[Pattern], taken: Sequence[Task], *, step: int, count: int, seed: int
    ) -> Draw:
        """Make tasks before a step's first draw: `count` variations of each pattern at most.

        What was made for the very same patterns before is taken again; see the module.
        """
        asked = digest([step, count, seed, [[one.task.id, dict(one.failed_at)] for one in patterns]])
        path = self.folder / f"step-{step:06d}-{asked[:12]}.json"
        kept = _read(path)
        if kept is not None:
            return kept
        made: list[Made] = []
        refused: Counter[str] = Counter()
        for pattern in patterns:
            here = pattern.task.world
            worlds = dict.fromkeys([here, *(task.world for task in self.bounds.given)])
            known = replace(
                pattern,
                known=tuple(self.bounds.known(here)),
                worlds=tuple(world for world in worlds if world.name == here.name),
            )
            for maker in self.makers:
                for task in await maker.like(
                    known, count, seed=int(digest([asked, pattern.task.id])[:12], 16)
                ):
                    others = [*taken, *(one.task for one in made)]
                    wrong, fit = self._held_up(task, known, others)
                    if fit is None:
                        refused[wrong] += 1
                    else:
                        named = replace(fit, id=f"{_root(pattern.task.id)}{MARK}{step}.{len(made) + 1}")
                        made.append(Made(named, pattern.task.id, maker.how))
        draw = Draw(0, made=tuple(made), refused=dict(sorted(refused.items())))
        self.folder.mkdir(exist_ok=True)
        body = json.dumps(DRAWS.write(draw), separators=(",", ":")).encode("ascii")
        write_atomically(path, hashlib.sha256(body).hexdigest().encode("ascii") + b"\n" + body)
        return draw

    def _held_up(self, task: Task, pattern: Pattern, others: Sequence[Task]) -> tuple[str, Task | None]:
        wrong = fault_of(task, pattern, others, self.bounds)
        if wrong:
            return wrong, None
        judged = self.judged(task)
        return UNJUDGED, read_again(judged) if judged is not None else None


def patterns_of(
    standings: Sequence[Standing],
    failures: Mapping[str, Mapping[str, float]],
    clusters: Mapping[str, int],
    count: int,
) -> list[Pattern]:
    """Choose the tasks that are varied.

    Args:
        standings: all tasks, as they stand now.
        failures: by task, how often it failed lately and at what ("missing refund_payment").
        clusters: which tasks are alike.
        count: how many at most.
    """
    by_tool: Counter[str] = Counter()
    for told in failures.values():
        for place, often in told.items():
            by_tool[tool_of(place)] += often  # type: ignore[assignment]  # faded counts
    most = max(by_tool.values(), default=0) or 1

    def promise(one: Standing) -> float:
        told = failures.get(one.task.id, {})
        worst = max((by_tool[tool_of(place)] for place in told), default=0)
        return one.estimate.value * (1 + worst / most)

    fresh = sorted((one for one in standings if not one.rests), key=lambda one: (-promise(one), one.task.id))
    rounds: Counter[int] = Counter()
    ranked = []
    for one in fresh:
        cluster = clusters[one.task.id]
        ranked.append((rounds[cluster], one))
        rounds[cluster] += 1
    ranked.sort(key=lambda pair: pair[0])  # stable: the best of each cluster, then the second best ...
    return [
        Pattern(one.task, round(one.estimate.mean, 6), _whole(failures.get(one.task.id, {})))
        for _, one in ranked[:count]
    ]


def _whole(told: Mapping[str, float]) -> dict[str, int]:
    """Most first; faded counts as whole ones, at least 1."""
    return {
        place: max(1, round(often))
        for place, often in sorted(told.items(), key=lambda pair: (-pair[1], pair[0]))
    }


def _root(identity: str) -> str:
    return identity.partition(MARK)[0]


def _read(path: Path) -> Draw | None:
    """What was made before; None where nothing was, or where the file is not what was written."""
    try:
        content = read_whole(path)
    except FileNotFoundError:
        return None
    head, _, body = content.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode("ascii") != head:
        return None
    return DRAWS.read(json.loads(body))
