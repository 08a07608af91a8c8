"""A checklist for a request: the writes that its world asks for, and what an episode's writes amount to.

Success is: every write that has to be there is, once, and no other. An episode that misses a sure item or
has one that surely does not belong failed, whatever else is open; one that agrees with all that is sure,
where something is not, is inconclusive.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from dreamgym_kit.dream.checklist.focus import focus_of
from dreamgym_kit.dream.checklist.labels import Made, scene_of
from dreamgym_kit.dream.checklist.marks import Marks
from dreamgym_kit.dream.checklist.patterns import Pattern, Scene, Write, candidates_in
from dreamgym_kit.dream.checklist.things import Things
from dreamgym_kit.dream.checklist.wording import Reading, Wordings
from dreamgym_kit.vocabulary import Verdict

SURE = 0.75
"""A candidate marked so has to be there; one marked 1 - SURE or less must not; between them nobody can tell.

Two examples that agree come to 0.83, three of four to 0.7."""


class Wrong(StrEnum):
    """Kinds of error, as a gate counts them."""

    MISSING = "missing"
    EXTRA = "extra"
    ARGUMENT = "wrong argument"
    TWICE = "twice"
    REFUSED = "refused"  # it was tried, and the tool said no


@dataclass(frozen=True, slots=True)
class Sheet:
    """What should be written in one scene."""

    expected: frozenset[Write]
    open: frozenset[Write] = frozenset()  # nobody can tell
    blank: str = ""  # why there is no list at all

    @property
    def tools(self) -> frozenset[str]:
        """The tools of what is expected or open."""
        return frozenset(write.tool for write in self.expected | self.open)


class Found(NamedTuple):
    """What an episode's writes amount to."""

    verdict: Verdict
    reason: str
    wrong: frozenset[Wrong] = frozenset()


@dataclass(frozen=True, slots=True)
class Checklist:
    """Makes sheets: how requests read, which writes there may be, and who marks them."""

    wordings: Wordings
    patterns: Sequence[Pattern]
    marks: Marks
    free: frozenset[tuple[str, str]] = frozenset()  # (tool, argument) that was seen not to matter
    looks: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by wording: reads that decide

    def sheet(self, text: str, things: Things) -> Sheet:
        """What a request comes to in a world."""
        return self.sheet_of(scene_of(text, things, self.wordings))

    def sheet_in(self, reading: Reading, things: Things) -> Sheet:
        """The same for a request that was read already."""
        return self.sheet_of(Scene(things, reading, focus_of(things, reading)))

    def sheet_of(self, scene: Scene) -> Sheet:
        """What a scene comes to."""
        if not scene.focus.own:
            return Sheet(frozenset(), blank="the request names nothing that is known of this world")
        unread = self._unread(scene)
        if unread:
            return Sheet(
                frozenset(), blank=f"nobody knows what {unread[0]} says of what the request is about"
            )
        candidates = candidates_in(scene, self.patterns)
        if not candidates:
            return Sheet(frozenset(), blank="no write that was ever right fits this request")
        marks = self.marks.mark(scene, candidates)
        expected = (one.write for one, mark in zip(candidates, marks, strict=True) if mark >= SURE)
        unsure = (one.write for one, mark in zip(candidates, marks, strict=True) if 1 - SURE < mark < SURE)
        return Sheet(frozenset(expected), frozenset(unsure))

    def judge(self, sheet: Sheet, made: Sequence[Write], tried: Sequence[Write] = ()) -> Found:
        """Hold the writes that took effect against a sheet; `tried` are those that were refused."""
        if sheet.blank:
            return Found(Verdict.INCONCLUSIVE, sheet.blank)
        wanted, unsure = self._loose(sheet.expected), self._loose(sheet.open)
        done = Counter(loosened(write, self.free) for write in made)
        missing = [write for write in sorted(wanted) if not done[write]]
        extra = [write for write in sorted(done) if write not in wanted and write not in unsure]
        twice = [write for write in sorted(done) if done[write] > 1 and write not in extra]
        if missing or extra or twice:
            refused = [loosened(write, self.free) for write in tried]
            return _failed(missing, extra, twice, refused)
        if unsure:
            return Found(Verdict.INCONCLUSIVE, f"whether {min(unsure)} has to be there cannot be told")
        return Found(Verdict.PASSED, "every write of the checklist was made, and no other")

    def _unread(self, scene: Scene) -> list[str]:
        """Reads that such a request cannot be judged without, and that nobody has made."""
        near = {*scene.focus.own, *scene.reading.values}
        known = {tool for tool, of in scene.things.asked if of in near}
        return sorted(self.looks.get(scene.reading.wording, frozenset()) - known)

    def _loose(self, writes: frozenset[Write]) -> frozenset[Write]:
        return frozenset(loosened(write, self.free) for write in writes)


def loosened(write: Write, free: frozenset[tuple[str, str]]) -> Write:
    """A write without the arguments that do not matter."""
    if not free:
        return write
    return Write(
        write.tool, tuple((name, value) for name, value in write.args if (write.tool, name) not in free)
    )


def _failed(
    missing: Sequence[Write], extra: Sequence[Write], twice: Sequence[Write], refused: Sequence[Write]
) -> Found:
    told: list[str] = []
    wrong: set[Wrong] = set()
    others = {write.tool: write for write in extra}
    for write in missing:
        if write in refused:
            wrong.add(Wrong.REFUSED)
            told.append(f"refused: {write}")
        elif write.tool in others:
            wrong.add(Wrong.ARGUMENT)
            told.append(f"wrong argument: {others.pop(write.tool)}, should be {write}")
        else:
            wrong.add(Wrong.MISSING)
            told.append(f"missing: {write}")
    paired = {write for write in extra if write.tool not in others}
    for write in extra:
        if write not in paired:
            wrong.add(Wrong.EXTRA)
            told.append(f"extra: {write}")
    for write in twice:
        wrong.add(Wrong.TWICE)
        told.append(f"twice: {write}")
    return Found(Verdict.FAILED, "; ".join(told), frozenset(wrong))


def arguments_that_do_not_matter(
    ways: Mapping[str, Sequence[frozenset[Write]]], *, least: int = 2
) -> frozenset[tuple[str, str]]:
    """Arguments in which two successes of one task differed and in nothing else, in several tasks.

    Args:
        ways: by task, the writes of each of its successful episodes.
        least: tasks that must show it.
    """
    shown: dict[tuple[str, str], set[str]] = {}
    for task, sets in ways.items():
        for place, one in enumerate(sets):
            for other in sets[place + 1 :]:
                found = _only_difference(one - other, other - one)
                if found is not None:
                    shown.setdefault(found, set()).add(task)
    return frozenset(found for found, tasks in shown.items() if len(tasks) >= least)


def _only_difference(here: frozenset[Write], there: frozenset[Write]) -> tuple[str, str] | None:
    if len(here) != 1 or len(there) != 1:
        return None
    (one,), (other,) = here, there
    if one.tool != other.tool or [name for name, _ in one.args] != [name for name, _ in other.args]:
        return None
    differing = [
        name for (name, value), (_, else_) in zip(one.args, other.args, strict=True) if value != else_
    ]
    return (one.tool, differing[0]) if len(differing) == 1 else None


def writes_of(made: Sequence[Made]) -> list[Write]:
    """Writes as they are compared."""
    return [one.write for one in made]
