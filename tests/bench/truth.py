"""Is what the dream says what the tool would have said? The desk, half of its worlds recorded, half dreamed.

Recorded: colleagues and random walks in one half of the worlds, and a read crawl of every world. Dreamed,
free-running: other worlds, other tasks; nothing is corrected, so the dream lives with its own mistakes. An
observation counts as exact when it is equal up to the names of made-up ids. `exact_*` are shares of the
answered calls; an abstained call is no error and no success. `_unseen` is the same without any recording of
the dreamed worlds: what was never read there nobody can know. Which payments the desk's gateway times out for
nothing tells beforehand: of refunds the dream abstains. `verdict_*`: see `verdicts`.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from desk_recordings import Worked, crawl, held_out_half, recorded_half, rows
from shares import share, worst
from verdicts import Desk, DreamtDesk, StatelessDesk, verdict_figures

from dreamgym_kit.dream.state.audit import learn
from dreamgym_kit.dream.state.dreaming import Knowledge, Told, replay
from dreamgym_kit.dream.state.history import RecordedEpisode, recordings
from dreamgym_kit.dream.state.mining import pooled, renamed
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.views import State
from dreamgym_kit.dream.state.worlds import start
from dreamgym_kit.recipes.desk.cases import make_case
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Environment

WORLDS, DREAMED = 50, 25
THRESHOLD = 0.5
SPLITS = ("reads", "reads_after_write", "writes", "failures")

Dreamt = Sequence[JsonValue]  # an observation for each step, ABSTAINED for none
ABSTAINED = object()


@dataclass
class Score:
    """Calls, answered calls, exactly answered calls."""

    calls: int = 0
    answered: int = 0
    exact: int = 0


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Mine, dream, compare; beside it the dream without rules and two naive ones."""
    recorded, dreamed = recorded_half(seed, WORLDS), held_out_half(seed, DREAMED)
    learned = learn(recordings(rows(recorded)))
    crawled = [crawl(one) for one in sorted({worked.seed for worked in dreamed})]
    known = with_worlds(learned, crawled)
    steps = [renamed(one, learned.models) for one in recordings(rows(dreamed))]
    everything = [renamed(one, learned.models) for one in recordings(rows([*recorded, *crawled]))]
    nearest, last = Nearest(everything), Last(everything)
    dreams: dict[str, Callable[[RecordedEpisode], Dreamt]] = {
        "": lambda one: dream(known, one, THRESHOLD),
        "_no_threshold": lambda one: dream(known, one, 0.0),
        "_unseen": lambda one: dream(with_worlds(learned, []), one, THRESHOLD),
        "_state_off": lambda one: state_off(known, one),
        "_nearest": nearest.dream,
        "_last": last.dream,
    }
    figures: list[tuple[str, float, str]] = []
    for suffix, dreaming in dreams.items():
        told = [dreaming(one) for one in steps]
        figures += [(name + suffix, value, "share") for name, value in _figures(steps, told)]
    seeds = sorted({worked.seed for worked in dreamed})
    desks: dict[str, Callable[[str], Desk]] = {
        "": lambda world: DreamtDesk(known, world, THRESHOLD),
        "_no_threshold": lambda world: DreamtDesk(known, world, 0.0),
        "_nearest": lambda world: StatelessDesk(nearest.dream, world, ABSTAINED),
        "_last": lambda world: StatelessDesk(last.dream, world, ABSTAINED),
    }
    for suffix, desk in desks.items():
        figures += verdict_figures(
            seeds, lambda seed, desk=desk: desk(f"default/{Environment('desk', seed)}"), suffix
        )
    return figures


def with_worlds(learned: Knowledge, crawled: Sequence[Worked]) -> Knowledge:
    """The models over recordings of other worlds."""
    episodes = [renamed(one, learned.models) for one in recordings(rows(crawled))]
    return Knowledge(learned.models, pooled(episodes, learned.models), learned.calibration)


