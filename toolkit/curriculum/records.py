"""What each draw of tasks chose and saw: the curriculum remembers nothing else.

    curriculum.jsonl   one line a step, with its draws; written beside steps.jsonl, and cut back with it

Estimates, what rests and which tasks were made follow from these lines alone, so a training that was killed
and goes on chooses as the unbroken one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dreamgym_kit.codec import Codec
from dreamgym_kit.rollout.journal import RENAMED_FIELDS
from dreamgym_kit.rollout.tasks import TASKS
from dreamgym_kit.types import Episode, Task, Transition, Verdict

MARK = "~"  # between a pattern's id and the number of a task that was made like it

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


Seen = Sequence[tuple[int, GroupSeen]]
"""Groups with the steps that they were drawn in, in order."""


def conclusive_shares(seen: Seen) -> dict[str, float]:
    """Share of each task's episodes that could be judged; a few that could are taken for granted."""
    counts: dict[str, tuple[int, int]] = {}
    for _, group in seen:
        decided, of_all = counts.get(group.task, (_GRANTED, _GRANTED))
        now = group.success + group.failure
        counts[group.task] = (decided + now, of_all + now + group.inconclusive)
    return {task: decided / of_all for task, (decided, of_all) in counts.items()}


def failures_of(seen: Seen, *, step: int, half_life: float) -> dict[str, dict[str, float]]:
    """By task, how often it failed at what; a failure counts half after `half_life` steps."""
    failures: dict[str, dict[str, float]] = {}
    for at, group in seen:
        places = failures.setdefault(group.task, {})
        for place, often in group.failed_at.items():
            places[place] = places.get(place, 0.0) + often * 0.5 ** ((step - at) / half_life)
    return {task: places for task, places in failures.items() if places}


MISSING, EXTRA, OTHERWISE, REFUSED, ASKS, ENDED = "missing", "extra", "otherwise", "refused", "asks", "ended"


def failed_at(episodes: Sequence[Episode]) -> dict[str, int]:
    """Count the failed episodes of one group by what each did otherwise: "missing refund_payment" -> 3.

        missing TOOL     the good siblings called it (all of them), this one did not
        extra TOOL       it changes something, and no good one called it
        otherwise TOOL   it changes something, and was called with arguments that no good one gave it
        refused TOOL     the tool answered with an error, as it never did to a good one
        asks TOOL        the first call that no good one made, where nothing above tells them apart

    Without a good sibling only refusals count, else the last call that changes something, else the last call:
    where it ended. A word on where to look, for choosing what to practise; no verdict is made of it.
    """
    good = [episode for episode in episodes if episode.verdict is Verdict.PASSED]
    bad = [episode for episode in episodes if episode.verdict is Verdict.FAILED]
    places = Counter(place for episode in bad if (place := _place(episode, good)))
    return dict(sorted(places.items()))


def tool_of(place: str) -> str:
    """The tool that a place of failure names."""
    return place.partition(" ")[2]


def _place(episode: Episode, good: Sequence[Episode]) -> str:
    if not good:
        return _alone(episode)
    called = {entry.call.tool for entry in episode.transitions}
    always = set.intersection(*({entry.call.tool for entry in peer.transitions} for peer in good))
    for entry in good[0].transitions:  # in the order that a good one calls them
        if entry.call.tool in always - called:
            return f"{MISSING} {entry.call.tool}"
    known = {entry.call.tool for peer in good for entry in peer.transitions}
    keys = {entry.call.key for peer in good for entry in peer.transitions}
    erred = {entry.call.tool for peer in good for entry in peer.transitions if entry.answer.error is not None}
    for entry in episode.transitions:
        tool = entry.call.tool
        if entry.effect.changes_environment and tool not in known:
            return f"{EXTRA} {tool}"
        if entry.answer.error is not None and tool not in erred:
            return f"{REFUSED} {tool}"
        if entry.effect.changes_environment and entry.call.key not in keys:
            return f"{OTHERWISE} {tool}"
    other = next((entry for entry in episode.transitions if entry.call.key not in keys), None)
    return f"{ASKS} {other.call.tool}" if other is not None else ""


def _alone(episode: Episode) -> str:
    """Where an episode ended that no good one stands beside."""
    steps: Sequence[Transition] = episode.transitions
    for entry in reversed(steps):
        if entry.answer.error is not None:
            return f"{REFUSED} {entry.call.tool}"
    writes = [entry for entry in steps if entry.effect.changes_environment]
    last = writes[-1] if writes else steps[-1] if steps else None
    return f"{ENDED} {last.call.tool}" if last is not None else ""
