"""A run in parts: shard i of n takes every n-th task, with all its siblings, and is a run of its own.

For machines that share nothing, such as a Kubernetes Indexed Job or a Slurm array. Which tasks a shard has
follows from their order alone, so whoever starts the shards needs to agree on nothing but n. `report.merging`
puts them together again.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dreamgym_kit.errors import UserError
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.vocabulary import Task

_FORM = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


@dataclass(frozen=True, slots=True)
class Shard:
    """One part of a run."""

    number: int  # from 1
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def part(self, tasks: Sequence[Task]) -> list[Task]:
        """Its tasks among all tasks, in their order.

        Raises:
            UserError: there is none for it.
        """
        part = list(tasks[self.number - 1 :: self.of])
        if not part:
            raise UserError(
                f"shard {self}: there are {len(tasks)} tasks, so at most as many shards. Nothing was run."
            )
        return part

    def to_record(self) -> dict[str, JsonValue]:
        """What a run's manifest says of it."""
        return {"number": self.number, "of": self.of}


def shard_from(said: str) -> Shard:
    """Read "2/8".

    Raises:
        UserError: it is something else.
    """
    form = _FORM.fullmatch(said)
    if form is None or not 1 <= int(form[1]) <= int(form[2]):
        raise UserError(f"--shard {said}: write I/N, I from 1 to N: --shard 2/8. Nothing was run.")
    return Shard(int(form[1]), int(form[2]))
