"""What a worker stands on: whoever opens it gives a runner, and what else there is to tell of its process."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from dreamgym_kit.errors import UserError
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.ports import EpisodeRunner, EventSink
from dreamgym_kit.rollout.budgets import Budget
from dreamgym_kit.turns import Turn
from dreamgym_kit.vocabulary import Task


async def _cannot(_: Any) -> Mapping[str, JsonValue]:
    raise UserError("this worker has no policy whose weights could be changed")


def _nothing() -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """An open worker.

    Attributes:
        runner: runs its episodes.
        warnings: what a person should know of how it was opened.
        turns: gives and forgets what the policy said in an episode, by its id.
        notes: what a person should know by now.
        strays: gives and forgets the refused calls that belonged to no episode.
        gone: why the policy's server is there no more: (kind, text); else empty.
        last: facts that the driver wants when all is done.
        load: takes other weights of the policy; gives what is served then.
        admit: lets more tasks be run.
        prepare: what a collection of episodes begins with.
    """

    runner: EpisodeRunner
    warnings: Sequence[str] = ()
    turns: Callable[[str], tuple[Turn, ...]] = lambda _: ()
    notes: Callable[[], Iterable[str]] = _nothing
    strays: Callable[[], Iterable[str]] = _nothing
    gone: Callable[[], tuple[str, ...]] = _nothing
    last: Callable[[], Mapping[str, JsonValue]] = dict
    load: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, JsonValue]]] = _cannot
    admit: Callable[[Sequence[Task]], None] = lambda _: None
    prepare: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, JsonValue]]] = _cannot


Opener = Callable[[Mapping[str, Any], EventSink, Budget], AbstractAsyncContextManager[Workplace]]
"""Opens a worker: `given` of the spec, who hears its events, what it is charged to. Named in the spec."""
