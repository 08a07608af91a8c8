"""Is what the dream says what the tool would have said? The desk, half of its worlds recorded, half dreamed.

Recorded: colleagues and random walks in one half of the worlds, and a read crawl of every world. Dreamed,
free-running: other worlds, other tasks; nothing is corrected, so the dream lives with its own mistakes. An
observation counts as exact when it is equal up to the names of made-up ids. `exact_*` are shares of the
answered calls; an abstained call is no error and no success. `_unseen` is the same without any recording of
the dreamed worlds: what was never read there nobody can know. Which payments the desk's gateway times out for
nothing tells beforehand: of refunds the dream abstains. `verdict_*`: see `verdicts`.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from desk_recordings import crawl, held_out_half, recorded_half, rows
from shares import share, worst
from verdicts import DreamtDesk, verdict_figures

from dreamgym_kit.dream.programs.collections import RecordedCalls
from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.experience import Programs, learn, seen_calls
from dreamgym_kit.dream.programs.trust import MadeUpNames
from dreamgym_kit.dream.programs.values import SeenStep
from dreamgym_kit.dream.recorded_episodes import recordings
from dreamgym_kit.types import Environment

WORLDS, DREAMED = 50, 25
THRESHOLD = 0.5
SPLITS = ("reads", "reads_after_write", "writes", "failures")

Dreamt = Sequence[bool | None]
"""Of each step whether its answer was exact; None: there was none."""


@dataclass
class Score:
    """Calls, answered calls, exactly answered calls."""

    calls: int = 0
    answered: int = 0
    exact: int = 0


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Mine, dream, compare."""
    recorded, dreamed = recorded_half(seed, WORLDS), held_out_half(seed, DREAMED)
    seeds = sorted({worked.seed for worked in dreamed})
    programs = learn(recordings(rows([*recorded, *map(crawl, seeds)])), {})
    calls = [seen_calls(one, programs.model.parameters) for one in recordings(rows(dreamed))]
    figures: list[tuple[str, float, str]] = []
    for suffix, unseen in (("", False), ("_unseen", True)):
        told = [dream(programs, one, unseen=unseen) for one in calls]
        figures += [(name + suffix, value, "share") for name, value in _figures(calls, told)]
    return figures + verdict_figures(
        seeds, lambda number: DreamtDesk(programs, f"default/{Environment('desk', number)}", THRESHOLD)
    )


def dream(programs: Programs, episode: RecordedCalls, *, unseen: bool = False) -> Dreamt:
    """Answer an episode's calls; what is told, and not what was recorded, is what later answers rest on."""
    world = "" if unseen else episode.world
    playing, names = ProgramEpisode(programs.model, world, programs.trust, episode.id), MadeUpNames()
    told: list[bool | None] = []
    for step in episode.steps:
        args = names.renamed(step.args)
        answer = playing.consider(step.tool, args)
        if answer is None or answer.confidence < THRESHOLD:
            playing.unseen(step.tool, args)
            told.append(None)
            continue
        said = SeenStep(step.tool, args, answer.ok, answer.out, step.writes, step.wrap)
        playing.observe(said, answer.confidence)
        told.append(answer.ok == step.ok and names.equal(answer.out, step.out, playing.made_up))
    return told


def score(calls: Sequence[RecordedCalls], told: Sequence[Dreamt]) -> dict[str, Score]:
    """Calls by split, and "all"."""
    scores: dict[str, Score] = defaultdict(Score)
    for episode, answers in zip(calls, told, strict=True):
        wrote = False
        for step, exact in zip(episode.steps, answers, strict=True):
            if step.writes:
                split = "writes" if step.ok else "failures"
            else:
                split = "reads_after_write" if wrote else "reads"
            for name in (split, "all"):
                scores[name].calls += 1
                scores[name].answered += exact is not None
                scores[name].exact += exact is True
            wrote = wrote or (step.writes and step.ok)
    return scores


def _figures(calls: Sequence[RecordedCalls], told: Sequence[Dreamt]) -> list[tuple[str, float]]:
    scores = score(calls, told)
    exact = {name: share(scores[name].exact, scores[name].answered) for name in SPLITS}
    return [
        ("exact_worst_split", worst(exact.values())),
        *((f"exact_{name}", value) for name, value in exact.items()),
        *((f"coverage_{name}", scores[name].answered / scores[name].calls) for name in SPLITS),
        ("coverage", scores["all"].answered / scores["all"].calls),
        ("exact_answered", share(scores["all"].exact, scores["all"].answered)),
        ("episodes_exact", sum(map(all, told)) / len(calls)),
    ]
