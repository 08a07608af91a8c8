"""Weights that a person wants to deploy: where they lie, where they come from, what they learned from."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from dreamgym_kit.deployment.card import Story, story_of
from dreamgym_kit.deployment.digests import CONFIG
from dreamgym_kit.errors import UserError
from dreamgym_kit.report.training import is_training, training_of
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.training.records import read_learned_from

_MANIFEST, _WEIGHTS = "manifest.json", "weights"
_ADAPTER_CONFIG, _ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

WriteAdapter = Callable[[Path], bool]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Weights that are to be deployed, and what is known of them."""

    model: Path
    story: Story
    learned_from: frozenset[str] | None
    adapter: WriteAdapter | None = None


def candidate_of(named: Path) -> Candidate:
    """What a person named: a training's run directory, or a model directory, maybe one of a training.

    Raises:
        UserError: it is neither, or the training has no weights yet.
    """
    if (named / _MANIFEST).is_file():
        return _of_training(named, None)
    if not (named / CONFIG).is_file():
        raise UserError(f"{named}: is neither the run directory of a training nor a model directory.")
    run = named.parent.parent
    if named.parent.name == _WEIGHTS and (run / _MANIFEST).is_file():
        return _of_training(run, named)
    return Candidate(named, Story(), None)


def _of_training(run: Path, model: Path | None) -> Candidate:
    directory = RunDirectory.open(run)
    if not is_training(directory):
        raise UserError(f"{run}: is a run of episodes, no training; name the weights to deploy.")
    training = training_of(directory)
    if model is None:
        if training.weights is None:
            raise UserError(f"{run}: this training has written no weights yet; let it end, or name weights.")
        model = run / training.weights
    story = story_of(training, run=str(run))
    alarm = training.alarm
    if alarm is not None:
        story = replace(story, facts=(*story.facts, ("ended by the alarm", str(alarm.get("alarm")))))
    return Candidate(model, story, read_learned_from(run), _adapter_of(run, model, story))


def _adapter_of(run: Path, model: Path, story: Story) -> WriteAdapter | None:
    """What writes the adapter of a LoRA training; None where all weights were trained, or it is not there."""
    peft = run / "checkpoints" / model.name
    if story.lora is None or not (peft / _ADAPTER_WEIGHTS).is_file():
        return None

    def write(folder: Path) -> bool:
        folder.mkdir(parents=True)
        config = json.loads((peft / _ADAPTER_CONFIG).read_text("utf-8"))
        text = json.dumps({**config, "base_model_name_or_path": story.base}, indent=2)
        (folder / _ADAPTER_CONFIG).write_text(text + "\n", "utf-8")
        shutil.copyfile(peft / _ADAPTER_WEIGHTS, folder / _ADAPTER_WEIGHTS)
        return True

    return write
