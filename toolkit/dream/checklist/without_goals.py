"""A dream to learn in without any recorded goal: who judges, in which worlds, and which tasks fit.

Put together from recorded work alone: the checklist and its gate, the base state of each task's world
(recorded, or completed, or composed), and what imagined worlds ask for beside what recorded ones did. A
task that the judge may not be believed on, or whose imagined worlds are off, is left out, with the reason.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.canonical import digest
from dreamgym_kit.dream.checklist.checklist import Checklist
from dreamgym_kit.dream.checklist.composing import Shelf, clean_reads, completed, composed, shelf_of
from dreamgym_kit.dream.checklist.distribution import Shapes, compare_shapes, kinds_apart
from dreamgym_kit.dream.checklist.focus import focus_of
from dreamgym_kit.dream.checklist.gate import Bounds, Gate, gate_of
from dreamgym_kit.dream.checklist.labels import Work, worlds_of
from dreamgym_kit.dream.checklist.learning import Teacher, lessons_of, tree_marks
from dreamgym_kit.dream.checklist.patterns import Write
from dreamgym_kit.dream.checklist.things import Advances, Things, gather
from dreamgym_kit.dream.checklist.verdict import ChecklistJudge, asked_text
from dreamgym_kit.dream.state.history import Step, step_of
from dreamgym_kit.vocabulary import Episode, Provenance, Task, Transition, Verdict, World

_COMPARED = 40  # imagined worlds of each kind of request that are held against recorded ones
MOST_APART = 0.35
"""How far what imagined worlds ask for may be from what recorded ones did, before they are left out."""


@dataclass(frozen=True, slots=True)
class GoalFree:
    """A dream without goals.

    Attributes:
        judge: the checker to learn with.
        imagined: by world, the reads that nobody made there.
        tasks: those to learn from.
        left_out: by task, why it is not.
        gate: what the judge was found to be worth.
        shapes: what imagined and recorded worlds ask for, by kind of request.
        made_of: digest of all that it follows from: equal ones judge and imagine alike.
    """

    judge: ChecklistJudge
    imagined: Mapping[World, Sequence[Step]]
    tasks: tuple[Task, ...]
    left_out: Mapping[str, str]
    gate: Gate
    shapes: Mapping[str, Shapes]
    made_of: str = ""

    def __str__(self) -> str:
        """How it came out, in a few plain lines."""
        total = self.gate.total
        lines = [
            f"the judge agrees with {total.share:.1%} of {total.decided} recorded outcomes on worlds unseen",
            f"it takes {total.false_positive_rate:.1%} of the failures for successes",
            f"it leaves {total.inconclusive} open",
            f"{len(self.tasks)} tasks to learn from, {len(self.left_out)} left out",
            f"{len(self.imagined)} worlds imagined in part or whole",
        ]
        lines += [f"  {count} x {why}" for why, count in Counter(self.left_out.values()).most_common(8)]
        return "\n".join(lines)


def works_of(episodes: Iterable[Episode], tasks: Iterable[Task]) -> list[Work]:
    """Recorded episodes of these tasks that were judged, as work to learn from."""
    known = {task.id: task for task in tasks}
    return [
        Work(
            task=episode.task,
            text=asked_text(known[episode.task]),
            world=str(episode.world),
            transitions=episode.transitions,
            success=episode.verdict is Verdict.PASSED,
            family=str(known[episode.task].meta.get("family", "")),
        )
        for episode in episodes
        if episode.task in known and episode.verdict.conclusive
    ]


def without_goals(
    works: Sequence[Work],
    transitions: Iterable[Transition],
    tasks: Sequence[Task],
    advances: Advances,
    *,
    bounds: Bounds | None = None,
    teacher: Teacher = tree_marks,
    seed: int = 0,
) -> GoalFree:
    """Make a dream to learn these tasks in from recorded work.

    Args:
        works: recorded episodes, good and bad, of whatever tasks.
        transitions: all recordings, what a crawl read among them.
        tasks: to learn from; no goal of theirs is looked at.
        advances: whether a call changed its world, as mined.
        bounds: what the judge has to reach.
        teacher: makes the judge that marks candidates.
        seed: of fillings and imagined worlds.
    """
    rows = list(transitions)
    made_of = _digest(works, rows, tasks, bounds or Bounds(), teacher, seed)
    worlds = worlds_of(rows, advances)
    lessons = lessons_of(works, worlds, advances, seed=seed)
    checklist = lessons.checklist(teacher)

    def learn(some: Sequence[Work], there: Mapping[str, Things]) -> Checklist:
        return lessons_of(some, there, advances, seed=seed).checklist(teacher)

    gate = gate_of(works, worlds, advances, learn, bounds=bounds)
    reads = _reads(rows, advances)
    shelf = shelf_of(works, reads, lessons.wordings, lessons.fields, lessons.looks)
    imagined, bases = _bases(tasks, reads, worlds, shelf, seed)
    name = f"checklist {made_of}"
    judge = ChecklistJudge(checklist, lambda world, _: bases.get(world), advances, gate, name=name)
    shapes = _shapes(tasks, works, imagined, shelf, gate, checklist)
    left_out = _left_out(tasks, judge, shapes, gate, checklist, imagined)
    kept = tuple(task for task in tasks if task.id not in left_out)
    return GoalFree(judge, imagined, kept, left_out, gate, shapes, made_of)


def _digest(
    works: Sequence[Work],
    rows: Iterable[Transition],
    tasks: Iterable[Task],
    bounds: Bounds,
    teacher: Teacher,
    seed: int,
) -> str:
    told = [
        [[*one[:3], one.success, one.family, *(row.id for row in one.transitions)] for one in works],
        [row.id for row in rows],
        [[task.id, asked_text(task), str(task.world)] for task in tasks],
        [bounds.agreement, bounds.false_positives, bounds.least],
        [getattr(teacher, "__qualname__", type(teacher).__qualname__), seed],
    ]
    return digest(told)[:16]


def _reads(rows: Iterable[Transition], advances: Advances) -> dict[str, list[Step]]:
    episodes: dict[str, dict[str, list[Transition]]] = defaultdict(lambda: defaultdict(list))
    for entry in rows:
        if entry.answer.provenance is Provenance.REAL and not entry.effect.runs_in_dream:
            episodes[str(entry.world)][entry.episode].append(entry)
    return {
        world: clean_reads(
            [
                [step_of(one) for one in sorted(some, key=lambda row: row.step)]
                for some in by_episode.values()
            ],
            advances,
        )
        for world, by_episode in episodes.items()
    }


def _bases(
    tasks: Sequence[Task],
    reads: Mapping[str, Sequence[Step]],
    worlds: Mapping[str, Things],
    shelf: Shelf,
    seed: int,
) -> tuple[dict[World, Sequence[Step]], dict[World, Things]]:
    """The reads that have to be imagined for each task's world, and what is known of it with them."""
    imagined: dict[World, Sequence[Step]] = {}
    bases: dict[World, Things] = {}
    for task in tasks:
        text, world = asked_text(task), task.world
        known = reads.get(str(world), ())
        if known and _is_whole(shelf, worlds[str(world)], text):
            bases[world] = worlds[str(world)]
            continue
        made = (
            completed(shelf, known, seed=f"{seed} {world}")
            if known
            else composed(shelf, text, seed=f"{seed} {world}")
        )
        told = {(step.tool, step.spelled) for step in known}
        imagined[world] = [step for step in made if (step.tool, step.spelled) not in told]
        bases[world] = gather([made], lambda _: False)
    return imagined, bases


