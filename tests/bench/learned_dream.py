"""Does learning in a dream without any recorded goal help on the real desk? Five seeds, from nothing.

For each seed a nano model is taught from recorded work (`start`) and then learns by GRPO from there, each
time from as many episodes: on the real tools (`real`); in the dream of recordings, where success is what
somebody recorded as a success of that task (`recorded`); in the learned dream, where a checklist judges
that was learned from recorded work (`learned`); and in a learned dream of a tenth of the recordings, in
which nine of ten worlds are composed (`thin`). Recorded work is the episodes of the tasks, a crawl of their
worlds, and 3000 of the 6000 single episodes that taught the start (`thin`: 30 worlds and 300). All are
tried on the real tools, on held-out tasks in worlds that nothing was recorded of. A dream that leaves no
task to learn from leaves the start as it is.

`start` and `real` are those of the bench `learns`, kept in the same folder (`$DREAMGYM_LEARNS`): what it
measured is not measured again. `ratio_to_real` is success beside that of `real`; `thin_ratio` is the gain
of `thin` beside the gain of `real`. What the judge and the worlds were found to be worth stands in each
part's `dream.txt`.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from learns import FOLDER, Found, change_of, seeds_measured

SEEDS = 5
ARMS = ("learned", "recorded", "thin")
_SINGLES = 3000  # of the 6000 episodes that taught the start, which judge and dream read as well
_SMALL_SINGLES = 200
_TENTH = 10


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return figures(range(seed, seed + SEEDS))


def quick(seed: int) -> list[tuple[str, float, str]]:
    """One seed in small, from the package's weights: that it runs, and that no real tool did."""
    with tempfile.TemporaryDirectory() as scratch:
        _run(Path(scratch), seed, ("start", "learned"), small=True)
        found = {part: _read(Path(scratch), seed, part) for part in ("start", "learned")}
    return [
        ("start", found["start"].share, "of held-out tasks"),
        ("learned", found["learned"].share, "of held-out tasks"),
        ("steps", found["learned"].steps, "steps"),
        ("real_calls", found["learned"].real_calls, "calls"),
    ]


_TABLE: list[str] = []


def table() -> str:
    """Seed by seed."""
    head = "| seed | start | learned | recorded | real | thin | learned gain (95 %) | alarms |"
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- | --- | --- |", *_TABLE])


def figures(seeds: Sequence[int]) -> list[tuple[str, float, str]]:
    """The figures over these seeds."""
    kept = os.environ.get(FOLDER)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(kept or scratch)
        if kept is None:
            os.environ[FOLDER] = scratch  # where the parts that are shared are measured
        try:
            found = {seed: _parts(folder, seed) for seed in seeds}
        finally:
            if kept is None:
                del os.environ[FOLDER]
    return told(found)


def told(found: dict[int, dict[str, Found]]) -> list[tuple[str, float, str]]:
    """What was found, as figures."""
    parts = ("start", *ARMS, "real")
    means = {part: sum(one[part].share for one in found.values()) / len(found) for part in parts}
    _TABLE.clear()
    for seed, one in found.items():
        shares = " | ".join(
            f"{one[part].share:.3f}" for part in ("start", "learned", "recorded", "real", "thin")
        )
        change, low, high = (100 * each for each in change_of(one["start"], one["learned"]))
        alarms = "; ".join(f"{arm}: {one[arm].alarm}" for arm in ARMS if one[arm].alarm)
        _TABLE.append(f"| {seed} | {shares} | {change:+.1f} ({low:+.1f} to {high:+.1f}) | {alarms} |")
    gain = means["real"] - means["start"]
    return [
        *(
            (part, means[part], "of held-out tasks")
            for part in ("start", "learned", "recorded", "real", "thin")
        ),
        ("ratio_to_real", means["learned"] / means["real"] if means["real"] else float("nan"), "of real"),
        ("thin_ratio", (means["thin"] - means["start"]) / gain if gain else float("nan"), "of the real gain"),
        ("real_calls", sum(one[arm].real_calls for one in found.values() for arm in ARMS), "calls"),
    ]


