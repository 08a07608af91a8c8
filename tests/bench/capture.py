"""Is each sampled token in exactly one sample? Five graph shapes, streaming on and off, the real engine.

The engine's own record of what it sampled is held against the samples that come of the collected turns: a
token is lost where no sample learns from it at its place, with its log-prob and after what was read; it is
foreign where a sample learns from one that the engine did not sample there.
"""

import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.append(str(Path(__file__).parents[1]))  # `nano_double` and `shapes` lie beside this folder

from capture_shapes import SHAPES, SteeredPolicyDouble, made
from nano_double import write_double
from shapes.stage import ScriptedExperienceDouble
from training.conversations import merged

from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.training.rollouts import open_rollouts
from dreamgym_kit.chat import SampledTokens
from dreamgym_kit.interfaces import Group
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.turns import Sample
from dreamgym_kit.types import Task

_SETTINGS = """
structured_outputs = ["Verdict"]
[tools.get_order]
effect = "read"
[policy]
max_output = 120
"""
_EPISODES = 8  # of each shape and way

Said = tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]  # read, sampled, log-probs


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return _figures(seed, tuple(SHAPES), _EPISODES)


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The same with two shapes and fewer episodes."""
    return _figures(seed, ("create_agent", "supervisor"), 2)


def _figures(seed: int, shapes: tuple[str, ...], episodes: int) -> list[tuple[str, float, str]]:
    sampled: list[SampledTokens] = []
    samples: list[Sample] = []
    turns = forks = merges = 0
    with tempfile.TemporaryDirectory() as scratch:
        for number, shape in enumerate(shapes):
            for streaming in (False, True):
                folder = Path(scratch) / f"{number}{streaming}"
                came, said = collected(shape, folder, seed, episodes, streaming=streaming)
                some, counted = merged(turn for group in came for one in group.rollouts for turn in one.turns)
                unfinished = [
                    one.episode.reason
                    for group in came
                    for one in group.rollouts
                    if one.episode.stop != "finished"
                ]
                if unfinished:
                    raise AssertionError(f"{shape}: {unfinished[0]}")
                samples += some
                sampled += said
                turns, forks, merges = turns + counted.turns, forks + counted.forks, merges + counted.merged
    lost, foreign = held_against(samples, sampled)
    return [
        ("lost_tokens", lost, "tokens"),
        ("foreign_tokens", foreign, "tokens"),
        ("sampled_tokens", sum(len(one.ids) for one in sampled), "tokens"),
        ("turns", turns, "turns"),
        ("merged", merges, "turns"),
        ("forks", forks, "turns"),
        ("samples", len(samples), "samples"),
    ]


def collected(
    shape: str, folder: Path, seed: int, episodes: int, *, streaming: bool
) -> tuple[list[Group], list[SampledTokens]]:
    """One group of episodes of a shape, and what the engine says that it sampled for them."""
    from dreamgym_kit.adapters.models.local import open_local

    write_double(folder / "model", seed=seed, context=8192)
    task = Task("t", {"messages": [{"role": "user", "content": "What became of my orders?"}]})
    with closing(open_local(folder / "model", lockstep=True)) as engine:
        policy = SteeredPolicyDouble(engine)
        request = RunRequest(
            graph=made(shape, streaming=streaming),
            tasks=[task],
            settings=parse_settings(_SETTINGS, path=folder / "dreamgym.toml"),
            experience=ScriptedExperienceDouble("shipped"),
            directory=folder / "rollouts",
            policy=policy,
        )

        async def work() -> list[Group]:
            async with open_rollouts(request) as rollouts:
                return await rollouts.collect([task], episodes, step=1, seed=seed)

        return asyncio.run(work()), policy.sampled


def held_against(samples: Iterable[Sample], sampled: Iterable[SampledTokens]) -> tuple[int, int]:
    """Tokens that no sample learns from, and tokens learned from that were not sampled there."""
    wanted: Counter[Said] = Counter((one.prompt_ids, one.ids, one.logprobs) for one in sampled)
    found: Counter[Said] = Counter(said for sample in samples for said in _runs(sample))
    lost = sum(len(said[1]) * times for said, times in (wanted - found).items())
    foreign = sum(len(said[1]) * times for said, times in (found - wanted).items())
    return lost, foreign


def _runs(sample: Sample) -> Iterable[Said]:
    """Each run of learned tokens, with what stands before it."""
    place, end = 0, len(sample.mask)
    while place < end:
        if not sample.mask[place]:
            place += 1
            continue
        begin = place
        while place < end and sample.mask[place]:
            place += 1
        at, to = sample.start + begin, sample.start + place
        yield sample.ids[:at], sample.ids[at:to], sample.logprobs[begin:place]