def _is_whole(shelf: Shelf, things: Things, text: str) -> bool:
    """Whether every read is known of what a request is about."""
    focus = focus_of(things, shelf.wordings.read(text))
    return bool(focus.own) and all(
        (tool, one) in things.asked
        for one in focus.own
        for tool in sorted(shelf.tools.get(things.kinds.get(one, ""), ()))
    )


def _shapes(
    tasks: Sequence[Task],
    works: Sequence[Work],
    imagined: Mapping[World, Sequence[Step]],
    shelf: Shelf,
    gate: Gate,
    checklist: Checklist,
) -> dict[str, Shapes]:
    """What imagined worlds ask for, and recorded ones, both by the same judge: only the worlds differ.

    The worlds to compare are composed for recorded requests: enough of them, however few the tasks are.
    """

    def kind(text: str) -> str:
        return gate.kind(shelf.wordings.read(text).wording) or ""

    wanted = {kind(asked_text(task)) for task in tasks if imagined.get(task.world)}
    texts: dict[str, list[str]] = defaultdict(list)
    for text in dict.fromkeys(work.text for work in works):
        if kind(text) in wanted and len(texts[kind(text)]) < _COMPARED:
            texts[kind(text)].append(text)
    made: list[tuple[str, frozenset[Write]]] = []
    for of, some in texts.items():
        for number, text in enumerate(some):
            reads = composed(shelf, text, seed=f"compared {number}")
            sheet = checklist.sheet(text, gather([reads], lambda _: False))
            made += [] if sheet.blank else [(of, sheet.expected)]
    recorded = [
        (gate.kind(wording) or "", sheet.expected)
        for wording, donors in shelf.donors.items()
        for sheet in (checklist.sheet_in(donor.reading, donor.things) for donor in donors)
        if not sheet.blank and gate.kind(wording) in wanted
    ]
    return compare_shapes(recorded, made)


def _left_out(
    tasks: Sequence[Task],
    judge: ChecklistJudge,
    shapes: Mapping[str, Shapes],
    gate: Gate,
    checklist: Checklist,
    imagined: Mapping[World, Sequence[Step]],
) -> dict[str, str]:
    apart = kinds_apart(shapes, MOST_APART)
    found: dict[str, str] = {}
    for task in tasks:
        text = asked_text(task)
        kind = gate.kind(checklist.wordings.read(text).wording)
        if imagined.get(task.world) and kind in apart:
            found[task.id] = f"{kind}: {apart[kind]}"
        elif why := judge.doubt(task):
            found[task.id] = why
    return found
