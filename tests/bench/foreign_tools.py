"""Mining on tool APIs that nobody here wrote: seven stateful classes of BFCL, where the suite lies.

Rules are mined from ten worlds of each API, nine episodes each; dreamed, free-running, are ten other
worlds: their task and two noisy runs of it. `_same`: noisy runs of the same tasks and a crawl of the dreamed
world are recorded; `_other`: ten random walks that never use the task's arguments; `_unseen`: nothing.
`coverage` is the share of calls that are answered, `exact` the share of those that say what the real object
said, `presumed` the wrong failures: "not found" of what is there. Figures of all APIs are pooled by calls.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from foreign_recordings import Api, Place, Worked, apis, crawl, noisy, rows, solution, walk, writing
from shares import in_a_cell, share
from truth import ABSTAINED, Dreamt, Score, dream_from, score

from dreamgym_kit.dream.state.audit import learn
from dreamgym_kit.dream.state.dreaming import Knowledge
from dreamgym_kit.dream.state.history import RecordedEpisode, recordings
from dreamgym_kit.dream.state.mining import pooled, renamed
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.worlds import start

THRESHOLD = 0.5
MINED, DREAMED = 10, 10  # worlds
SETTINGS = ("same", "other", "unseen")


@dataclass
class Tally:
    """What was dreamt in one setting."""

    scores: dict[str, Score] = field(default_factory=lambda: defaultdict(Score))
    presumed: int = 0

    def add(self, steps: Sequence[RecordedEpisode], told: Sequence[Dreamt]) -> None:
        """Count some episodes."""
        for name, one in score(steps, told).items():
            mine = self.scores[name]
            mine.calls, mine.answered = mine.calls + one.calls, mine.answered + one.answered
            mine.exact += one.exact
        self.presumed += sum(
            answer is not ABSTAINED and failed(answer) and not step.failed
            for episode, answers in zip(steps, told, strict=True)
            for step, answer in zip(episode.steps, answers, strict=True)
        )

    def figures(self, suffix: str) -> list[tuple[str, float, str]]:
        """Coverage and exactness."""
        whole = self.scores["all"]
        return [
            (f"coverage_{suffix}", whole.answered / max(1, whole.calls), "share"),
            (f"exact_{suffix}", share(whole.exact, whole.answered), "share"),
            (f"presumed_{suffix}", float(self.presumed), "calls"),
        ]


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Each API by itself, then all calls together."""
    whole = {setting: Tally() for setting in SETTINGS}
    count, spent = 0, 0.0
    for api in apis():
        steps, told, transitions, seconds = dreamt(api, seed)
        count, spent = count + transitions, spent + seconds
        for setting in SETTINGS:
            whole[setting].add(steps, told[setting])
            _TABLE.setdefault(api.name, {})[setting] = Tally()
            _TABLE[api.name][setting].add(steps, told[setting])
    figures = [figure for setting in SETTINGS for figure in whole[setting].figures(setting)]
    calls = whole["same"].scores["all"].calls
    return [*figures, ("calls", calls, "calls"), ("learn_seconds_per_10k", spent / count * 10_000, "s")]


_TABLE: dict[str, dict[str, Tally]] = {}


def table() -> str:
    """By API: coverage and exactness in each setting."""
    lines = ["| API | " + " | ".join(f"{one}: answered, exact" for one in SETTINGS) + " |"]
    lines.append("| --- |" + " --- |" * len(SETTINGS))
    for name, tallies in _TABLE.items():
        cells = []
        for setting in SETTINGS:
            one = tallies[setting].scores["all"]
            cells.append(f"{one.answered / one.calls:.2f}, {in_a_cell(share(one.exact, one.answered))}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def dreamt(api: Api, seed: int) -> tuple[list[RecordedEpisode], dict[str, list[Dreamt]], int, float]:
    """Mine one API and dream its other worlds in each setting."""
    mined, dreamed = _split(api)
    recorded = [one for place in mined for one in _episodes(api, place, seed)]
    asked = [one for place in dreamed for one in _asked(api, place, seed)]
    walks = [walk(api, place, 700 + 10 * seed + number) for place in dreamed for number in range(10)]
    writes = writing([*recorded, *asked, *walks])
    again = [noisy(api, place, 900 + 10 * seed + number) for place in dreamed for number in range(10)]
    again += [crawl(api, place, writes) for place in dreamed]
    recorded += [crawl(api, place, writes) for place in mined[::2]]
    began = time.process_time()
    learned = learn(recordings(rows(recorded, writes)))
    spent = time.process_time() - began
    steps = [renamed(one, learned.models) for one in recordings(rows(asked, writes))]
    told = {
        setting: [_dream(known, one) for one in steps]
        for setting, known in (
            ("same", _knowing(learned, again, writes)),
            ("other", _knowing(learned, walks, writes)),
            ("unseen", _knowing(learned, [], writes)),
        )
    }
    return steps, told, learned.models.transitions, spent


def _dream(known: Knowledge, episode: RecordedEpisode) -> Dreamt:
    """Nobody tells these dreams the task."""
    return dream_from(start(known.pool, known.models, episode.world), known, episode, THRESHOLD)


def _split(api: Api) -> tuple[list[Place], list[Place]]:
    half = min(MINED, len(api.places) // 2)
    return list(api.places[:half]), list(api.places[half : half + DREAMED])


def _episodes(api: Api, place: Place, seed: int) -> list[Worked]:
    return [
        solution(api, place),
        *(noisy(api, place, 10 * seed + number) for number in range(3)),
        *(walk(api, place, 10 * seed + number) for number in range(5)),
    ]


def _asked(api: Api, place: Place, seed: int) -> list[Worked]:
    return [solution(api, place), *(noisy(api, place, 500 + 10 * seed + number) for number in range(2))]


def _knowing(learned: Knowledge, worked: Sequence[Worked], writes: frozenset[str]) -> Knowledge:
    episodes = [renamed(one, learned.models) for one in recordings(rows(worked, writes))]
    return Knowledge(learned.models, pooled(episodes, learned.models), learned.calibration)


def _wrong(steps: Sequence[RecordedEpisode], told: Sequence[Dreamt]) -> list[str]:
    """What was dreamt wrongly, for a person who looks into it."""
    return [
        f"{episode.id} {number} {step.tool} {dict(step.args)}: {answer} for {step.seen}"
        for episode, answers in zip(steps, told, strict=True)
        for number, (step, answer) in enumerate(zip(episode.steps, answers, strict=True))
        if answer is not ABSTAINED and spell(answer) != spell(step.seen)
    ]


if __name__ == "__main__":
    for one in apis():
        if not sys.argv[2:] or one.name in sys.argv[2:]:
            episodes, answers, _, _ = dreamt(one, 0)
            print("\n".join(_wrong(episodes, answers[sys.argv[1]])))