def _parts(folder: Path, seed: int) -> dict[str, Found]:
    """Every part of a seed, each in its own process; what was measured before is taken as it is."""
    shared = seeds_measured([seed], arms=("real",))[seed]
    for arm in ARMS:
        if not _result(folder, seed, arm).exists():
            _run(folder, seed, (arm,), small=False)
    return dict(shared) | {arm: _read(folder, seed, arm) for arm in ARMS}


def _run(folder: Path, seed: int, parts: Sequence[str], *, small: bool) -> None:
    command = [sys.executable, __file__, str(seed), str(folder), *parts, *(["--small"] if small else [])]
    threads = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, env=os.environ | threads, stdout=sys.stderr, check=True)


def _read(folder: Path, seed: int, part: str) -> Found:
    return Found(**json.loads(_result(folder, seed, part).read_text()))


def _result(folder: Path, seed: int, part: str) -> Path:
    return _place(folder / f"seed-{seed}", part) / "result.json"


def _place(home: Path, part: str) -> Path:
    """Where a part works and leaves what it found; as `learns` has it, whose parts lie beside these."""
    return home / f"part-{part}"


# What runs in a process of its own


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="+", choices=["start", *ARMS])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--judge", action="store_true", help="only make the dream, and say what it is worth")
    asked = parser.parse_args()
    import shutil

    import learns

    from dreamgym_kit.recipes.train_then_deploy import QUICK, Plan, settings_for

    small = replace(QUICK, steps=1, recorded=2, held_out=9, tries=1)
    plan = replace(small if asked.small else Plan(), seed=asked.seed)
    home = asked.folder / f"seed-{asked.seed}"
    for part in asked.parts:
        place = _place(home, part)
        if asked.judge:
            place.mkdir(parents=True, exist_ok=True)
            told = _dream(part, home, plan, settings_for(place, plan)).told
            (place / "dream.txt").write_text(f"{told}\n")
            continue
        shutil.rmtree(place, ignore_errors=True)  # what was broken off
        place.mkdir(parents=True)
        settings = settings_for(place, plan)
        found = learns._start(home, plan, settings) if part == "start" else _arm(part, home, plan, settings)
        (place / "result.json").write_text(json.dumps(found))


def _arm(part: str, home: Path, plan: Any, settings: Any) -> dict[str, Any]:
    """Make the dream, learn in it, try what came of it on the real tools."""
    import learns

    from dreamgym_kit.adapters.langgraph.training import train
    from dreamgym_kit.adapters.langgraph.training_request import TrainRequest
    from dreamgym_kit.recipes.desk.world import times_opened
    from dreamgym_kit.recipes.train_then_deploy import GRAPH
    from dreamgym_kit.rollout.events import NoEvents

    start = Path((home / "model.txt").read_text())
    before = times_opened()
    dream = _dream(part, home, plan, settings)
    (_place(home, part) / "dream.txt").write_text(f"{dream.told}\n")
    if not dream.tasks:
        return _nothing_learned(home, times_opened() - before)
    request = TrainRequest(
        graph=GRAPH,
        tasks=dream.tasks,
        settings=settings.with_overrides({"policy.model": str(start)}),
        experience=dream.experience,
        judge=dream.judge,
        directory=(_place(home, part) / "training").absolute(),
    )
    result = train(request, events=NoEvents())
    real = times_opened() - before
    found = learns._tried(result.weights or start, plan, settings)
    alarm = str(result.trained.alarm or "")
    return found | {"real_calls": real, "steps": len(result.trained.steps), "alarm": alarm}


def _nothing_learned(home: Path, real_calls: int) -> dict[str, Any]:
    """What an arm came to whose dream left no task: the start, as it was tried."""
    start: dict[str, Any] = json.loads((_place(home, "start") / "result.json").read_text())
    return start | {"real_calls": real_calls, "steps": 0, "alarm": "no task to learn from"}


