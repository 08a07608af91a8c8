"""Which tool, and which step, a group's failures were about: held against the siblings that did well.

    missing TOOL     the good ones called it (all of them), this one did not
    extra TOOL       it changes something, and no good one called it
    otherwise TOOL   it changes something, and was called with arguments that no good one gave it
    refused TOOL     the tool answered with an error, as it never did to a good one
    asks TOOL        the first call that no good one made, where nothing above tells them apart

Without a good sibling only refusals are told, else the last call that changes something, else the last call:
where it ended. A word on where to look, for choosing what to practise; no verdict is made of it.
"""

from collections import Counter
from collections.abc import Sequence

from dreamgym_kit.vocabulary import Episode, Transition, Verdict

MISSING, EXTRA, OTHERWISE, REFUSED, ASKS, ENDED = "missing", "extra", "otherwise", "refused", "asks", "ended"


def failed_at(episodes: Sequence[Episode]) -> dict[str, int]:
    """Count the failed episodes of one group by what each did otherwise: "missing refund_payment" -> 3."""
    good = [one for one in episodes if one.verdict is Verdict.PASSED]
    bad = [one for one in episodes if one.verdict is Verdict.FAILED]
    told = Counter(place for one in bad if (place := _place(one, good)))
    return dict(sorted(told.items()))


def tool_of(place: str) -> str:
    """The tool that a place of failure names."""
    return place.partition(" ")[2]


def _place(episode: Episode, good: Sequence[Episode]) -> str:
    if not good:
        return _alone(episode)
    called = {entry.call.tool for entry in episode.transitions}
    always = set.intersection(*({entry.call.tool for entry in one.transitions} for one in good))
    for entry in good[0].transitions:  # in the order that a good one calls them
        if entry.call.tool in always - called:
            return f"{MISSING} {entry.call.tool}"
    known = {entry.call.tool for one in good for entry in one.transitions}
    keys = {entry.call.key for one in good for entry in one.transitions}
    told = {entry.call.tool for one in good for entry in one.transitions if entry.answer.error is not None}
    for entry in episode.transitions:
        tool = entry.call.tool
        if entry.effect.changes_world and tool not in known:
            return f"{EXTRA} {tool}"
        if entry.answer.error is not None and tool not in told:
            return f"{REFUSED} {tool}"
        if entry.effect.changes_world and entry.call.key not in keys:
            return f"{OTHERWISE} {tool}"
    other = next((entry for entry in episode.transitions if entry.call.key not in keys), None)
    return f"{ASKS} {other.call.tool}" if other is not None else ""


def _alone(episode: Episode) -> str:
    """Where an episode ended that no good one stands beside."""
    steps: Sequence[Transition] = episode.transitions
    for entry in reversed(steps):
        if entry.answer.error is not None:
            return f"{REFUSED} {entry.call.tool}"
    writes = [entry for entry in steps if entry.effect.changes_world]
    last = writes[-1] if writes else steps[-1] if steps else None
    return f"{ENDED} {last.call.tool}" if last is not None else ""