def dream(known: Knowledge, episode: RecordedEpisode, threshold: float) -> Dreamt:
    """The whole model-free dream. Colleagues were told the world's task; walks were told nothing."""
    begin = start(known.pool, known.models, episode.world)
    desk, _, seed = episode.world.rpartition("/desk:")
    if desk and not episode.id.startswith("walk"):
        begin = replace(begin, spoken=(make_case(int(seed)).text,))
    return dream_from(begin, known, episode, threshold)


def dream_from(begin: State, known: Knowledge, episode: RecordedEpisode, threshold: float) -> Dreamt:
    """The same from a state."""
    return [_seen(one) for one in replay(known, begin, episode, threshold)]


def state_off(known: Knowledge, episode: RecordedEpisode) -> Dreamt:
    """Only what was recorded after the same writes."""
    node, told = known.pool.root(episode.world), []
    for step in episode.steps:
        found, seen = known.pool.exact(node, step.tool, step.spelled)
        told.append(seen if found else ABSTAINED)
        node = known.pool.next(node, step)
    return told


class Last:
    """The last recorded answer of the very call in that world, whatever was written since."""

    def __init__(self, episodes: Sequence[RecordedEpisode]) -> None:
        self._said = {
            (one.world, step.tool, step.spelled): step.seen for one in episodes for step in one.steps
        }

    def dream(self, episode: RecordedEpisode) -> Dreamt:
        """Answer each call by itself."""
        return [self._said.get((episode.world, step.tool, step.spelled), ABSTAINED) for step in episode.steps]


class Nearest:
    """The answer to the recorded call of the tool whose arguments share most words, that world's first."""

    def __init__(self, episodes: Sequence[RecordedEpisode]) -> None:
        self._said: dict[str, list[tuple[str, set[str], JsonValue]]] = defaultdict(list)
        for one in episodes:
            for step in one.steps:
                self._said[step.tool].append((one.world, set(map(str, step.args.values())), step.seen))

    def dream(self, episode: RecordedEpisode) -> Dreamt:
        """Answer each call by itself."""
        return [
            max(
                self._said[step.tool],
                key=lambda said: (len(said[1] & set(map(str, step.args.values()))), said[0] == episode.world),
            )[2]
            for step in episode.steps
        ]


def _seen(told: Told | None) -> JsonValue:
    return ABSTAINED if told is None else told.seen


def score(steps: Sequence[RecordedEpisode], told: Sequence[Dreamt]) -> dict[str, Score]:
    """Calls by split, and "all"."""
    scores: dict[str, Score] = defaultdict(Score)
    for episode, answers in zip(steps, told, strict=True):
        wrote = False
        for step, answer in zip(episode.steps, answers, strict=True):
            if step.writes:
                split = "failures" if step.failed else "writes"
            else:
                split = "reads_after_write" if wrote else "reads"
            for name in (split, "all"):
                scores[name].calls += 1
                scores[name].answered += answer is not ABSTAINED
                scores[name].exact += answer is not ABSTAINED and spell(answer) == spell(step.seen)
            wrote = wrote or (step.writes and not step.failed)
    return scores


def _figures(steps: Sequence[RecordedEpisode], told: Sequence[Dreamt]) -> list[tuple[str, float]]:
    scores = score(steps, told)
    exact = {name: share(scores[name].exact, scores[name].answered) for name in SPLITS}
    whole = sum(
        all(
            one is not ABSTAINED and spell(one) == spell(step.seen)
            for step, one in zip(episode.steps, answers, strict=True)
        )
        for episode, answers in zip(steps, told, strict=True)
    )
    return [
        ("exact_worst_split", worst(exact.values())),
        *((f"exact_{name}", value) for name, value in exact.items()),
        *((f"coverage_{name}", scores[name].answered / scores[name].calls) for name in SPLITS),
        ("coverage", scores["all"].answered / scores["all"].calls),
        ("exact_answered", share(scores["all"].exact, scores["all"].answered)),
        ("episodes_exact", whole / len(steps)),
    ]
