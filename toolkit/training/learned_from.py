"""Which tasks a training learned from, kept in its run directory: nothing is to be proven on these."""

import json
from collections.abc import Iterable
from pathlib import Path

from dreamgym_kit.errors import NotJson, UserError
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.rollout.files import read_whole, write_atomically

FILE = "learned_from.json"


def write_learned_from(run: Path, tasks: Iterable[str]) -> None:
    """Keep the ids of all tasks that may be drawn; what an earlier leg kept stays."""
    known = (read_learned_from(run) or frozenset()) | frozenset(tasks)
    write_atomically(run / FILE, json.dumps(sorted(known)).encode("ascii"))


def read_learned_from(run: Path) -> frozenset[str] | None:
    """The ids; None where nobody wrote them down.

    Raises:
        UserError: the file is damaged.
    """
    try:
        told = read_json(read_whole(run / FILE))
    except FileNotFoundError:
        return None
    except NotJson as error:
        raise UserError(f"{run / FILE}: is damaged ({error}).") from error
    if not isinstance(told, list) or not all(isinstance(one, str) for one in told):
        raise UserError(f"{run / FILE}: is damaged (no list of task ids).")
    return frozenset(str(one) for one in told)