class _Dream:
    """What an arm learns in."""

    def __init__(self, experience: Any, judge: Any, tasks: Any, told: str) -> None:
        self.experience, self.judge, self.tasks, self.told = experience, judge, list(tasks), told


def _dream(part: str, home: Path, plan: Any, settings: Any) -> _Dream:
    from dreamgym_kit.adapters.langgraph.experiences import chained_experience
    from dreamgym_kit.adapters.stores.memory import MemoryStore
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.dream.checklist.gate import Bounds
    from dreamgym_kit.dream.checklist.imagined import ImaginedExperience
    from dreamgym_kit.dream.checklist.without_goals import without_goals, works_of
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks

    tasks = drawn_tasks(plan.worlds, seed=plan.seed)
    known = {task.world for task in (tasks[: len(tasks) // _TENTH] if part == "thin" else tasks)}
    whole = SqliteStore(home / "recordings.db", read_only=True)
    rows = [row for row in whole.scan() if row.world in known]
    whole.close()
    works = [one for one in works_of(_episodes(home), tasks) if any(str(w) == one.world for w in known)]
    count = 0 if part == "recorded" else _SMALL_SINGLES if plan.shipped else _SINGLES
    singles = list(_singles(count // _TENTH if part == "thin" else count, plan.seed))
    every = [*rows, *(row for _, some in singles for row in some)]
    store = MemoryStore()
    store.put(every)  # what a judge may know a dream may know
    chain = chained_experience(store, settings)
    models = chain.following.knowledge("default").models
    if part == "recorded":
        judge = _RecordedGoals(works, models.advances)
        kept = [task for task in tasks if task.id in judge.goals]
        return _Dream(chain, judge, kept, f"{len(kept)} of {len(tasks)} tasks have a recorded success")
    made = without_goals(
        [*works, *(work for work, _ in singles)],
        every,
        tasks,
        models.advances,
        bounds=Bounds(0.0, 1.0, 1) if plan.shipped else None,  # too little was recorded to prove anything
        seed=plan.seed,
    )
    return _Dream(ImaginedExperience(chain, made.imagined), made.judge, made.tasks, str(made))


def _episodes(home: Path) -> Iterator[Any]:
    """The recorded episodes of the start, with how they were judged for real."""
    from dreamgym_kit.rollout.journal import JournalReader

    for journal in sorted((_place(home, "start") / "runs").glob("*/episodes.jsonl")):
        yield from JournalReader(journal)


def _singles(count: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Some of the single episodes that taught the start, as work and as transitions."""
    from dreamgym_kit.dream.checklist.labels import Work
    from dreamgym_kit.recipes.nano.episodes import record
    from dreamgym_kit.recipes.nano.recorded import transitions_of

    if not count:
        return
    drawn = list(record(6000 if count != _SMALL_SINGLES else 2 * count, seed=seed))
    for worked in random.Random(f"singles {seed}").sample(drawn, count):
        rows = tuple(transitions_of(worked))
        name = f"{worked.family}-{worked.seed}"
        yield Work(name, worked.request, f"desk:{worked.seed}", rows, worked.solved, worked.family), rows


class _RecordedGoals:
    """A checker that knows the writes of every recorded success of a task."""

    def __init__(self, works: Any, advances: Any) -> None:
        from dreamgym_kit.dream.checklist.checklist import writes_of
        from dreamgym_kit.dream.checklist.labels import accepted

        self._writes = lambda transitions: sorted(writes_of(accepted(transitions, advances)))
        self.goals: dict[str, list[Any]] = {}
        for work in works:
            if work.success:
                self.goals.setdefault(work.task, []).append(self._writes(work.transitions))

    def __call__(self, outcome: Any) -> bool:
        return self._writes(outcome.transitions) in self.goals[outcome.task.id]


if __name__ == "__main__":
    _main()
