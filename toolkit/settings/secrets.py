"""What looks like a key, token or password; and the keys that settings name, which this process masks.

Settings are shown, stored and shared, so they hold no key: they say in which variable or file one is. Whether
a text looks like one is decided by the forms that providers publish, a URL with a password in it, and, as a
last resort, long text that looks drawn by chance. A refusal costs a person one line; a leaked key costs more.
What was read as a key is masked in whatever the process writes from then on (`replay.masking` asks here).
"""

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from math import log2
from pathlib import Path

from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.schema import Settings

KEY_FORMS = (  # where one has a group `secret`, only that is the key
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|\b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9_-]{8,}",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bhf_[A-Za-z0-9]{20,}",
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\blsv[12]_\w{20,}",
    r"\bAIza[0-9A-Za-z_-]{30,}",
    r"(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*",
    r"(?i:\bbearer)\s+(?P<secret>[A-Za-z0-9._~+/=-]{12,})",
    r"-----BEGIN [A-Z ]*PRIVATE KEY[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    r"://[^/\s:@]*:(?P<secret>[^/\s@]+)@",
)
LOOSE_KEY = r"\b(?:sk|pk|rk)_[A-Za-z0-9_-]{16,}"  # in texts; in settings it may be the name of a tool
# Too common in texts of tools to be taken for keys there.
_MORE = r"\bls_\w{20,}|-eyJ[\w-]{8,200}\.[\w-]{8,}\.|\b[Bb]earer +[A-Za-z0-9._~+/-]{8,}"
_FORMS = re.compile("|".join((*KEY_FORMS, _MORE)).replace("?P<secret>", "?:"))
_SECRET_NAME = re.compile(
    r"(^|[_-])(api[_-]?key|apikey|token|secret|password|passwd|credentials?)s?$", re.IGNORECASE
)
_WORD = re.compile(r"[A-Za-z0-9+/=]{32,}")
_CHANCE_BITS = 4.2  # per character; English words and dotted paths stay below, base64 is near 5


def looks_secret(text: str) -> bool:
    """Say whether `text` holds what looks like a credential."""
    return _FORMS.search(text) is not None or any(_by_chance(word) for word in _WORD.findall(text))


def names_secret(key: str) -> bool:
    """Say whether a key's name asks for a credential ("api_key", "OPENAI_TOKEN")."""
    return _SECRET_NAME.search(key) is not None


def _by_chance(word: str) -> bool:
    kinds = (str.islower, str.isupper, str.isdigit)
    if not all(any(kind(character) for character in word) for kind in kinds):
        return False
    shares = [count / len(word) for count in Counter(word).values()]
    return -sum(share * log2(share) for share in shares) > _CHANCE_BITS


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
