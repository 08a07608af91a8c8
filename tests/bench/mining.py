"""How long mining takes, and how long an answer: CPU time on one core, over desk recordings.

`added_share`: the time to mine again after the rows of the last 5 worlds were added, as a share of the time
to mine everything at once.
"""

import time

from desk_recordings import crawl, held_out_half, recorded_half, rows
from truth import with_worlds

from dreamgym_kit.dream.state.dreaming import Knowledge, replay
from dreamgym_kit.dream.state.history import RecordedEpisode, recordings
from dreamgym_kit.dream.state.mining import Miner, pooled, renamed
from dreamgym_kit.dream.state.worlds import start

WORLDS, DREAMED = 95, 10  # about 10,000 transitions
ADDED = 5  # worlds


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Mine once, then answer held-out calls."""
    episodes = recordings(rows(recorded_half(seed, WORLDS)))
    count = sum(len(one.steps) for one in episodes)
    began = time.process_time()
    models = Miner().mine(episodes)
    spent = time.process_time() - began
    added = _added(episodes)
    dreamed = held_out_half(seed, DREAMED)
    learned = Knowledge(models, pooled([renamed(one, models) for one in episodes], models))
    known = with_worlds(learned, [crawl(one) for one in sorted({worked.seed for worked in dreamed})])
    asked = [renamed(one, models) for one in recordings(rows(dreamed))]
    calls = sum(len(one.steps) for one in asked)
    began = time.process_time()
    for episode in asked:
        replay(known, start(known.pool, models, episode.world), episode)
    answering = time.process_time() - began
    return [
        ("seconds_per_10k", spent / count * 10_000, "s"),
        ("added_share", added / spent, "of mining all"),
        ("answer_us", answering / calls * 1e6, "us"),
    ]


def _added(episodes: list[RecordedEpisode]) -> float:
    """Seconds to mine again when the last worlds are there too."""
    late = set(list(dict.fromkeys(one.world for one in episodes))[-ADDED:])
    miner = Miner()
    miner.mine([one for one in episodes if one.world not in late])
    began = time.process_time()
    miner.mine(episodes)
    return time.process_time() - began
