"""How long mining takes, and how long an answer: CPU time on one core, over desk recordings."""

import time

from desk_recordings import crawl, held_out_half, recorded_half, rows
from truth import dream

from dreamgym_kit.dream.programs.experience import learn, seen_calls
from dreamgym_kit.dream.recorded_episodes import recordings

WORLDS, DREAMED = 95, 10  # about 10,000 transitions


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Mine and measure once, as a run does, then answer held-out calls."""
    dreamed = held_out_half(seed, DREAMED)
    crawls = [crawl(number) for number in sorted({worked.seed for worked in dreamed})]
    episodes = recordings(rows([*recorded_half(seed, WORLDS), *crawls]))
    count = sum(len(one.steps) for one in episodes)
    began = time.process_time()
    programs = learn(episodes, {})
    spent = time.process_time() - began
    asked = [seen_calls(one, programs.model.parameters) for one in recordings(rows(dreamed))]
    began = time.process_time()
    for episode in asked:
        dream(programs, episode)
    answering = time.process_time() - began
    return [
        ("seconds_per_10k", spent / count * 10_000, "s"),
        ("answer_us", answering / sum(len(one.steps) for one in asked) * 1e6, "us"),
    ]
