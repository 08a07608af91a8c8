"""The record of each draw of tasks: the curriculum's only memory.

    curriculum.jsonl   one line per step, with its draws; written with steps.jsonl, and truncated with it

Estimates, resting tasks and made tasks follow from these lines alone, so a resumed training chooses like an
uninterrupted one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dreamgym_kit.codec import Codec
from dreamgym_kit.rollout.journal import RENAMED_FIELDS
from dreamgym_kit.rollout.tasks import TASKS
from dreamgym_kit.types import Episode, Task, Transition, Verdict

MARK = "~"  # between a pattern's ID and the number of its synthetic task

SCORE, TURN = "score", "turn"
"""Why a task was chosen: by score, or by rotation."""

_GRANTED = 2  # episodes


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """One group: why its task was chosen, and the results of its episodes."""

    task: str
    why: str
    score: float
    success: int = 0
    failure: int = 0
    inconclusive: int = 0
    left_out: bool = False  # possibly impossible task: the group is not used for training
    failed_at: Mapping[str, int] = field(default_factory=dict)  # "missing refund_payment" -> episodes


@dataclass(frozen=True, slots=True)
class Made:
    """A synthetic task and its pattern."""

    task: Task
    like: str  # the pattern's ID
    how: str  # "rules" or "model"


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw of a step's tasks."""

    draw: int
    groups: tuple[GroupSeen, ...] = ()
    made: tuple[Made, ...] = ()  # made before the draw
    refused: Mapping[str, int] = field(default_factory=dict)  # why -> rejected tasks
    rests: Mapping[str, int] = field(default_factory=dict)  # why -> resting tasks


DRAWS = Codec(Draw, nested=(Codec(GroupSeen, renamed=RENAMED_FIELDS), TASKS))


Seen = Sequence[tuple[int, GroupSeen]]
"""Groups with the steps in which they were drawn, in order."""


def conclusive_shares(seen: Seen) -> dict[str, float]:
    """Return each task's share of conclusive episodes, with a few conclusive ones assumed."""
    counts: dict[str, tuple[int, int]] = {}
    for _, group in seen:
        decided, of_all = counts.get(group.task, (_GRANTED, _GRANTED))
        now = group.success + group.failure
        counts[group.task] = (decided + now, of_all + now + group.inconclusive)
    return {task: decided / of_all for task, (decided, of_all) in counts.items()}


def failures_of(seen: Seen, *, step: int, half_life: float) -> dict[str, dict[str, float]]:
    """Return failures by task and place; a failure counts half after `half_life` steps."""
    failures: dict[str, dict[str, float]] = {}
    for at, group in seen:
        places = failures.setdefault(group.task, {})
        for place, often in group.failed_at.items():
            places[place] = places.get(place, 0.0) + often * 0.5 ** ((step - at) / half_life)
    return {task: places for task, places in failures.items() if places}


MISSING, EXTRA, OTHERWISE, REFUSED, ASKS, ENDED = "missing", "extra", "otherwise", "refused", "asks", "ended"


def failed_at(episodes: Sequence[Episode]) -> dict[str, int]:
    """Count a group's failed episodes by their deviation from good ones: "missing refund_payment" -> 3.

        missing TOOL     all good repeats called it, this one did not
        extra TOOL       it writes, and no good one called it
        otherwise TOOL   it writes, and had arguments that no good one used
        refused TOOL     the tool returned an error that no good one got
        asks TOOL        the first call that no good one made, if nothing above differs

    Without a good repeat only refusals count, else the last write, else the last call. It is a hint for
    choosing tasks to practice, not a verdict.
    """
    good = [episode for episode in episodes if episode.verdict is Verdict.PASSED]
    bad = [episode for episode in episodes if episode.verdict is Verdict.FAILED]
    places = Counter(place for episode in bad if (place := _place(episode, good)))
    return dict(sorted(places.items()))


def tool_of(place: str) -> str:
    """Return the tool in a place of failure."""
    return place.partition(" ")[2]


def _place(episode: Episode, good: Sequence[Episode]) -> str:
    if not good:
        return _alone(episode)
    called = {entry.call.tool for entry in episode.transitions}
    always = set.intersection(*({entry.call.tool for entry in peer.transitions} for peer in good))
    for entry in good[0].transitions:  # in the order of a good one
        if entry.call.tool in always - called:
            return f"{MISSING} {entry.call.tool}"
    tools = {entry.call.tool for peer in good for entry in peer.transitions}
    keys = {entry.call.key for peer in good for entry in peer.transitions}
    erred = {entry.call.tool for peer in good for entry in peer.transitions if entry.answer.error is not None}
    for entry in episode.transitions:
        tool = entry.call.tool
        if entry.effect.changes_environment and tool not in tools:
            return f"{EXTRA} {tool}"
        if entry.answer.error is not None and tool not in erred:
            return f"{REFUSED} {tool}"
        if entry.effect.changes_environment and entry.call.key not in keys:
            return f"{OTHERWISE} {tool}"
    other = next((entry for entry in episode.transitions if entry.call.key not in keys), None)
    return f"{ASKS} {other.call.tool}" if other is not None else ""


def _alone(episode: Episode) -> str:
    """Return the place of failure without good episodes."""
    steps: Sequence[Transition] = episode.transitions
    for entry in reversed(steps):
        if entry.answer.error is not None:
            return f"{REFUSED} {entry.call.tool}"
    writes = [entry for entry in steps if entry.effect.changes_environment]
    last = writes[-1] if writes else steps[-1] if steps else None
    return f"{ENDED} {last.call.tool}" if last is not None else ""
