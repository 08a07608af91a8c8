"""What is each part of the dream worth? The table of the paper, for our desk: fidelity and success.

Colleagues work the desk and are recorded; every second world is read through as well, the others are known
by what was worked in them. `dreamgym-kit experience ablate --learn` measures the whole dream, then one
without each part: recorded calls of held-out episodes are put to it (`answered`, `exact`), and the
package's nano policy learns in it by GRPO, always from the same start, and is tried on the *real* tools on
held-out tasks (`real`). The whole dream has a curriculum, one call in ten that fails, and the package's
nano experience model. Without `reasoning` a model decides that was taught the same lessons without their
reasons. `faulty`: the same success with one real call in ten made to fail, for what learned with faults and
without.

Each part runs in its own process and keeps what it found (see `parts`); an interrupted training continues at
its last checkpoint. Full size takes about half an hour of CPU time a seed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parts import kept

SEEDS = 2
WHOLE = "nothing"  # is left out
PARTS = (WHOLE, "history", "state", "retrieval", "reasoning", "curriculum", "faults")
SMALL_PARTS = (WHOLE, "history", "faults")
FAULTS = 0.1  # of the calls
GRAPH = "tolerant_desk:graph"


@dataclass(frozen=True, slots=True)
class Found:
    """What one part of one seed came to."""

    outcomes: Mapping[str, Sequence[int]]  # on the real tools, by task: successes, failures, inconclusive
    faulty: Mapping[str, Sequence[int]] | None = None  # the same, under faults
    calls: int = 0  # recorded ones that were put to the dream
    answered: int = 0
    exact: int = 0
    alarm: str = ""


Seeds = Mapping[int, Mapping[str, Found]]
"""By seed, then by part."""


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return figures(range(seed, seed + SEEDS))


def quick(seed: int) -> list[tuple[str, float, str]]:
    """One seed in small, some parts: that it runs."""
    with tempfile.TemporaryDirectory() as scratch:
        return told({seed: _seed(Path(scratch), seed, SMALL_PARTS, small=True)})


_TABLE: list[str] = []


def table() -> str:
    """Part by part, over all seeds."""
    head = "| without | answered | exact | real success | against the whole dream (95 %) | alarms |"
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- |", *_TABLE])


def figures(seeds: Sequence[int]) -> list[tuple[str, float, str]]:
    """The figures over these seeds."""
    with kept("ablations") as folder:
        return told({seed: _seed(folder, seed, PARTS, small=False) for seed in seeds})


def told(found: Seeds) -> list[tuple[str, float, str]]:
    """What was found, as figures; the table as well."""
    parts = [part for part in next(iter(found.values())) if part != "start"]
    rows = [("start", share_of(found, "start"), "of held-out tasks")]
    _TABLE.clear()
    for part in parts:
        name = "whole" if part == WHOLE else f"no_{part}"
        calls, answered, exact = (
            sum(getattr(one[part], count) for one in found.values())
            for count in ("calls", "answered", "exact")
        )
        if calls:
            rows.append((f"answered_{name}", answered / calls, "of held-out calls"))
            rows.append((f"exact_{name}", exact / calls, "of held-out calls"))
        rows.append((f"real_{name}", share_of(found, part), "of held-out tasks"))
        if all(one[part].faulty is not None for one in found.values()):
            rows.append((f"faulty_{name}", share_of(found, part, faulty=True), "of held-out tasks"))
        shares = [f"{count / calls:.3f}" if calls else "" for count in (answered, exact)]
        _TABLE.append(_line(found, part, shares))
    return rows


def _line(found: Seeds, part: str, shares: Sequence[str]) -> str:
    from dreamgym_kit.trust.comparison import beaten

    against = ""
    if part != WHOLE:
        change = beaten(_outcomes(found, WHOLE), _outcomes(found, part))
        against = f"{100 * change.change:+.1f} ({100 * change.low:+.1f} to {100 * change.high:+.1f})"
    alarms = "; ".join(f"{seed}: {one[part].alarm}" for seed, one in found.items() if one[part].alarm)
    cells = (part, *shares, f"{share_of(found, part):.3f}", against, alarms)
    return f"| {' | '.join(cells)} |"


def share_of(found: Seeds, part: str, *, faulty: bool = False) -> float:
    """pass@1 over the tasks of all seeds."""
    decided = [one for one in _outcomes(found, part, faulty=faulty) if one.success + one.failure]
    return sum(one.success / (one.success + one.failure) for one in decided) / len(decided)


def _outcomes(found: Seeds, part: str, *, faulty: bool = False) -> list[Any]:
    """A part's tasks, those of each seed by themselves."""
    from dreamgym_kit.trust.outcomes import TaskOutcome

    return [
        TaskOutcome(f"{seed} {task}", *counts)
        for seed, one in found.items()
        for task, counts in ((one[part].faulty if faulty else one[part].outcomes) or {}).items()
    ]


def _seed(folder: Path, seed: int, parts: Sequence[str], *, small: bool) -> dict[str, Found]:
    """Every part of a seed; what was measured before is taken as it is."""
    home = folder / f"seed-{seed}"
    found = {}
    for part in ("start", *parts):
        result = _result(home, part)
        if not result.exists():
            command = [sys.executable, __file__, part, str(seed), str(home), *(["--small"] if small else [])]
            threads = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
            subprocess.run(command, env=os.environ | threads, stdout=sys.stderr, check=True)
        found[part] = Found(**json.loads(result.read_text()))
    return found


