"""A policy of five numbers with its trainer, server and collector: doubles that really learn, in no time.

The policy says six tokens by one softmax, whatever it was told; the more of them are token 3, the better.
All of it follows from seeds, as the real parts promise. `planted` breaks one part from a step on.
"""

import asyncio
import json
import math
import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dreamgym_kit.chat import ChatReply, ChatRequest, SampledTokens
from dreamgym_kit.errors import EndpointError
from dreamgym_kit.interfaces import Group, Rollout
from dreamgym_kit.rollout.atomic_files import write_atomically
from dreamgym_kit.turns import Batch, Turn, UpdateFacts
from dreamgym_kit.types import Episode, Task, Verdict

VOCABULARY = 5
TOKENS = 6
START = [0.0] * VOCABULARY
KNOWN_IDS = (4, 1, 2)


def logprobs(logits: Sequence[float]) -> list[float]:
    norm = math.log(sum(math.exp(one) for one in logits))
    return [one - norm for one in logits]


def rows(logits: Sequence[float], ids: Sequence[Sequence[int]]) -> list[list[float]]:
    told = logprobs(logits)
    return [[told[one] for one in row[1:]] for row in ids]


@dataclass
class Planted:
    """What is broken, and from which step on."""

    fault: str = ""
    step: int = 5

    def at(self, fault: str, step: int) -> bool:
        return self.fault == fault and step >= self.step


def die(where: str) -> None:
    """End as kill -9 does, where the environment says so."""
    if os.environ.get("DIE_AT") == where:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class ServerDouble:
    planted: Planted = field(default_factory=Planted)
    logits: list[float] = field(default_factory=lambda: list(START))
    version: str = ""
    loads: int = 0

    async def load(self, weights: Path, version: str) -> None:
        step = int(version.removeprefix("step-"))
        die(f"sync {step}")
        if self.planted.at("server is gone", step):
            raise EndpointError("connection", "http://double: connection refused")
        self.loads += 1
        if self.planted.at("version not taken", step):
            return
        self.version = version
        if self.planted.at("stale weights", step):
            return
        read = json.loads((weights / "model.json").read_text())
        half = self.planted.at("half a sync", step)
        self.logits = read[:2] + self.logits[2:] if half else read

    async def score(self, ids: Sequence[Sequence[int]]) -> list[list[float]]:
        return rows(self.logits, ids)

    async def chat(self, request: ChatRequest) -> ChatReply:
        ids = KNOWN_IDS if self.planted.fault != "wrong tokenizer" else (4, 1, 3)
        return ChatReply("", tokens=SampledTokens(ids, (0,), (-0.1,), self.version))


@dataclass
class CollectorDouble:
    server: ServerDouble
    planted: Planted = field(default_factory=Planted)
    asked: list[tuple[int, tuple[str, ...], str]] = field(default_factory=list)  # step, tasks, version
    takes_s: float = 0.0

    async def collect(self, tasks: Sequence[Task], n: int, *, step: int, seed: int) -> list[Group]:
        die(f"rollout {step}")
        self.asked.append((step, tuple(task.id for task in tasks), self.server.version))
        await asyncio.sleep(self.takes_s)
        return [
            Group(task.id, tuple(self._one(task, place, step, seed) for place in range(1, n + 1)))
            for task in tasks
        ]

    def _one(self, task: Task, repeat: int, step: int, seed: int) -> Rollout:
        dice = random.Random(f"{seed} {task.id} {repeat}")
        told = logprobs(self.server.logits)
        ids = tuple(dice.choices(range(VOCABULARY), [math.exp(one) for one in told], k=TOKENS))
        sampled = tuple(told[one] for one in ids)
        if self.planted.at("log-probs off by 1 %", step):
            sampled = tuple(1.01 * one for one in sampled)
        name = f"{task.id}.{repeat}"
        half = TOKENS // 2
        turns = tuple(
            Turn(
                name,
                place,
                (0, *ids[: half * place]),
                ids[half * place : half * (place + 1)],
                sampled[half * place : half * (place + 1)],
                self.server.version,
            )
            for place in range(2)
        )
        return Rollout(self._judged(task, name, repeat, ids, dice, step), turns)

    def _judged(
        self, task: Task, name: str, repeat: int, ids: Sequence[int], dice: random.Random, step: int
    ) -> Episode:
        good = ids.count(3) >= 2
        reward = ids.count(3) / TOKENS
        if self.planted.at("equal rewards", step):
            reward = 0.5
        if self.planted.at("NaN reward", step):
            reward = math.nan
        doubted = 0.05
        if self.planted.at("judges disagree", step):
            doubted = 0.6
        if self.planted.fault == "reward hacking" and not good:
            doubted = min(0.6, 0.06 * step)
        differ = dice.random() < doubted
        decided = not self.planted.at("nothing decided", step) and dice.random() > 0.05
        return Episode(
            name,
            task.id,
            repeat,
            task.environment,
            (Verdict.PASSED if good else Verdict.FAILED) if decided else UNJUDGED[repeat % 2],
            "by the double",
            reward=reward if decided else None,
            counts={"judges_disagree" if differ else "judges_agree": 1} if decided else {},
        )


