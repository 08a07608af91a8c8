"""What a model is to learn of each recorded call: the very prompt of a dream, and the decision that is right.

Each part of a prompt (history, examples, state) is left out at random now and then, so that a model is no
stranger to being without; it is not taught to know what stood there. A call is never shown itself: examples
are of other episodes, and, where worlds suffice, rules and examples are of other worlds, as they will be in a
world that nobody has recorded.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import NamedTuple

from dreamgym_kit.chat import ChatMessage
from dreamgym_kit.dream.consistency import ConsistencyCheck
from dreamgym_kit.dream.environment_facts import FactIndex
from dreamgym_kit.dream.held_out import as_seen, situation_of
from dreamgym_kit.dream.llm_experience import Retrieve, Schemas, question_messages
from dreamgym_kit.dream.programs.experience import ProgramTracker
from dreamgym_kit.dream.prompt import shown_tools
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.training.annotation import Annotation, StepNote, Trajectory, fits
from dreamgym_kit.training.pointing import Query, observed_changes, spelled, target_of
from dreamgym_kit.types import ToolSpec, Transition

PARTS = ("history", "examples", "state")
_MAX_REPEATED = 10
_NOT_SHOWN = "What decides it is not shown."
_WORD = re.compile(r"\w(?:[\w.@:-]*\w)?")


@dataclass(frozen=True, slots=True)
class Leaving:
    """How often each part of a prompt is left out, 0..1; and whether reasons are taught at all."""

    history: float = 0.15
    examples: float = 0.15
    state: float = 0.15
    reasoning: bool = True


USUALLY = Leaving()


class Sight(NamedTuple):
    """What may be seen of other recordings while a trajectory is taught."""

    retrieve: Retrieve
    schemas: Schemas
    facts: Callable[[Situation], FactIndex]
    programs: ProgramTracker


@dataclass(frozen=True, slots=True)
class CallLesson:
    """One prompt, and the text that is right."""

    row: str  # the transition's id
    tool: str
    kind: str  # "ok", "error"
    messages: tuple[ChatMessage, ...]
    answer: str
    unlearned: tuple[tuple[int, int], ...] = ()  # places of `answer` that are given, not learned
    left_out: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()  # ids of the transitions shown


@dataclass(slots=True)
class Counts:
    """What became of recorded calls."""

    lessons: Counter[str] = field(default_factory=Counter)  # by tool
    unsayable: Counter[str] = field(default_factory=Counter)  # by tool: no decision makes the answer
    unannotated: int = 0  # trajectories
    unknown_tools: Counter[str] = field(default_factory=Counter)


def lessons_of(
    trajectory: Trajectory,
    annotation: Annotation,
    sight: Sight,
    specs: Mapping[str, ToolSpec],
    counts: Counts,
    *,
    leaving: Leaving = USUALLY,
    seed: int = 0,
) -> Iterator[CallLesson]:
    """The lessons of one annotated trajectory, in its order."""
    if not fits(annotation, trajectory.steps):
        counts.unannotated += 1
        return
    observed = observed_changes(trajectory.steps)
    for place, (row, note) in enumerate(zip(trajectory.steps, annotation.notes, strict=True)):
        tool = row.call.tool
        if tool not in specs:
            counts.unknown_tools[tool] += 1
            continue
        chance = random.Random(f"{seed} {row.id}")  # noqa: S311  the same recordings give the same lessons
        left_out = tuple(part for part in PARTS if chance.random() < getattr(leaving, part))
        query = query_for(row, trajectory.steps[:place], sight, specs[tool], left_out=left_out)
        changes = note.changes if note.changes is not None else observed.get(row.step)
        if not row.effect.changes_environment:
            changes = ()
        target = target_of(query, _reason(note, query) if leaving.reasoning else "", changes)
        if target is None:
            counts.unsayable[tool] += 1
            continue
        counts.lessons[tool] += 1
        answer, unlearned = spelled(target)
        yield CallLesson(
            row=row.id,
            tool=tool,
            kind=str(target.decision["outcome"]),
            messages=tuple(_messages(query, chance, sight.facts(query.situation), specs)),
            answer=answer,
            unlearned=unlearned,
            left_out=left_out,
            examples=tuple(example.id for example in query.examples),
        )


def query_for(
    row: Transition,
    before: Sequence[Transition],
    sight: Sight,
    spec: ToolSpec,
    *,
    left_out: Sequence[str] = (),
) -> Query:
    """A recorded call as the dream would ask it."""
    situation = situation_of(row, before, spec)
    shown: tuple[Transition, ...] = ()
    if "examples" not in left_out:
        near = sight.retrieve(row.call, situation)
        shown = tuple(example for example in near if example.id != row.id and example.episode != row.episode)
    model = sight.programs.programs(row.tenant).model
    return Query(
        row=row,
        situation=situation,
        examples=shown,
        ground=ConsistencyCheck(sight.programs, row.call, situation),
        form=sight.schemas(row.call, situation),
        as_seen=lambda answer: as_seen(answer, row.call.tool, model),
        left_out=tuple(left_out),
    )


def balanced(lessons: Sequence[CallLesson]) -> list[CallLesson]:
    """Lessons, rare ones several times: classes (tool, outcome) come by the square root of their counts."""
    counts = Counter((lesson.tool, lesson.kind) for lesson in lessons)
    most = max(map(sqrt, counts.values()), default=1.0)
    return [
        lesson
        for lesson in lessons
        for _ in range(min(_MAX_REPEATED, max(1, round(most / sqrt(counts[lesson.tool, lesson.kind])))))
    ]


def _reason(note: StepNote, query: Query) -> str:
    """A note, unless it speaks of what is not shown: no reason is to be made up."""
    spoken = set(_WORD.findall(note.reasoning))
    return _NOT_SHOWN if any(len(word) > 1 and word in spoken for word in query.hidden) else note.reasoning


def _messages(
    query: Query, chance: random.Random, facts: FactIndex, specs: Mapping[str, ToolSpec]
) -> list[ChatMessage]:
    def mark() -> str:
        return f"{chance.getrandbits(64):016x}"

    row = query.row
    if not row.after and row.call.key in facts.by_call:  # a dream answers such a call from the recording
        facts = FactIndex(fact for key, fact in facts.by_call.items() if key != row.call.key)
    return question_messages(
        row.call,
        replace(query.situation, history=query.history),
        state=query.facts,
        form=query.form,
        facts=facts,
        tools=shown_tools(specs),
        examples=query.examples,
        draw=mark,
    )
