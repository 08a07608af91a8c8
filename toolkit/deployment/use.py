"""What stays the same over versions: how the model is called, and whether its calls are recorded."""

import json
from dataclasses import dataclass
from pathlib import Path

from dreamgym_kit.codec import Codec
from dreamgym_kit.errors import NotJson, UserError
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.rollout.files import read_whole, write_atomically

CURRENT, FILE = "current", "use.json"


@dataclass(frozen=True, slots=True)
class Use:
    """How what is deployed is used."""

    name: str = ""  # as the server names the model
    record: str = ""  # the buffer that calls are kept in; "": none are


_USES = Codec(Use)


def read_use(shelf: Path) -> Use:
    """What was said last; nothing where nobody said anything.

    Raises:
        UserError: the file is damaged.
    """
    try:
        return _USES.read(read_json(read_whole(shelf / FILE)))
    except FileNotFoundError:
        return Use()
    except NotJson as error:
        raise UserError(f"{shelf / FILE}: is damaged ({error}).") from error


def version_in_use(shelf: Path) -> str:
    """The name of the version in use, read without holding the shelf.

    Raises:
        UserError: nothing is deployed there.
    """
    link = shelf / CURRENT
    if not link.is_symlink():
        raise UserError(f"{shelf}: nothing is deployed there.")
    return link.readlink().name


def write_use(shelf: Path, use: Use) -> None:
    """Keep it."""
    write_atomically(shelf / FILE, json.dumps(_USES.write(use)).encode("ascii"))
