"""From annotations to a model directory: lessons fold by fold, tokens, fine-tuning, and a card."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from dreamgym_kit.adapters.distilling.material import CHECKPOINTS, MODEL, Material
from dreamgym_kit.adapters.distilling.tokens import Rows, rows_of
from dreamgym_kit.adapters.trainers.sft import SftOptions, SftStep, train_sft
from dreamgym_kit.errors import NotJson, UserError
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.rollout.files import read_whole
from dreamgym_kit.training.distil.kept import KeptAnnotations
from dreamgym_kit.training.distil.lessons import (
    USUALLY,
    Counts,
    Leaving,
    Lesson,
    balanced,
    lessons_of,
)

ABOUT = "experience.json"
_FOLDS = 4


@dataclass(frozen=True, slots=True)
class Trained:
    """What was trained, and from what."""

    folder: Path
    counts: Counts
    rows: Rows
    steps: list[SftStep]


def lessons(
    folder: Path, material: Material, *, leaving: Leaving = USUALLY, seed: int = 0
) -> tuple[list[Lesson], Counts]:
    """All lessons of the annotated trajectories; each is taught as if its world had never been recorded.

    Raises:
        UserError: nothing is annotated.
    """
    kept, counts = KeptAnnotations(folder), Counts()
    found: list[Lesson] = []
    taught = material.sides.taught
    for fold in material.sides.folds(_FOLDS):
        mine = {one.key for one in fold}
        sight = material.sight([one for one in taught if one.key not in mine])
        for one in fold:
            annotation = kept.of(one)
            if annotation is None:
                counts.unannotated += 1
                continue
            found += lessons_of(
                one, annotation, sight, material.begun.tools, counts, leaving=leaving, seed=seed
            )
    if not found:
        raise UserError(
            f"{folder}: there is nothing to learn from {len(taught)} recorded episodes "
            f"({counts.unannotated} are not annotated, {counts.unsayable.total()} answers cannot be said); "
            f"annotate them: dreamgym-kit experience annotate {folder}"
        )
    return found, counts


def train(
    folder: Path,
    material: Material,
    base: Path,
    options: SftOptions,
    *,
    leaving: Leaving = USUALLY,
    most_tokens: int | None = None,
    tell: Callable[[SftStep], None] = lambda _: None,
) -> Trained:
    """Fine-tune `base` and write it to `folder/model`; what stood there is replaced, its gate with it.

    One that was broken off goes on from its last checkpoint.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        TrainingStopped: the loss or a gradient is no finite number.
        UserError: there is nothing to learn, or the model cannot be used.
    """
    made, counts = lessons(folder, material, leaving=leaving, seed=options.seed)
    rows = rows_of(balanced(made), base, most=most_tokens)
    if not rows.rows:
        raise UserError(
            f"{base}: all {rows.too_long} lessons are longer than what it reads; choose a larger model."
        )
    about = _about(material, base, options, leaving, counts, rows)
    texts = {ABOUT: json.dumps(about, indent=1) + "\n", "README.md": _card(about)}
    steps = train_sft(
        base, rows.rows, folder / MODEL, options, checkpoints=folder / CHECKPOINTS, tell=tell, texts=texts
    )
    return Trained(folder / MODEL, counts, rows, steps)


def _about(
    material: Material, base: Path, options: SftOptions, leaving: Leaving, counts: Counts, rows: Rows
) -> dict[str, JsonValue]:
    begun = material.begun
    return {
        "experience": 1,
        "kit": version("dreamgym-kit"),
        "base": base.name,
        "seed": options.seed,
        "steps": options.steps,
        "lora": None if options.lora is None else options.lora.rank,
        "split": list(begun.by),
        "taught": sorted(one.key for one in material.sides.taught),
        "taught_episodes": len(material.sides.taught),
        "held_out_episodes": len(material.sides.measured),
        "lessons": dict(sorted(counts.lessons.items())),
        "unsayable": dict(sorted(counts.unsayable.items())),
        "too_long": rows.too_long,
        "left_out": asdict(leaving),
    }


def _card(about: Mapping[str, JsonValue]) -> str:
    return "\n".join(
        [
            *("---", "library_name: transformers", "tags: [dreamgym-kit, experience-model]", "---", ""),
            "# An experience model",
            "",
            "It decides what recorded tools would answer; code makes the answers of its decisions.",
            "It is no agent and no tool. What it may stand in for is in `gate.json`, once it was tried on",
            "held-out recordings (`dreamgym-kit experience eval`); without that it has passed nothing.",
            "",
            "```json",
            json.dumps({name: value for name, value in about.items() if name != "taught"}, indent=1),
            "```",
            "",
        ]
    )


def taught_to(model: Path) -> frozenset[str]:
    """The trajectories that a model directory was made of; none where it was not made here.

    Raises:
        UserError: what lies in it cannot be read.
    """
    try:
        said = read_json(read_whole(model / ABOUT))
        return frozenset(map(str, said["taught"]))
    except FileNotFoundError:
        return frozenset()
    except (NotJson, KeyError, TypeError) as error:
        raise UserError(f"{model / ABOUT}: cannot be read ({error}); train the model again.") from None