def _result(home: Path, part: str) -> Path:
    return home / f"part-{part}" / "result.json"


# What runs in a process of its own


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["start", *PARTS])
    parser.add_argument("seed", type=int)
    parser.add_argument("home", type=Path)
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    from dreamgym_kit.recipes.train_then_deploy import QUICK, WholeWayPlan

    full = WholeWayPlan(seed=asked.seed, shipped=True, environments=150, steps=20)
    small = replace(
        QUICK, seed=asked.seed, environments=12, recorded=4, steps=1, repeats=6, held_out=6, tries=1
    )
    sys.path.insert(0, str(Path(__file__).parent))  # where the graph is
    home, plan = asked.home.absolute(), small if asked.small else full
    if asked.part == "start":
        shutil.rmtree(home, ignore_errors=True)  # what was broken off
        home.mkdir(parents=True)
        found = _start(home, plan, small=asked.small)
    else:
        found = _ablated(asked.part, home, plan, small=asked.small)
    result = _result(home, asked.part)
    result.parent.mkdir(exist_ok=True)
    beside = result.with_name("result.new")
    beside.write_text(json.dumps(found))
    beside.replace(result)


def _start(home: Path, plan: Any, *, small: bool) -> dict[str, Any]:
    """Record, teach the model without reasons, try what learning begins with."""
    from dreamgym_kit.adapters.langgraph.run.api import record
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.recipes import train_then_deploy as recipe
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks
    from dreamgym_kit.recipes.nano.build import WEIGHTS
    from dreamgym_kit.recipes.nano.experience import build

    tasks, settings = drawn_tasks(plan.environments, seed=plan.seed), recipe.settings_for(home, plan)
    store = SqliteStore(home / "recordings.db")
    recipe.record_work(tasks[::2], settings, store, plan, print)
    graph, label = recipe._colleagues, f"work-{plan.seed}-unread"
    record(graph, tasks[1::2], settings=settings, buffer=store, repeats=plan.recorded, label=label)
    store.close()
    taught = build.QUICK if small else build.BuildPlan()  # as the package's own, which says why
    build.build(home / "plain", replace(taught, reasons=False), tell=print)
    return {"outcomes": _tried(WEIGHTS, plan, settings)}


def _ablated(part: str, home: Path, plan: Any, *, small: bool) -> dict[str, Any]:
    """Measure the dream without a part, learn in it, try what came of it."""
    from dreamgym_kit.adapters.langgraph.run.ablation import AblationRequest, ablate
    from dreamgym_kit.adapters.langgraph.run.evaluation import evaluation_between
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks
    from dreamgym_kit.recipes.nano.build import WEIGHTS
    from dreamgym_kit.types import Split

    settings, out = _settings(home, plan), home / "rows"
    held_out = drawn_tasks(plan.held_out, split=Split.HELD_OUT, seed=plan.seed)
    request = AblationRequest(
        graph=GRAPH,
        tasks=[*drawn_tasks(plan.environments, seed=plan.seed), *held_out],
        settings=settings,
        out=out,
        parts=() if part == WHOLE else (part,),
        policy=WEIGHTS,
        learn=True,
        most=60 if small else 1000,
    )
    row = ablate(request, tell=print)[-1]
    tried = evaluation_between(out / part / "real", None, held_out)
    faulty = None
    if part in (WHOLE, "faults"):
        faulty = _tried(_learned(out / part / "training"), plan, settings, faults=FAULTS)
    return {
        "outcomes": _rows(tried),
        "faulty": faulty,
        "calls": row.calls,
        "answered": row.answered,
        "exact": row.exact,
        "alarm": row.alarm or "",
    }


def _learned(run: Path) -> Path:
    """What a training came to; the start, where an alarm ended it before its first checkpoint."""
    from dreamgym_kit.recipes.nano.build import WEIGHTS
    from dreamgym_kit.report.training import training_of
    from dreamgym_kit.rollout.rundir import RunDirectory

    weights = training_of(RunDirectory.open(run)).weights
    return run / weights if weights is not None else WEIGHTS


def _settings(home: Path, plan: Any) -> Any:
    from dreamgym_kit.recipes.nano.experience.build import WEIGHTS
    from dreamgym_kit.recipes.train_then_deploy import settings_for

    return settings_for(home, plan).with_overrides(
        {
            "buffer": str(home / "recordings.db"),
            "curriculum.enabled": True,
            "train.faults": FAULTS,
            "train.eval_n": plan.tries,
            "experience.dir": str(WEIGHTS),
            "experience.no_reasoning_model": str(home / "plain"),
        }
    )


def _tried(model: Path, plan: Any, settings: Any, *, faults: float | None = None) -> dict[str, list[int]]:
    from dreamgym_kit.adapters.langgraph.run.evaluation import evaluate
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks
    from dreamgym_kit.types import Split

    held_out = drawn_tasks(plan.held_out, split=Split.HELD_OUT, seed=plan.seed)
    found = evaluate(
        GRAPH, held_out, real=True, settings=settings, repeats=plan.tries, policy=model, faults=faults
    )
    print(found.sentence)
    return _rows(found)


def _rows(found: Any) -> dict[str, list[int]]:
    return {one.task: [one.success, one.failure, one.inconclusive] for one in found.b.outcomes}


if __name__ == "__main__":
    _main()
