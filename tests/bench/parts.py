"""Where a long bench keeps its finished parts: below $DREAMGYM_BENCH, under a digest of what it measures.

A measurement that was interrupted continues with the part that it was at, and one of unchanged code and data
gives the same figures at once. Any change of the product, of the benches or of the data begins anew.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
MEASURED = ("toolkit", "adapters", "recipes", "cli", "tests/bench")
VARIABLE = "DREAMGYM_BENCH"


@contextmanager
def kept(bench: str, *data: Path) -> Iterator[Path]:
    """Give the folder of a bench's parts; one that is removed afterwards where $DREAMGYM_BENCH is not set.

    Args:
        bench: whose parts they are; benches that share parts give the same name.
        data: files and folders outside the checkout that the figures rest on.
    """
    root = os.environ.get(VARIABLE)
    if not root:
        with tempfile.TemporaryDirectory() as scratch:
            yield Path(scratch)
        return
    folder = Path(root).absolute() / f"{bench}-{digest((*(CHECKOUT / name for name in MEASURED), *data))}"
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


def part(folder: Path, name: str, measure: Callable[[], Any]) -> Any:
    """Measure a part, or give what was measured before; a value of JSON."""
    file = folder / f"{name}.json"
    if not file.exists():
        written = file.with_suffix(".part")
        written.write_text(json.dumps(measure()))
        written.replace(file)
    return json.loads(file.read_text())


@cache
def digest(places: tuple[Path, ...]) -> str:
    """Of the files at these places: their names and contents."""
    known = hashlib.sha256()
    for place in places:
        for file in _files(place):
            known.update(f"{file.relative_to(place.parent)}\0".encode())
            known.update(hashlib.sha256(file.read_bytes()).digest())
    return known.hexdigest()[:16]


def _files(place: Path) -> Iterable[Path]:
    if place.is_file():
        return [place]
    return sorted(file for file in place.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
