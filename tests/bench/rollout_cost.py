"""What the episodes of one training step cost: through the unchanged graph, and without any framework.

The same nano model answers on both sides, its batches are as large, its prompts are equal token by token
(`recipes.nano` holds that in a test). On one side stand LangGraph, the gate, the dream, detectors, the judge
and the journal; on the other a loop that knows nothing but the model and the desk's functions. Both are
measured by CPU seconds for each token that the model said, since a dream that cannot tell ends an episode.
"""

import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TASKS, SIBLINGS, RECORDED = 16, 8, 4


class NoWeights(Exception):
    """There is no trained model to measure with."""

    skips = True


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of one collection."""

    cpu_s: float
    engine_s: float  # of these, in the thread that owns the model; 0 where it has none
    tokens: int  # that the model said

    @property
    def ms_a_token(self) -> float:
        """What a token costs, all told."""
        return 1e3 * self.cpu_s / self.tokens


def rollout_costs(seed: int, *, rounds: int = 3, tasks: int = TASKS) -> list[tuple[str, float, str]]:
    """Figures for `step_cost`; raises `NoWeights` where the package has no trained model."""
    from dreamgym_kit.recipes.nano.build import WEIGHTS

    if not (WEIGHTS / "config.json").exists():
        raise NoWeights(f"{WEIGHTS} holds no model; build one with python -m dreamgym_kit.recipes.nano")
    return measured(WEIGHTS, seed, rounds=rounds, tasks=tasks)


def measured(model: Path, seed: int, *, rounds: int, tasks: int) -> list[tuple[str, float, str]]:
    """The figures with any nano model."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, _Kit(model, Path(name), seed, tasks) as kit:
        bare = _Bare(model, kit.worlds)
        kit.collect(0)  # warm
        bare.collect(0)
        pairs = [(kit.collect(at), bare.collect(at)) for at in range(1, rounds + 1)]
    ratio = statistics.median(ours.ms_a_token / theirs.ms_a_token for ours, theirs in pairs)
    ours = [one for one, _ in pairs]
    return [
        ("langgraph_ratio", round(ratio, 3), "x frameworkless"),
        ("rollouts_cpu", round(statistics.median(one.cpu_s for one in ours), 2), "s"),
        ("rollouts_engine_cpu", round(statistics.median(one.engine_s for one in ours), 2), "s"),
        ("frameworkless_cpu", round(statistics.median(other.cpu_s for _, other in pairs), 2), "s"),
    ]


class _Bare:
    """Episodes without a framework."""

    def __init__(self, model: Path, worlds: list[int]) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from dreamgym_kit.recipes.nano.decode import Decoder
        from dreamgym_kit.recipes.nano.stream import Stream

        self._decoder = Decoder(AutoModelForCausalLM.from_pretrained(model))
        self._stream = Stream(AutoTokenizer.from_pretrained(model))
        self._worlds = [world for world in worlds for _ in range(SIBLINGS)]

    def collect(self, seed: int) -> Cost:
        from dreamgym_kit.recipes.nano.lockstep import play

        began = time.process_time()
        played = play(self._decoder, self._stream, self._worlds, seed=seed)
        return Cost(time.process_time() - began, 0.0, sum(sum(one.said) for one in played))


class _Kit:
    """Episodes through the graph, in the dream of what colleagues did."""

    def __init__(self, model: Path, folder: Path, seed: int, tasks: int) -> None:
        from dreamgym_kit.adapters.langgraph.api import record
        from dreamgym_kit.adapters.langgraph.rollouts import open_rollouts
        from dreamgym_kit.adapters.langgraph.run_request import RunRequest
        from dreamgym_kit.adapters.models.local import open_local
        from dreamgym_kit.adapters.stores.memory import MemoryStore
        from dreamgym_kit.recipes.desk.graph import graph
        from dreamgym_kit.recipes.desk.tasks import drawn_tasks
        from dreamgym_kit.recipes.train_then_deploy import GRAPH, QUICK, settings_for
        from dreamgym_kit.training.aside import LoopAside

        self._tasks = drawn_tasks(tasks, seed=seed)
        self.worlds = [task.world.seed for task in self._tasks]
        settings, store = settings_for(folder, QUICK), MemoryStore()
        record(graph("scripted:mixed"), self._tasks, settings=settings, store=store, n=RECORDED)
        self._aside = LoopAside()
        before = set(threading.enumerate())
        self._policy = open_local(model, lockstep=True)
        self._engine = [one.native_id for one in threading.enumerate() if one not in before]
        request = RunRequest(
            graph=GRAPH, tasks=self._tasks, settings=settings, store=store, policy=self._policy
        )
        self._held = self._aside.held(open_rollouts(request))

    def __enter__(self) -> "_Kit":
        self._aside.__enter__()
        self._rollouts = self._held.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._held.__exit__(None, None, None)
        self._aside.__exit__(*error)
        self._policy.close()

    def collect(self, seed: int) -> Cost:
        cpu, engine = time.process_time(), self._engine_s()
        groups = self._aside.run(self._rollouts.collect(self._tasks, SIBLINGS, step=1, seed=seed))
        cpu, engine = time.process_time() - cpu, self._engine_s() - engine
        said = sum(len(turn.ids) for group in groups for one in group.rollouts for turn in one.turns)
        return Cost(cpu, engine, said)

    def _engine_s(self) -> float:
        import psutil

        return sum(
            one.user_time + one.system_time for one in psutil.Process().threads() if one.id in self._engine
        )