UNJUDGED = (Verdict.INCONCLUSIVE, Verdict.ERROR)


class TrainerDouble:
    """Policy gradient on the five numbers; a checkpoint after each step, whole or not at all."""

    def __init__(
        self,
        folder: Path,
        *,
        lr: float = 1.0,
        planted: Planted | None = None,
        momentum: float = 0.5,
        save_every: int = 1,
    ) -> None:
        self.folder, self.lr, self.planted, self.momentum = folder, lr, planted or Planted(), momentum
        self.save_every = save_every
        self.step, self.logits, self.velocity = 0, list(START), [0.0] * VOCABULARY
        self.learned: list[Batch] = []
        saved = folder / "checkpoint.json"
        if saved.exists():
            self.step, self.logits, self.velocity = json.loads(saved.read_text())

    def fit(
        self, source: Callable[[int], Batch], *, steps: int, after: Callable[[UpdateFacts], None]
    ) -> None:
        while self.step < steps:
            batch = source(self.step + 1)
            self.learned.append(batch)
            before = logprobs(self.logits)
            self._update(batch)
            die(f"update {batch.step}")
            self.step += 1
            after(self._facts(batch, before))
            die(f"save {batch.step}")
            if self.step % self.save_every == 0 or self.step == steps:
                state = json.dumps([self.step, self.logits, self.velocity]).encode()
                write_atomically(self.folder / "checkpoint.json", state)

    def _update(self, batch: Batch) -> None:
        now, moved, tokens = logprobs(self.logits), [0.0] * VOCABULARY, 0
        for sample in batch.samples:
            for place, own in enumerate(sample.mask):
                tokens += own
                step = own * sample.weight * sample.advantage
                moved[sample.ids[sample.start + place]] += step
                moved = [one - step * math.exp(now[token]) for token, one in enumerate(moved)]
        self.velocity = [
            self.momentum * old + one / max(tokens, 1) for old, one in zip(self.velocity, moved, strict=True)
        ]
        lr = self.lr * (40 if self.planted.at("KL blow-up", batch.step) else 1)
        self.logits = [one + lr * step for one, step in zip(self.logits, self.velocity, strict=True)]
        if self.planted.at("NaN loss", batch.step):
            self.logits = [math.nan] * VOCABULARY
        if self.planted.at("entropy collapse", batch.step):
            self.logits = [0.0, 0.0, 0.0, 9.0, 0.0]

    def _facts(self, batch: Batch, before: list[float]) -> UpdateFacts:
        now = logprobs(self.logits)
        gaps = [
            abs(sampled - before[sample.ids[sample.start + place]])
            for sample in batch.samples
            for place, sampled in enumerate(sample.logprobs)
            if sample.mask[place]
        ]
        stale = {version for sample in batch.samples for version in sample.versions} != {
            f"step-{batch.step - 1:06d}"
        }
        kl = sum(math.exp(old) * (old - new) for old, new in zip(before, now, strict=True))
        return UpdateFacts(
            step=batch.step,
            loss=-sum(now),
            grad_norm=1.0,
            clipped=0.0,
            entropy=-sum(math.exp(one) * one for one in now),
            kl=0.0 if self.planted.fault == "entropy collapse" else kl,
            logprob_gap=math.nan if stale else max(gaps),
            seconds=0.01,
            cpu_seconds=0.01,
        )

    def write_weights(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "model.json").write_text(json.dumps(self.logits))

    def score(self, ids: Sequence[Sequence[int]]) -> list[list[float]]:
        return rows(self.logits, ids)


def tasks_named(count: int, prefix: str = "t") -> list[Task]:
    return [Task(f"{prefix}{place}", {"messages": []}) for place in range(count)]
