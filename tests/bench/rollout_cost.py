"""The episodes of a training step, two ways: through the unchanged graph, and without any framework.

The same nano model answers on both sides, its batches are as large, its prompts are equal token by token
(`recipes.nano` holds that in a test). On one side stand LangGraph, the gate, the dream, detectors, the judge
and the journal; on the other a loop that knows nothing but the model and the desk's functions. Both are
measured by CPU seconds for each token that the model said, since a dream that cannot tell ends an episode.
What is made of the episodes is `whole_step`'s to measure.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dreamgym_kit.interfaces import Group
from dreamgym_kit.types import Task

SIBLINGS, RECORDED = 8, 4


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


class Bare:
    """Episodes without a framework."""

    def __init__(self, model: Path, worlds: list[int]) -> None:
        from transformers import AutoTokenizer

        from dreamgym_kit.adapters.models.folders import load_model
        from dreamgym_kit.recipes.nano.tokens import Stream

        self.model = load_model(model)
        self._stream = Stream(AutoTokenizer.from_pretrained(model))
        self._worlds = [world for world in worlds for _ in range(SIBLINGS)]

    def collect(self, seed: int) -> Cost:
        """Play each world with the model as it is now."""
        from dreamgym_kit.adapters.models.local_network import Qwen3Network
        from dreamgym_kit.recipes.nano.score import play

        began = time.process_time()
        played = play(Qwen3Network(self.model), self._stream, self._worlds, seed=seed)
        return Cost(time.process_time() - began, 0.0, sum(sum(one.sampled) for one in played))


class Kit:
    """Episodes through the graph, in the dream of what colleagues did."""

    def __init__(self, model: Path, folder: Path, seed: int, tasks: int) -> None:
        from dreamgym_kit.adapters.langgraph.run.api import record
        from dreamgym_kit.adapters.langgraph.run.request import RunRequest
        from dreamgym_kit.adapters.langgraph.training.rollouts import open_rollouts
        from dreamgym_kit.adapters.models.local import open_local
        from dreamgym_kit.adapters.stores.memory import MemoryStore
        from dreamgym_kit.recipes.desk.graph import graph
        from dreamgym_kit.recipes.desk.tasks import drawn_tasks
        from dreamgym_kit.recipes.train_then_deploy import GRAPH, QUICK, settings_for
        from dreamgym_kit.threads import BackgroundLoop

        self.tasks = drawn_tasks(tasks, seed=seed)
        self.worlds = [task.environment.variant for task in self.tasks]
        self.settings, store = settings_for(folder, QUICK), MemoryStore()
        record(graph("scripted:mixed"), self.tasks, settings=self.settings, buffer=store, repeats=RECORDED)
        self.aside = BackgroundLoop()
        before = set(threading.enumerate())
        self.policy = open_local(model, version="step-000000", lockstep=True)
        self._engine = [one.native_id for one in threading.enumerate() if one not in before]
        request = RunRequest(
            graph=GRAPH, tasks=self.tasks, settings=self.settings, store=store, policy=self.policy
        )
        self._held = self.aside.held(open_rollouts(request))

    def __enter__(self) -> "Kit":
        self.aside.__enter__()
        self._rollouts = self._held.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._held.__exit__(None, None, None)
        self.aside.__exit__(*error)
        self.policy.close()

    async def collect(self, tasks: Sequence[Task], n: int, *, step: int, seed: int) -> list[Group]:
        """As a `interfaces.Collector`; what it cost and gave stands in `cost` and `groups`."""
        cpu, engine = time.process_time(), self._engine_s()
        self.groups = await self._rollouts.collect(tasks, n, step=step, seed=seed)
        cpu, engine = time.process_time() - cpu, self._engine_s() - engine
        said = sum(len(turn.ids) for group in self.groups for one in group.rollouts for turn in one.turns)
        self.cost = Cost(cpu, engine, said)
        return self.groups

    def _engine_s(self) -> float:
        import psutil

        return sum(
            one.user_time + one.system_time for one in psutil.Process().threads() if one.id in self._engine
        )
