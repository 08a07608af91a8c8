"""How the dream grows with recordings: `truth` on 1, 3, 10, 30 and 100 recorded episodes per world.

Each of the mined worlds and each of the dreamed ones has so many random walks recorded, no crawl and no
run of the task; dreamed are colleagues at that task and other walks. `exact_N` is the share of the answered
calls that are exact, `coverage_N` the share of calls that are answered.
"""

from desk_recordings import COLLEAGUES, Worked, colleague, rows, walk
from shares import in_a_cell, share
from truth import THRESHOLD, dream, score, with_worlds

from dreamgym_kit.dream.state.audit import learn
from dreamgym_kit.dream.state.history import recordings
from dreamgym_kit.dream.state.mining import renamed
from dreamgym_kit.recipes.desk.cases import TRAIN_SEEDS

EPISODES = (1, 3, 10, 30, 100)
WORLDS = 12  # mined, and as many others dreamed
_SPLITS = ("reads", "reads_after_write", "writes", "failures")
_ROWS: dict[int, dict[str, tuple[float, float]]] = {}


def measure(seed: int) -> list[tuple[str, float, str]]:
    """For each number of episodes: mine, dream, compare."""
    first = TRAIN_SEEDS.start + 1_000 * seed
    mined = range(first, first + WORLDS)
    dreamed = range(first + 500, first + 500 + WORLDS)
    asked = [one for world in dreamed for one in _asked(world)]
    figures: list[tuple[str, float, str]] = []
    for number in EPISODES:
        walks = [walk(world, place) for world in mined for place in range(number)]
        here = [walk(world, place) for world in dreamed for place in range(number)]
        learned = learn(recordings(rows(walks)))
        known = with_worlds(learned, here)
        steps = [renamed(one, learned.models) for one in recordings(rows(asked))]
        scores = score(steps, [dream(known, one, THRESHOLD) for one in steps])
        _ROWS[number] = {
            name: (
                scores[name].answered / scores[name].calls,
                share(scores[name].exact, scores[name].answered),
            )
            for name in (*_SPLITS, "all")
        }
        coverage, exact = _ROWS[number]["all"]
        figures += [(f"exact_{number}", exact, "share"), (f"coverage_{number}", coverage, "share")]
    return figures


def table() -> str:
    """By recorded episodes per world: answered and exact in each split."""
    names = (*_SPLITS, "all")
    lines = ["| episodes per world | " + " | ".join(f"{name}: answered, exact" for name in names) + " |"]
    lines.append("| --- |" + " --- |" * len(names))
    for number, row in _ROWS.items():
        cells = (f"{row[name][0]:.2f}, {in_a_cell(row[name][1])}" for name in names)
        lines.append(f"| {number} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _asked(world: int) -> list[Worked]:
    worked = [colleague(world, habits, f"c{place}-{world}") for place, habits in enumerate(COLLEAGUES)]
    return [*worked, *(walk(world, 1_000 + number) for number in range(2))]
