"""What a training is asked for, who does its work, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dreamgym_kit.errors import TrainingStopped
from dreamgym_kit.ports import Collector, PolicyServer, Trainer
from dreamgym_kit.settings.schema import AlarmSettings, TrainSettings
from dreamgym_kit.training.choosing import Chooser
from dreamgym_kit.training.records import EvaluationRecord, StepRecord
from dreamgym_kit.vocabulary import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """What a training is asked for."""

    tasks: Sequence[Task]  # to learn from
    train: TrainSettings
    alarms: AlarmSettings
    held_out: Sequence[Task] = ()  # to measure with, never learned from
    temperature: float = 1.0  # that the policy samples at


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainParts:
    """Who does the work.

    Attributes:
        collector: runs the groups that are learned from.
        trainer: changes the weights.
        policy: serves them; the collector's episodes are answered by it.
        examiner: runs the episodes of evaluations; None: there are none.
        real: whether the examiner's tools are the real ones.
        chooser: which tasks a step learns from; None: all in turn.
        known_ids: what the trained model's own tokenizer makes of `attestation.KNOWN_TEXT`; None: not asked.
    """

    collector: Collector
    trainer: Trainer
    policy: PolicyServer
    examiner: Collector | None = None
    real: bool = False
    chooser: Chooser | None = None
    known_ids: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of a training.

    Attributes:
        kept: the step whose checkpoint is the last whole one.
        weights: the model directory of the last step that is kept, None where nothing was learned.
        alarm: what ended it early, None where nothing did.
        stopped: why a person or a signal ended it early, "" where none did.
    """

    kept: int
    steps: tuple[StepRecord, ...]
    evaluations: tuple[EvaluationRecord, ...]
    weights: Path | None
    alarm: TrainingStopped | None = None
    stopped: str = ""
