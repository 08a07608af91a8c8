"""What recorded episodes say should be written: the accepted writes of successes; nothing by hand.

A success may be lucky: somebody who skipped the look that decides and was right by chance. Its writes are
right all the same, but what it never read is then filled at random (see `completing`), and its label would
teach that the deciding fact does not matter. So a success counts only where its reads cover what others
read who came to the same writes on the same wording.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dreamgym_kit.dream.checklist.focus import focus_of
from dreamgym_kit.dream.checklist.patterns import Pattern, Scene, Write, pattern_of, write_of
from dreamgym_kit.dream.checklist.things import Advances, Things, gather
from dreamgym_kit.dream.checklist.wording import Wordings, mine_wordings
from dreamgym_kit.dream.faults import fault_kind, took_effect
from dreamgym_kit.dream.state.history import Step, step_of
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.vocabulary import Effect, Provenance, Transition

_USUAL = 0.2  # share of the successes alike from which on a set of reads is what one does


class Work(NamedTuple):
    """A recorded episode: what was asked, in which world, what was done, and whether it was right."""

    task: str
    text: str
    world: str
    transitions: tuple[Transition, ...]
    success: bool
    family: str = ""  # of the task; "": its wording stands for it

    @property
    def steps(self) -> list[Step]:
        """Its calls without those that compute from their arguments alone."""
        return [step_of(entry) for entry in self.transitions if not entry.effect.runs_in_dream]


class Example(NamedTuple):
    """A scene and the writes that it should come to."""

    task: str
    world: str
    family: str
    scene: Scene
    expected: frozenset[Write]
    read: Things  # what somebody knew who came to them


class Made(NamedTuple):
    """A write that was done: as it is compared, and as it was called."""

    write: Write
    args: Mapping[str, JsonValue]


def accepted(transitions: Iterable[Transition], advances: Advances) -> list[Made]:
    """The writes that took effect, in order; also those whose failure was seen to change something."""
    return [
        Made(write_of(entry.call.tool, entry.call.args), entry.call.args)
        for entry in transitions
        if entry.effect.changes_world and _was_done(entry, advances)
    ]


def _was_done(entry: Transition, advances: Advances) -> bool:
    if entry.answer.abstained:
        return False
    if fault_kind(entry.answer) is not None:
        return took_effect(entry.answer)
    return advances(step_of(entry))


def worlds_of(transitions: Iterable[Transition], advances: Advances) -> dict[str, Things]:
    """The things of each recorded world, from all its real episodes."""
    episodes: dict[tuple[str, str], list[Transition]] = defaultdict(list)
    for entry in transitions:
        if entry.answer.provenance is Provenance.REAL and not entry.effect.runs_in_dream:
            episodes[str(entry.world), entry.episode].append(entry)
    found: dict[str, Things] = {}
    for (world, _), rows in episodes.items():
        steps = [step_of(entry) for entry in sorted(rows, key=lambda row: row.step)]
        found[world] = gather([steps], advances, found.get(world))
    return found


def mined_wordings(works: Sequence[Work], worlds: Iterable[Things]) -> Wordings:
    """How the recorded requests are worded."""
    return mine_wordings([work.text for work in works], worlds)


def scene_of(text: str, things: Things, wordings: Wordings) -> Scene:
    """A request in its world."""
    reading = wordings.read(text)
    return Scene(things, reading, focus_of(things, reading))


def patterns_seen(
    works: Iterable[Work], worlds: Mapping[str, Things], wordings: Wordings, advances: Advances
) -> Iterable[tuple[str, Pattern]]:
    """The patterns of all writes of successful episodes, each with its world."""
    for work in works:
        if not work.success or work.world not in worlds:
            continue
        scene = scene_of(work.text, worlds[work.world], wordings)
        for made in accepted(work.transitions, advances):
            pattern = pattern_of(scene, made.write.tool, made.args)
            if pattern is not None:
                yield work.world, pattern


def examples_of(
    works: Sequence[Work], worlds: Mapping[str, Things], wordings: Wordings, advances: Advances
) -> list[Example]:
    """One example for each task that somebody did well and not by luck."""
    sound = _not_lucky(works, wordings, advances)
    ways: dict[str, Counter[frozenset[Write]]] = defaultdict(Counter)
    asked: dict[str, Work] = {}
    for work in sound:
        writes = [made.write for made in accepted(work.transitions, advances)]
        if work.world in worlds and len(set(writes)) == len(writes):
            ways[work.task][frozenset(writes)] += 1
            asked.setdefault(work.task, work)
    return [
        Example(
            task,
            work.world,
            work.family,
            scene_of(work.text, worlds[work.world], wordings),
            expected,
            gather([work.steps], advances),
        )
        for task, work in asked.items()
        for expected in [max(sorted(ways[task], key=sorted), key=ways[task].__getitem__)]
    ]


def _not_lucky(works: Sequence[Work], wordings: Wordings, advances: Advances) -> list[Work]:
    looked, found = _looked(works, wordings, advances)
    return [work for work, alike, reads in found if reads >= _usual(looked[alike])]


def looks_of(works: Sequence[Work], wordings: Wordings, advances: Advances) -> dict[str, frozenset[str]]:
    """By wording, the reads that everybody makes who does such a request well, whatever it comes to.

    What decides is read before anybody knows what it will come to; where it is unknown, nobody can judge.
    """
    looked, _ = _looked(works, wordings, advances)
    usual: dict[str, list[frozenset[str]]] = defaultdict(list)
    for (wording, _), counts in looked.items():
        if counts.total() > 1:
            usual[wording].append(_usual(counts))
    return {wording: frozenset.intersection(*some) for wording, some in usual.items()}


_Alike = tuple[str, tuple[str, ...]]  # a wording, and the tools that wrote


def _looked(
    works: Sequence[Work], wordings: Wordings, advances: Advances
) -> tuple[dict[_Alike, Counter[frozenset[str]]], list[tuple[Work, _Alike, frozenset[str]]]]:
    """What successes alike have read, and each success with what it has read."""
    looked: dict[_Alike, Counter[frozenset[str]]] = defaultdict(Counter)
    found: list[tuple[Work, _Alike, frozenset[str]]] = []
    for work in works:
        if not work.success:
            continue
        made = tuple(sorted(one.write.tool for one in accepted(work.transitions, advances)))
        alike = (wordings.read(work.text).wording, made)
        reads = frozenset(entry.call.tool for entry in work.transitions if entry.effect is Effect.READ)
        looked[alike][reads] += 1
        found.append((work, alike, reads))
    return looked, found


def _usual(counts: Counter[frozenset[str]]) -> frozenset[str]:
    """All that is read by those who read what a fifth of them reads."""
    total = counts.total()
    usual = [reads for reads, count in counts.items() if count >= _USUAL * total]
    return frozenset().union(*usual)
