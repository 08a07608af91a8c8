"""What does one crawl of a world add to the dream? `crawl` on the desk's real database, then dreams.

Rules are mined in other worlds. The dreamed worlds are met without any recording of them (`_unseen`), after a
crawl that began with the words of the world's task alone (`_crawled`), and after one that was given the names
of all customers (`_named`). Colleagues work the world's own task there; random walks call anything.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from desk_recordings import Worked, held_out_half, recorded_half, rows
from shares import share
from truth import ABSTAINED, THRESHOLD, dream, with_worlds

import dreamgym_kit.recipes.desk as desk
from dreamgym_kit.adapters.langgraph.run.crawling import Crawled, CrawlRequest, crawl
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.dream.crawl_queue import words_of
from dreamgym_kit.dream.state.audit import learn
from dreamgym_kit.dream.state.dreaming import Knowledge
from dreamgym_kit.dream.state.history import recordings
from dreamgym_kit.dream.state.mining import renamed
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.recipes.desk.cases import make_case
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.types import Environment

WORLDS, DREAMED = 50, 25
GRAPH = "dreamgym_kit.recipes.desk.graph:simple_graph"


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Crawl the dreamed worlds, dream in them, compare."""
    learned = learn(recordings(rows(recorded_half(seed, WORLDS))))
    dreamed = held_out_half(seed, DREAMED)
    worlds = sorted({worked.seed for worked in dreamed})
    crawled, calls = crawl_worlds(worlds, named=False)
    named, more_calls = crawl_worlds(worlds, named=True)
    known = {"unseen": with_worlds(learned, []), "crawled": with_worlds(learned, crawled)}
    known["named"] = with_worlds(learned, named)
    figures = [("calls_per_world", calls / len(worlds), "calls")]
    figures.append(("calls_per_world_named", more_calls / len(worlds), "calls"))
    for kind, chosen in (("tasks", "c"), ("walks", "w")):
        episodes = [worked for worked in dreamed if worked.id.startswith(chosen)]
        for name, knowledge in known.items():
            coverage, exact = dreamt(knowledge, episodes)
            figures += [
                (f"coverage_{kind}_{name}", coverage, "share"),
                (f"exact_{kind}_{name}", exact, "share"),
            ]
    return figures


def crawl_worlds(worlds: Sequence[int], *, named: bool) -> tuple[list[Worked], int]:
    """Crawl desks as the command does; gives what was recorded, and how many calls it took."""
    settings = load_settings(file=Path(desk.__file__).parent / "dreamgym.toml", environ={})
    store, wanted = MemoryStore(), []
    for seed in worlds:
        case = make_case(seed)
        names = [row[1] for row in case.rows["customers"]] if named else []
        wanted.append(Crawled(Environment("desk", seed), (*names, *words_of(case.text))))
    request = CrawlRequest(
        graph=GRAPH,
        environments=wanted,
        settings=replace(settings, graph=GRAPH),
        store=store,
        per_second=0,
        most=10**6,
    )
    result = asyncio.run(crawl(request))
    made = [
        Worked(f"crawl-{seed}", seed, tuple(store.scan(environment=Environment("desk", seed))))
        for seed in worlds
    ]
    return made, result.calls.total()


def dreamt(knowledge: Knowledge, episodes: Sequence[Worked]) -> tuple[float, float]:
    """Share of calls that were answered, and of those the share that is exact."""
    calls = answered = exact = 0
    for episode in (renamed(one, knowledge.models) for one in recordings(rows(episodes))):
        for step, answer in zip(episode.steps, dream(knowledge, episode, THRESHOLD), strict=True):
            calls += 1
            answered += answer is not ABSTAINED
            exact += answer is not ABSTAINED and spell(answer) == spell(step.seen)
    return answered / max(1, calls), share(exact, answered)
