"""How long mining takes, and how long an answer: CPU time on one core, over desk recordings.

`seconds_per_10k`: about 10,000 calls in 95 worlds, mined and measured as by a run's first start;
`_one_world`: as many where all are of one world; `seconds_50k`: five times as many worlds. `reload_s`: the
second start, from what the first one kept. `peak_mb`: the process's memory at its highest, after the 10k.
"""

import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from desk_recordings import crawl, held_out_half, recorded_half, rows
from truth import dream

from dreamgym_kit.adapters.stores.factory import ProgramFile
from dreamgym_kit.dream.programs.experience import Programs, learn, seen_calls
from dreamgym_kit.dream.recorded_episodes import RecordedEpisode, recordings

WORLDS, DREAMED = 95, 10  # about 10,000 transitions
TIMES = 5


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Mine and measure once, as a run does, then answer held-out calls."""
    dreamed = held_out_half(seed, DREAMED)
    crawls = [crawl(number) for number in sorted({worked.seed for worked in dreamed})]
    episodes = recordings(rows([*recorded_half(seed, WORLDS), *crawls]))
    with tempfile.TemporaryDirectory() as folder:
        kept = ProgramFile(Path(folder) / "buffer.programs")
        programs, spent = _timed(episodes, kept)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        again, reload = _timed(episodes, kept)
    asked = [seen_calls(one, programs.model.parameters) for one in recordings(rows(dreamed))]
    began = time.process_time()
    for episode in asked:
        dream(again, episode)
    answering = time.process_time() - began
    one_world = [replace(episode, world=episodes[0].world) for episode in episodes]
    many = [
        replace(episode, id=f"{episode.id} {copy}", world=f"{episode.world} {copy}")
        for copy in range(TIMES)
        for episode in episodes
    ]
    of_many = _timed(many)[1]
    return [
        ("seconds_per_10k", spent, "s"),
        ("seconds_per_10k_one_world", _timed(one_world)[1], "s"),
        ("seconds_50k", of_many, "s"),
        ("times_50k", of_many / spent, "x the 10k"),
        ("reload_s", reload, "s"),
        ("answer_us", answering / sum(len(one.steps) for one in asked) * 1e6, "us"),
        ("peak_mb", peak, "MB"),
    ]


def _timed(episodes: Sequence[RecordedEpisode], kept: ProgramFile | None = None) -> tuple[Programs, float]:
    """The programs, and CPU seconds for 10,000 calls, or for each 50,000 where there are as many."""
    calls = sum(len(one.steps) for one in episodes)
    began = time.process_time()
    programs = learn(episodes, {}, program_store=kept)
    size = 10_000 if calls < 30_000 else 50_000
    return programs, (time.process_time() - began) * size / calls
