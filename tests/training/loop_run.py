"""Runs the loop over its doubles in a folder; as a program it can be told where to die (DIE_AT)."""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from training.loop_doubles import (
    KNOWN_IDS,
    CollectorDouble,
    Planted,
    ServerDouble,
    TrainerDouble,
    tasks_named,
)

from dreamgym_kit.curriculum.curriculum import Curriculum, CurriculumPlan, TaskBounds, Workshop
from dreamgym_kit.curriculum.task_sampler import Clusters
from dreamgym_kit.interfaces import Pattern
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.settings.schema import AlarmSettings, CurriculumSettings, TrainSettings
from dreamgym_kit.threads import BackgroundLoop
from dreamgym_kit.training.loop import TrainingLoop
from dreamgym_kit.training.plan import Trained, TrainParts, TrainPlan
from dreamgym_kit.types import Task

QUICK = TrainSettings(tasks_per_step=4, group_size=8, steps=8, eval_every=4, eval_n=4)


class Heard:
    """Keeps every event."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict]] = []

    def emit(self, kind: str, /, **facts: object) -> None:
        self.events.append((kind, facts))


@dataclass
class Ran:
    trained: Trained
    trainer: TrainerDouble
    server: ServerDouble
    collector: CollectorDouble
    heard: Heard


def run_loop(
    folder: Path,
    settings: TrainSettings = QUICK,
    *,
    planted: Planted | None = None,
    alarms: AlarmSettings | None = None,
    stop: StopSwitch | None = None,
    takes_s: float = 0.0,
    lr: float = 1.0,
    curriculum: bool = False,
) -> Ran:
    planted = planted or Planted()
    folder.mkdir(exist_ok=True)
    server, heard = ServerDouble(planted), Heard()
    trainer = TrainerDouble(folder, planted=planted, save_every=settings.save_every, lr=lr)
    collector = CollectorDouble(server, planted, takes_s=takes_s)
    plan = TrainPlan(
        tasks=[replace(task, input={"messages": task.id}) for task in tasks_named(10)],
        train=settings,
        alarms=alarms or AlarmSettings(max_kl=0.3),
        held_out=tasks_named(3, "h"),
    )
    parts = TrainParts(
        collector=collector,
        trainer=trainer,
        policy=server,
        examiner=CollectorDouble(server, planted),
        chooser=curriculum_over(plan, folder) if curriculum else None,
        known_ids=KNOWN_IDS,
    )
    with BackgroundLoop() as aside:
        loop = TrainingLoop(plan, parts, folder=folder, aside=aside, events=heard, stop=stop or StopSwitch())
        return Ran(loop.run(), trainer, server, collector, heard)


class VaryingDouble:
    """Makes a task of another number like each that it is asked about."""

    how = "rules"

    async def like(self, pattern: Pattern, count: int, *, seed: int) -> list[Task]:
        return [replace(pattern.task, input={"messages": f"{seed % 1000} {place}"}) for place in range(count)]


def curriculum_over(plan: TrainPlan, folder: Path) -> Curriculum:
    bounds = TaskBounds(
        held_out=plan.held_out,
        given=plan.tasks,
        recorded=lambda _: True,
        known_values=lambda _: map(str, range(1000)),
    )
    return Curriculum(
        CurriculumPlan(
            tasks=plan.tasks,
            settings=CurriculumSettings(enabled=True, every=2, seeds=1, candidates=2),
            workshop=Workshop(
                makers=[VaryingDouble()],
                bounds=bounds,
                judged=lambda task: task,
                admit=lambda _: None,
                folder=folder / "made",
            ),
            per_step=plan.train.tasks_per_step,
            seed=plan.train.seed,
            error=lambda _: 0.0,
            clusters=Clusters(None, None),
        )
    )


def main() -> None:
    """python loop_run.py FOLDER STALENESS SAVE_EVERY [curriculum]"""
    folder, staleness, save_every = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    settings = replace(QUICK, staleness=staleness, save_every=save_every)
    ran = run_loop(folder, settings, alarms=AlarmSettings(max_kl=5.0), curriculum="curriculum" in sys.argv)
    sys.stdout.write(json.dumps({"logits": ran.trainer.logits, "alarm": str(ran.trained.alarm)}))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
