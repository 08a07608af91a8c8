"""A buffer of a million transitions: filled by one process, opened and asked by another."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.store import ONE_CORE

STORE = Path(__file__).with_name("store.py")


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner; some ten minutes."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "million.db")
        first, second = _asked("fill", path, str(seed), "1000000")
        found = _asked("ask", path, str(seed), "1000000")
    units = {"rss_mb": "MB"}
    figures = [(name, float(value), units.get(name, "ms")) for name, value in found.items()]
    return [*figures, ("second_half", second / first, "of the rows/s of the first")]


def _asked(*arguments: str) -> Any:
    command = [sys.executable, str(STORE), *arguments]
    done = subprocess.run(command, env=os.environ | ONE_CORE, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)
