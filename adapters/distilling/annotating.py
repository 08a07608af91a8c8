"""Annotating a buffer's trajectories: those that nobody annotated yet, a few at a time, each kept at once."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dreamgym_kit.errors import BudgetSpent, EndpointError, NotJson
from dreamgym_kit.rollout.spending import RunAccount
from dreamgym_kit.training.annotation import Annotator, Trajectory
from dreamgym_kit.training.distil.kept import KeptAnnotations

_AT_ONCE = 8
_GONE = 8  # questions in a row that nobody answers


@dataclass(slots=True)
class Annotated:
    """What came of it."""

    before: int  # were annotated already
    made: int = 0
    unusable: dict[str, str] = field(default_factory=dict)  # trajectory -> why
    stopped: str = ""  # why not all were asked about
    steps: int = 0


async def annotate(
    annotator: Annotator,
    trajectories: Sequence[Trajectory],
    kept: KeptAnnotations,
    *,
    at_once: int = _AT_ONCE,
    account: RunAccount | None = None,
    tell: Callable[[Annotated], None] = lambda _: None,
) -> Annotated:
    """Annotate what is missing; an interrupted annotating goes on where it was.

    `account`: what the annotator spends; it is kept with the annotations.
    """
    asked = account or RunAccount()
    written = asked.spend
    missing = kept.missing(trajectories, annotator.name)
    done = Annotated(before=len(trajectories) - len(missing))
    waiting = iter(missing)
    failed = 0  # in a row

    async def work() -> None:
        nonlocal failed, written
        for one in waiting:
            if done.stopped:
                return
            try:
                annotation = await annotator.annotate(one)
            except BudgetSpent as spent:
                done.stopped = str(spent)
                return
            except EndpointError as error:
                failed += 1
                done.unusable[one.key] = str(error)
                if failed >= _GONE:
                    done.stopped = f"the endpoint answers nothing: {error}"
            except NotJson as error:
                done.unusable[one.key] = str(error)
            else:
                now = asked.spend
                kept.append(one, annotation, now - written)
                written, failed = now, 0
                done.made += 1
                done.steps += len(annotation.notes)
            tell(done)

    await asyncio.gather(*(work() for _ in range(max(1, at_once))))
    return done
