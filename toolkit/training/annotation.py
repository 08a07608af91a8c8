"""Why recorded tools answered as they did: what an annotator is given, what it says, and its port.

A trajectory is one recorded episode. An annotation has a tutorial of the whole (plan, what success looks
like, what failure looks like) and a note for each step, written from the world's side: whether the action
can succeed, and how the world moves (arXiv 2511.03773, App. C). A teaching model writes it, or rules do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.vocabulary import Transition, World


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One recorded episode, as an annotator sees it."""

    tenant: str
    world: World
    task: str  # the task's id
    episode: str
    steps: tuple[Transition, ...]  # real answers, in order
    text: str = ""  # what the agent was asked, where it is known
    success: bool | None = None  # None: nobody judged it

    @property
    def key(self) -> str:
        """Tells trajectories of one buffer apart."""
        return f"{self.tenant}/{self.world}/{self.episode}"


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
    """What the call changed (entity, field, value), where the annotator knows; None: see `rereads`."""


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
            NotJson: what came has not the form, or not a note for each step; its correction neither.
        """
        ...


def fits(annotation: Annotation, steps: Sequence[Transition]) -> bool:
    """Whether an annotation is of these steps: one note each, in their order."""
    return [note.step for note in annotation.notes] == [step.step for step in steps]
