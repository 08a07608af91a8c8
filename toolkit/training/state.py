"""What the loop itself has to remember across a kill: batches that were collected ahead of their step.

    state/step-000012.json   written before the checkpoint of step 12; read when a run goes on from it

All else follows from the seed and the step, or stands in steps.jsonl. A file holds a checksum, since a
batch of other numbers would be another run.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dreamgym_kit.errors import RunDirectoryError
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.rollout.files import read_whole, write_atomically
from dreamgym_kit.training.batching import StepFacts
from dreamgym_kit.turns import Batch, Sample

_MOST_BYTES = 2 * 2**30
_HEAD = 64  # hex digits of the checksum, then a line break


@dataclass(frozen=True, slots=True)
class Drawn:
    """What one step will learn from, collected and judged."""

    batch: Batch
    facts: StepFacts
    draws: int  # times that tasks were drawn for it
    seconds: float  # that the rollouts took
    course: JsonValue = None  # what the choosing of its tasks has to remember


class StateFolder:
    """Keeps the batches that wait, by the step after which they wait."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, step: int, waiting: Sequence[Drawn], *, keep_from: int = 0) -> None:
        """Keep what waits after `step`, in one step of the file system; forgets steps before `keep_from`.

        Raises:
            RunDirectoryError: the disk refuses.
        """
        self._folder.mkdir(exist_ok=True)
        body = json.dumps([_record(drawn) for drawn in waiting], separators=(",", ":")).encode("ascii")
        write_atomically(self._path(step), hashlib.sha256(body).hexdigest().encode("ascii") + b"\n" + body)
        for path in self._folder.glob("step-*.json"):
            if path < self._path(keep_from):
                path.unlink(missing_ok=True)

    def read(self, step: int) -> list[Drawn]:
        """What waited after `step`; nothing where nothing was kept.

        Raises:
            RunDirectoryError: the file is not what was written.
        """
        path = self._path(step)
        try:
            content = read_whole(path, max_bytes=_MOST_BYTES)
        except FileNotFoundError:
            return []
        body = content[_HEAD + 1 :]
        if hashlib.sha256(body).hexdigest().encode("ascii") != content[:_HEAD]:
            raise RunDirectoryError(
                f"{path}: is damaged; remove it to have those rollouts made again, with today's weights."
            )
        return [_drawn(record) for record in json.loads(body)]

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:06d}.json"


def _record(drawn: Drawn) -> dict[str, Any]:
    batch = drawn.batch
    return {
        "step": batch.step,
        "samples": [asdict(sample) for sample in batch.samples],
        "logged": dict(batch.facts),
        "facts": asdict(drawn.facts),
        "draws": drawn.draws,
        "seconds": drawn.seconds,
        "course": drawn.course,
    }


def _drawn(record: Mapping[str, Any]) -> Drawn:
    return Drawn(
        batch=Batch(
            step=record["step"],
            samples=tuple(_sample(one) for one in record["samples"]),
            facts=record["logged"],
        ),
        facts=StepFacts(**record["facts"]),
        draws=record["draws"],
        seconds=record["seconds"],
        course=record.get("course"),
    )


def _sample(record: Mapping[str, Any]) -> Sample:
    told: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in record.items()
    }
    return Sample(**told)
