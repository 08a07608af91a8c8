"""What each draw of tasks chose and saw: the curriculum remembers nothing else.

    curriculum.jsonl   one line a step, with its draws; written beside steps.jsonl, and cut back with it

Estimates, what rests and which tasks were made follow from these lines alone, so a training that was killed
and goes on chooses as the unbroken one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dreamgym_kit.codec import Codec
from dreamgym_kit.rollout.records import RENAMED_FIELDS
from dreamgym_kit.rollout.tasks import TASKS
from dreamgym_kit.vocabulary import Task

CURRICULUM = "curriculum.jsonl"

SCORE, TURN = "score", "turn"
"""Why a task was chosen: by its score, or because it had not been met for the longest time."""

_GRANTED = 2  # episodes


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """One group: why its task was chosen, and what came of its episodes."""

    task: str
    why: str
    score: float
    success: int = 0
    failure: int = 0
    inconclusive: int = 0
    left_out: bool = False  # the task may be impossible: nothing is learned from the group, whatever it shows
    failed_at: Mapping[str, int] = field(default_factory=dict)  # "missing refund_payment" -> episodes


@dataclass(frozen=True, slots=True)
class Made:
    """A task that was made, and from which one."""

    task: Task
    like: str  # the task's id
    how: str  # "rules" or "model"


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw of a step's tasks."""

    draw: int
    groups: tuple[GroupSeen, ...] = ()
    made: tuple[Made, ...] = ()  # before it
    refused: Mapping[str, int] = field(default_factory=dict)  # why -> tasks that were made and not taken
    rests: Mapping[str, int] = field(default_factory=dict)  # why -> tasks that were not to be drawn


DRAWS = Codec(Draw, nested=(Codec(GroupSeen, renamed=RENAMED_FIELDS), TASKS))


def seen_in(draws: Mapping[int, Sequence[Draw]]) -> list[tuple[int, str, int, int]]:
    """(step, task, successes, failures) of each group, in order; see `estimates.evidence_of`."""
    return [
        (step, group.task, group.success, group.failure)
        for step in sorted(draws)
        for draw in draws[step]
        for group in draw.groups
    ]


def decided_of(draws: Mapping[int, Sequence[Draw]]) -> dict[str, float]:
    """Share of each task's episodes that could be judged; a few that could are taken for granted."""
    counts: dict[str, tuple[int, int]] = {}
    for group in (group for told in draws.values() for draw in told for group in draw.groups):
        decided, of_all = counts.get(group.task, (_GRANTED, _GRANTED))
        now = group.success + group.failure
        counts[group.task] = (decided + now, of_all + now + group.inconclusive)
    return {task: decided / of_all for task, (decided, of_all) in counts.items()}


def failures_of(
    draws: Mapping[int, Sequence[Draw]], *, step: int, half_life: float
) -> dict[str, dict[str, float]]:
    """By task, how often it failed at what; a failure counts half after `half_life` steps."""
    found: dict[str, dict[str, float]] = {}
    for at in sorted(draws):
        for group in (group for draw in draws[at] for group in draw.groups):
            told = found.setdefault(group.task, {})
            for place, often in group.failed_at.items():
                told[place] = told.get(place, 0.0) + often * 0.5 ** ((step - at) / half_life)
    return {task: told for task, told in found.items() if told}
