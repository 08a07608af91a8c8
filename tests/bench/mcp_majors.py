"""Both majors of the MCP SDK: does a tool's call reach its server out of a dream, by whatever client?

Each major has an environment of its own (`.ci/env mcp1` and `mcp2`); the kit that is installed here is laid
over it. Every dreamt call is made for real once as well, where the server has to count it: a way of
calling that is broken shows nothing.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dreamgym_kit

CALLS = 200
MAJORS = ("mcp1", "mcp2")
_WAYS = Path(__file__).with_name("mcp_ways.py")
_ENV = Path(__file__).parents[2] / ".ci" / "env"


class NoEnvironment(Exception):
    """`.ci/env` could not make one."""

    skips = True


def measure(seed: int, calls: int = CALLS) -> list[tuple[str, float, str]]:
    """Figures for the bench runner.

    Raises:
        NoEnvironment: an environment cannot be made here.
        RuntimeError: a way to call did not reach its server when it was made for real.
    """
    found = [one for name in MAJORS for one in tried(environment(name), calls)["transports"].values()]
    wrong = [words for one in found for words in one["wrong"]]
    if wrong:
        raise RuntimeError(f"not counted by the server, once: {wrong[0]}")
    return [
        ("leaks", sum(len(one["leaks"]) for one in found), "calls"),
        ("calls", min(one["calls"] for one in found), "calls"),
        ("ways", len({way for one in found for way in one["ways"]}), "ways"),
    ]


def quick(seed: int) -> list[tuple[str, float, str]]:
    """Each way about once."""
    return measure(seed, 10)


def environment(name: str) -> Path:
    """The interpreter of an environment, made where it is not there yet."""
    made = subprocess.run([str(_ENV), name], capture_output=True, text=True, check=False)
    if made.returncode:
        raise NoEnvironment(made.stderr.strip().rpartition("\n")[2])
    return Path(made.stdout.strip()) / "bin" / "python"


def tried(python: Path, calls: int, *more: str) -> dict[str, Any]:
    """What `mcp_ways.py` says in an interpreter."""
    with _kit() as folder:
        done = subprocess.run(
            [str(python), str(_WAYS), str(calls), *more],
            env=os.environ | {"PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{python}: {done.stderr[-2000:]}")
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@contextmanager
def _kit() -> Iterator[Path]:
    """A folder with this very kit in it, and nothing else of what is installed here."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "dreamgym_kit").symlink_to(Path(dreamgym_kit.__file__).parent)
        yield Path(folder)


if __name__ == "__main__":
    print(measure(0, int(sys.argv[1])))
