"""Finds a secret in bytes, however it is spelled there: plain, URL-encoded, base64, JSON-escaped, hex."""

import base64
import gzip
import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

from pages.blocks import unpacked


def spellings(secret: str) -> dict[str, bytes]:
    """Every spelling by its name. Parts of base64 that hang on what stands before are left out."""
    raw = secret.encode()
    found = {
        "plain": secret,
        "url": quote(secret, safe=""),
        "url path": quote(secret),
        "url form": quote_plus(secret),
        "url small": re.sub("%..", lambda one: one[0].lower(), quote(secret, safe="")),
        "json": json.dumps(secret)[1:-1],
        "json twice": json.dumps(json.dumps(secret))[3:-3],
        "hex": raw.hex(),
    }
    for shift in range(3):
        padded = b"\0" * shift + raw
        found[f"base64 {shift}"] = base64.b64encode(padded)[2 * shift : -4].decode()
        found[f"base64 url {shift}"] = base64.urlsafe_b64encode(padded)[2 * shift : -4].decode()
    return {name: text.encode() for name, text in found.items()}


def leaks(data: bytes, secrets: Iterable[str]) -> list[str]:
    """Which secrets stand in the data, and how they are spelled."""
    return [
        f"{secret[:14]}... as {name}"
        for secret in secrets
        for name, spelled in spellings(secret).items()
        if spelled in data
    ]


def leaking_files(folder: Path, secrets: Iterable[str], *, inputs: Iterable[str]) -> list[str]:
    """The files below a folder that hold a secret, in content or name; `inputs` are the user's own."""
    kept, wanted, found = set(inputs), list(secrets), []
    for path in sorted(folder.rglob("*")):
        if path.name in kept or "__pycache__" in path.parts:
            continue
        data = b"".join(contents(path)) if path.is_file() else b""
        found += [f"{path.relative_to(folder)}: {how}" for how in leaks(data + path.name.encode(), wanted)]
    return found


def contents(path: Path) -> Iterator[bytes]:
    """What a file holds, and what it holds compressed: checkpoints are zip archives."""
    raw = path.read_bytes()
    yield raw
    if b'id="data-episodes"' in raw:  # the page of a run
        yield json.dumps(unpacked(raw.decode())).encode()
    if raw.startswith(b"\x1f\x8b"):
        yield gzip.decompress(raw)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from (archive.read(name) for name in archive.namelist())
