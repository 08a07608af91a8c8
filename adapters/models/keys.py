"""A key that is named by its variable or its file, sent in one header, and masked everywhere else."""

import os
from collections.abc import Mapping
from pathlib import Path

from dreamgym_kit.errors import UserError
from dreamgym_kit.replay.masking import forms_of
from dreamgym_kit.settings.keys import hold, read_key_file

MASK = "***"


class Key:
    """Holds a key without showing it: no repr, no str, no pickle of it has the text."""

    __slots__ = ("_forms", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._forms = forms_of(text)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The header that carries the key; none for no key."""
        return [(b"authorization", b"Bearer " + self._text.encode("ascii"))] if self._text else []

    def mask(self, text: str) -> str:
        """`text` without the key, however it is spelled in it (plain, URL, base64, JSON)."""
        for form in self._forms:
            text = text.replace(form, MASK)
        return text

    def __repr__(self) -> str:
        return f"Key({MASK})"

    def __reduce__(self) -> str:
        raise TypeError("a key is not pickled")


def read_key(
    variable: str | None,
    *,
    source: str,
    environ: Mapping[str, str] | None = None,
    file: str | None = None,
) -> Key:
    """Read the key that an environment variable or a file holds; neither, no key. It is masked from now on.

    Raises:
        UserError: both are named, or the one holds nothing that a header can carry.
    """
    if variable is not None and file is not None:
        raise UserError(f"{source}: the key is to come from {variable} and from {file}; name one of them.")
    if file is not None:
        return Key(read_key_file(Path(file), source=source))
    if variable is None:
        return Key("")
    text = (os.environ if environ is None else environ).get(variable, "").strip()
    if not text:
        raise UserError(f"{source}: the environment variable {variable} is not set; it has to hold the key.")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise UserError(f"{source}: the environment variable {variable} holds no key: a key is one word.")
    hold(text)
    return Key(text)
