"""Does a recording replay itself? Random graphs and scripts, recorded once and simulated once.

Compared are the messages, and what was called with what answer. An episode that is inconclusive, refused or
stopped by an error counts as different, whichever side it is on.
"""

import random
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # `shapes` lies beside this folder
from replay_cases import WAYS, Case, case_of

import dreamgym_kit
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.dream.call_log import CallLog
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Episode, Transition

GRAPHS = 210
QUICK = 7


def measure(seed: int) -> Iterator[tuple[str, float, str]]:
    """Figures for the bench runner."""
    yield from figures(range(GRAPHS), seed)


def quick(seed: int) -> Iterator[tuple[str, float, str]]:
    """A few graphs."""
    yield from figures(range(QUICK), seed)


def figures(numbers: Sequence[int], seed: int) -> Iterator[tuple[str, float, str]]:
    """Record and simulate each case; says on stderr what differs."""
    different = hard = 0
    for number in numbers:
        case = case_of(number, seed)
        why = difference(case)
        hard += WAYS[0] not in case.name
        if why:
            different += 1
            print(f"different: {case.name}: {why}", file=sys.stderr)
    yield "graphs", len(numbers), ""
    yield "hard_share", hard / len(numbers), ""
    yield "different", different, "graphs"


def difference(case: Case) -> str:
    """How the dream of a recording differs from it; empty where it does not."""
    buffer = MemoryStore()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = Settings().with_overrides({"runs": folder})
        random.seed(0)
        real = episode_of(dreamgym_kit.record(case.graph, [case.task], buffer=buffer, settings=settings))
        ran = list(case.world.ran)
        random.seed(0)
        dream = episode_of(dreamgym_kit.simulate(case.graph, [case.task], buffer=buffer, settings=settings))
    if case.world.ran != ran:
        return f"the dream ran {case.world.ran[len(ran) :]}"
    for episode in (real, dream):
        if not episode.verdict.conclusive or episode.stop != "finished":
            side = "real" if episode is real else "dream"
            return f"{side}: {episode.verdict} {episode.stop}: {episode.reason}"
    if said(real) != said(dream):
        return first_difference("messages", said(real), said(dream))
    if calls(real) != calls(dream):
        return first_difference("calls", calls(real), calls(dream))
    return ""


def episode_of(result: Any) -> Episode:
    """The one episode of a run."""
    (episode,) = RunDirectory.open(result.directory).episodes()
    return episode


def said(episode: Episode) -> list[Any]:
    """The messages, without those of graphs that the bodies of tools ran."""
    return [message for message in episode.messages if "within" not in message]


def calls(episode: Episode) -> list[Any]:
    """The agent's calls and their answers, without those within another call."""
    return [
        (entry.call.tool, dict(entry.call.args), entry.answer.content, entry.answer.error)
        for entry in episode.transitions
        if not entry.within
    ]


def first_difference(what: str, real: list[Any], dream: list[Any]) -> str:
    """The first place where two lists differ."""
    for place, (one, other) in enumerate(zip([*real, None], [*dream, None], strict=False)):
        if one != other:
            return f"{what} differ at {place}: real {one!r}, dream {other!r}"
    return f"{what} differ: {len(real)} and {len(dream)}"


__all__ = ["CallLog", "Transition", "measure", "quick"]
