"""The keys that settings name, by a variable or by a file; and all that this process has read as a key.

Settings say where a key is and never what it is. What was read as one is masked in whatever the process
writes from then on (`replay.masking` asks here), whatever its name or form.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path

from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.schema import Settings

_ENV, _FILE = "key_env", "key_file"
_MAX_BYTES = 4096
HELD: set[str] = set()
"""What was read as a key."""
NAMED: set[str] = set()
"""Variables that hold keys, whatever their names."""


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Where one key is said to be."""

    key: tuple[str, str]  # of the settings, the one that names it
    variable: str | None
    file: str | None


def key_places(settings: Settings) -> Iterator[KeyPlace]:
    """All that settings name."""
    for section in fields(settings):
        values = getattr(settings, section.name)
        for each in fields(values) if is_dataclass(values) else ():
            if not each.name.endswith(_ENV):
                continue
            filed = each.name.removesuffix(_ENV) + _FILE
            variable, file = getattr(values, each.name), getattr(values, filed, None)
            if variable is not None or file is not None:
                name = each.name if variable is not None else filed
                yield KeyPlace((section.name, name), variable, file)


def with_whole_paths(settings: Settings, folder: Path) -> Settings:
    """The same settings; files of keys that were named from `folder` are named from the root."""
    for place in key_places(settings):
        section, name = place.key[0], place.key[1].removesuffix(_ENV).removesuffix(_FILE) + _FILE
        if place.file is not None:
            whole = replace(getattr(settings, section), **{name: str(folder / Path(place.file).expanduser())})
            settings = replace(settings, **{section: whole})
    return settings


def keep_secret(settings: Settings) -> None:
    """Have what settings name as keys masked from now on; what cannot be read is told of by who needs it."""
    for place in key_places(settings):
        if place.variable is not None:
            NAMED.add(place.variable)
        if place.file is not None:
            try:
                read_key_file(Path(place.file), source="")
            except UserError:
                continue


def hold(secret: str) -> None:
    """Have this text masked from now on."""
    HELD.add(secret)


def read_key_file(path: Path, *, source: str) -> str:
    """The key that lies in a file: all of it but the line's end. What was read is masked from now on.

    Raises:
        UserError: it is no regular file, cannot be read, or holds no key. Its content is not repeated.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe without a writer would wait for one
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UserError(f"{source}: {path} is no regular file; write the key into one.")
            raw = file.read(_MAX_BYTES + 1)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserError(f"{source}: the key's file {path} cannot be read: {why}.") from None
    except ValueError:
        raise UserError(f"{source}: the name of the key's file holds a NUL character.") from None
    if len(raw) > _MAX_BYTES:
        raise UserError(f"{source}: {path} is longer than a key ({_MAX_BYTES} bytes); it holds one, alone.")
    text = raw.decode("ascii", "replace").strip()
    if text:
        hold(text)
    if not text.isascii() or not text.isprintable() or not text or " " in text:
        raise UserError(f"{source}: {path} holds no key: a key is one word on one line.")
    return text


def open_to_all(path: Path) -> bool:
    """Whether everybody on this machine may read a file."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except (OSError, ValueError):
        return False


def open_key_files(settings: Settings) -> list[str]:
    """One line for each key's file that everybody may read."""
    files = {place.file: place.key for place in key_places(settings) if place.file is not None}
    return [
        f"{'.'.join(key)}: everybody on this machine may read {file}; chmod 600 {file}"
        for file, key in files.items()
        if open_to_all(Path(file))
    ]
