"""Why recorded tools answered as they did: what an annotator is given, its port, and what it says, in a file.

A trajectory is one recorded episode. An annotation has a tutorial of the whole (plan, what success looks
like, what failure looks like) and a note for each step, written from the world's side: whether the action
can succeed, and how the world moves (arXiv 2511.03773, App. C). A teaching model writes it, or rules do.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dreamgym_kit.canonical import digest
from dreamgym_kit.codec import IF_SET, Codec
from dreamgym_kit.errors import BudgetExceeded, EndpointError, NotSerializable
from dreamgym_kit.rollout.budgets import RunAccount
from dreamgym_kit.rollout.line_log import append_lines, read_records
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Environment, Spend, Transition

ANNOTATIONS = "annotations.jsonl"
_NOTHING = Spend()
_GONE = 8  # questions in a row that nobody answers


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One recorded episode, as an annotator sees it."""

    tenant: str
    environment: Environment
    task: str  # the task's id
    episode: str
    steps: tuple[Transition, ...]  # real answers, in order
    text: str = ""  # what the agent was asked, where it is known
    success: bool | None = None  # None: nobody judged it

    @property
    def key(self) -> str:
        """Tells trajectories of one buffer apart."""
        return f"{self.tenant}/{self.environment}/{self.episode}"


@dataclass(frozen=True, slots=True)
class Tutorial:
    """What a whole trajectory teaches; a sentence each."""

    plan: str = ""
    success: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class StepNote:
    """Why one call was answered so."""

    step: int  # the transition's
    reasoning: str
    changes: tuple[Mapping[str, JsonValue], ...] | None = None
    """What the call changed (entity, field, value); None: the annotator does not know."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """What was said of one trajectory."""

    trajectory: str  # its key
    by: str  # who said it
    notes: tuple[StepNote, ...]  # one a step, in order
    tutorial: Tutorial = field(default_factory=Tutorial)


class Annotator(Protocol):
    """Says why the tools of a trajectory answered as they did."""

    name: str
    """Names who says it; an annotation by another name is made again."""

    async def annotate(self, trajectory: Trajectory) -> Annotation:
        """One note for each step, in order; equal trajectories may get different words.

        Raises:
            EndpointError: no answer came.
            NotSerializable: what came has not the form, or not a note for each step; its correction neither.
        """
        ...


def fits(annotation: Annotation, steps: Sequence[Transition]) -> bool:
    """Whether an annotation is of these steps: one note each, in their order."""
    return [note.step for note in annotation.notes] == [step.step for step in steps]


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the file: an annotation, the digest of the steps that it is of, and what was spent on it."""

    trajectory: str
    of: str
    by: str
    tutorial: Tutorial
    notes: tuple[StepNote, ...]
    spend: Spend | None = field(default=None, metadata=IF_SET)


_LINES = Codec(_Line)


class KeptAnnotations:
    """The annotations of one folder: a line each, appended as they come, so that an annotating can go on.

    A line bears the digest of the steps that it is of. One whose recording has changed since, or that another
    annotator wrote, does not count and is made again; the last line of a trajectory holds. A torn last line
    is dropped: its trajectory is annotated again.
    """

    def __init__(self, folder: Path) -> None:
        """Open the folder's file, which need not be there yet.

        Raises:
            RunDirectoryError: a line other than a torn last one is no annotation; names it.
        """
        self.path = folder / ANNOTATIONS
        self.spend = Spend()  # on all that was ever kept here, and on what was of no use in between
        self._annotations: dict[str, tuple[str, Annotation]] = {}
        problem = "is no annotation ({}); remove the line to have it made again."
        for line in read_records(self.path, _LINES.read, problem):
            self.spend += line.spend or Spend()
            annotation = Annotation(line.trajectory, line.by, line.notes, line.tutorial)
            self._annotations[line.trajectory] = (line.of, annotation)

    def of(self, trajectory: Trajectory, by: str | None = None) -> Annotation | None:
        """What was said of a trajectory as it is now, by anybody or by one annotator; None: nothing yet."""
        of, annotation = self._annotations.get(trajectory.key, ("", None))
        if annotation is None or of != _digest(trajectory) or by not in (None, annotation.by):
            return None
        return annotation

    def missing(self, trajectories: Iterable[Trajectory], by: str | None = None) -> list[Trajectory]:
        """Those that nothing was said of yet."""
        return [trajectory for trajectory in trajectories if self.of(trajectory, by) is None]

    def append(self, trajectory: Trajectory, annotation: Annotation, spend: Spend = _NOTHING) -> None:
        """Keep one, and what was spent since the last; it is there once this returns, whatever comes.

        Raises:
            RunDirectoryError: the disk refuses.
        """
        of = _digest(trajectory)
        append_lines(self.path, _line(of, annotation, spend), sync=True)
        self.spend += spend
        self._annotations[trajectory.key] = (of, annotation)


def _digest(trajectory: Trajectory) -> str:
    return digest([trajectory.key, [step.id for step in trajectory.steps]])[:16]


def _line(of: str, entry: Annotation, spend: Spend) -> bytes:
    spent = spend if spend.calls else None
    record = _LINES.write(_Line(entry.trajectory, of, entry.by, entry.tutorial, entry.notes, spent))
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


@dataclass(slots=True)
class Annotated:
    """What came of an annotating."""

    before: int  # were annotated already
    made: int = 0
    unusable: dict[str, str] = field(default_factory=dict)  # trajectory -> why
    stopped: str = ""  # why not all were asked about
    steps: int = 0


async def annotate(
    annotator: Annotator,
    trajectories: Sequence[Trajectory],
    annotations: KeptAnnotations,
    *,
    at_once: int = 8,
    account: RunAccount | None = None,
    tell: Callable[[Annotated], None] = lambda _: None,
) -> Annotated:
    """Annotate what is missing; an interrupted annotating goes on where it was.

    `account`: what the annotator spends; it is kept with the annotations.
    """
    charges = account or RunAccount()
    written = charges.spend
    missing = annotations.missing(trajectories, annotator.name)
    done = Annotated(before=len(trajectories) - len(missing))
    waiting = iter(missing)
    failed = 0  # in a row

    async def work() -> None:
        nonlocal failed, written
        for trajectory in waiting:
            if done.stopped:
                return
            try:
                annotation = await annotator.annotate(trajectory)
            except BudgetExceeded as spent:
                done.stopped = str(spent)
                return
            except EndpointError as error:
                failed += 1
                done.unusable[trajectory.key] = str(error)
                if failed >= _GONE:
                    done.stopped = f"the endpoint answers nothing: {error}"
            except NotSerializable as error:
                done.unusable[trajectory.key] = str(error)
            else:
                now = charges.spend
                annotations.append(trajectory, annotation, now - written)
                written, failed = now, 0
                done.made += 1
                done.steps += len(annotation.notes)
            tell(done)

    await asyncio.gather(*(work() for _ in range(max(1, at_once))))
    return done
