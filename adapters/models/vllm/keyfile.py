"""The key of a server that nobody gave one: drawn once, kept in a file that only its owner reads."""

import os
import re
import secrets
import stat
from pathlib import Path

from dreamgym_kit.errors import UserError

_BYTES = 32
_DRAWN = re.compile(r"[\w-]{43}", re.ASCII)  # so many bytes, as `token_urlsafe` spells them


def kept_key(path: Path) -> str:
    """The key in that file, which is made where it is not there.

    Raises:
        UserError: others can read or write it, or it cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read(path)
    except OSError as error:
        raise UserError(f"{path}: a key cannot be kept there ({error.strerror}); set VLLM_API_KEY.") from None
    key = secrets.token_urlsafe(_BYTES)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key)
    return key


def _read(path: Path) -> str:
    try:
        status = path.lstat()
        key = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{path}: holds no key that can be read; delete it, or set VLLM_API_KEY.") from None
    others = stat.S_IMODE(status.st_mode) & 0o077
    if not stat.S_ISREG(status.st_mode) or others or status.st_uid != os.getuid() or not key:
        raise UserError(
            f"{path}: a key that others could have written or read; delete it, a new one is drawn."
        )
    if not _DRAWN.fullmatch(key):
        raise UserError(
            f"{path}: no key that was drawn here; name another file with --log, or set VLLM_API_KEY."
        )
    return key
