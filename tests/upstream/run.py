"""Other projects' own test suites, without the gate, with it idle, and recording: is any outcome different?

usage: python tests/upstream/run.py [--suite NAME] [--mode bare|idle|record] [--cache FOLDER]

The suites come from the sdists of the versions that are installed beside this package. They run in an
environment of their own, made once per set of versions from requirements/upstream.txt; this package is
copied into it from wherever it is installed. The last line is `different N tests`.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCK = HERE.parents[1] / "requirements" / "upstream.txt"
TESTED = ("langchain", "langchain-core", "langgraph", "langgraph-checkpoint", "langgraph-prebuilt")
MODES = ("bare", "idle", "record")


@dataclass(frozen=True)
class Suite:
    """Part of a project's tests: the part that runs tools and agents."""

    project: str
    tests: tuple[str, ...]


SUITES = {
    "prebuilt": Suite("langgraph-prebuilt", ("tests",)),
    "langchain": Suite("langchain", ("tests/unit_tests/agents", "tests/unit_tests/tools")),
    "core": Suite(
        "langchain-core",
        tuple(
            f"tests/unit_tests/{part}"
            for part in ("test_tools.py", "test_tools_postponed_annotations.py", "callbacks", "tracers")
        ),
    ),
}


class Upstream:
    """The unpacked suites and the environment that they run in, below one cache folder."""

    def __init__(self, cache: Path) -> None:
        self.pins = {name: version(name) for name in TESTED}
        key = hashlib.sha256(
            LOCK.read_bytes() + json.dumps(self.pins).encode() + sys.version.encode()
        ).hexdigest()
        self.root = cache / key[:16]
        self.python = self.root / "environment" / "bin" / "python"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process makes, or uses, this environment."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        with self.root.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def prepare(self) -> None:
        """Make the environment and unpack the suites; what is there already is used again."""
        ready = self.root / "ready"
        if not ready.exists():
            self.root.mkdir(parents=True, exist_ok=True)
            run([sys.executable, "-m", "venv", "--clear", self.root / "environment"])
            run([self.python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", LOCK])
            if unlocked := [f"{name}=={pin}" for name, pin in self.pins.items() if not locked(name, pin)]:
                print(f"not the versions of {LOCK.name}: {', '.join(unlocked)}", file=sys.stderr)
                run([self.python, "-m", "pip", "install", "--quiet", *unlocked])
            for suite in SUITES.values():
                self._unpack(suite)
            ready.touch()
        self._copy_package()

    def _unpack(self, suite: Suite) -> None:
        pin, folder = self.pins[suite.project], self.root / "sdists"
        flags = ["--no-binary", ":all:", "--no-deps", "--dest", folder]
        run([self.python, "-m", "pip", "download", "--quiet", *flags, f"{suite.project}=={pin}"])
        archive = folder / f"{suite.project.replace('-', '_')}-{pin}.tar.gz"
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        if locked(suite.project, pin) and digest not in LOCK.read_text():
            raise SystemExit(f"{archive}: its hash is not in {LOCK}; delete it, and do not run it")
        # Not the sources beside the tests: the installed package is what is tested.
        with tarfile.open(archive) as tar:
            wanted = [member for member in tar if member.name.split("/")[1] in ("tests", "pyproject.toml")]
            tar.extractall(self.root, members=wanted, filter="data")

    def _copy_package(self) -> None:
        spec = find_spec("dreamgym_kit")
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit("dreamgym_kit is not installed beside this python; pip install -e . first")
        [packages] = (self.root / "environment" / "lib").glob("python3.*/site-packages")
        copy = packages / "dreamgym_kit"  # not a link: all modes are to run the same code
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(
            spec.submodule_search_locations[0], copy, ignore=shutil.ignore_patterns("__pycache__")
        )

    def run(self, suite: Suite, mode: str, *, seed: int = 0) -> "Ran":
        """Run one suite in one mode."""
        result = self.root / f"{suite.project}.{mode}.json"
        result.unlink(missing_ok=True)
        options = [
            "-o",
            "addopts=",
            "-o",
            "asyncio_mode=auto",
            "-p",
            "no:cacheprovider",
            "-p",
            "gate_plugin",
            "-q",
        ]
        done = subprocess.run(
            [self.python.with_name("pytest"), *options, *suite.tests],
            cwd=self.root / f"{suite.project.replace('-', '_')}-{self.pins[suite.project]}",
            env={
                **{
                    name: value
                    for name, value in os.environ.items()
                    if not name.startswith(("PYTEST_", "COV_"))
                },
                "PYTHONPATH": str(HERE),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONHASHSEED": str(seed),
                "DREAMGYM_UPSTREAM_MODE": mode,
                "DREAMGYM_UPSTREAM_RESULT": str(result),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1) or not result.exists():  # 1: some tests failed, which is compared
            raise SystemExit(
                f"{suite.project}, {mode}: the suite did not run\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
            )
        ran = Ran(**json.loads(result.read_text()))
        if mode == "record" and ran.recorded == 0:
            raise SystemExit(f"{suite.project}: nothing was recorded, so that equal outcomes say nothing")
        return ran


AGAIN = 2  # a test of theirs that waits for a clock may fail once on a busy machine; a difference stays


@dataclass(frozen=True)
class Ran:
    """How each test of a suite ended, and what the gate met meanwhile."""

    outcomes: Mapping[str, str]  # "passed", "skipped", "failed in call"
    recorded: int  # calls of real tools; 0 unless recording
    refused: int

    def __str__(self) -> str:
        counts = Counter(outcome.partition(" ")[0] for outcome in self.outcomes.values())
        text = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        return f"{text}; {self.recorded} calls recorded, {self.refused} refused" if self.recorded else text


def run(command: Sequence[str | Path]) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def locked(project: str, pin: str) -> bool:
    return f"\n{project}=={pin} " in LOCK.read_text()


def different(bare: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """One line per test that ended otherwise, or ran in one of the two only."""
    return [
        f"{test}: {bare.get(test, 'absent')} -> {other.get(test, 'absent')}"
        for test in sorted(bare.keys() | other.keys())
        if bare.get(test) != other.get(test)
    ]


def main(argv: Sequence[str] | None = None) -> int:
    default_cache = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dreamgym-kit" / "upstream"
    )
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", choices=SUITES, action="append", help="default: all three")
    parser.add_argument(
        "--mode", choices=(*MODES, "mutant"), action="append", help="default: bare, idle, record"
    )
    parser.add_argument("--cache", type=Path, default=default_cache, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="hash seed of the suites' processes")
    options = parser.parse_args(argv)

    upstream = Upstream(options.cache)
    with upstream.alone():
        upstream.prepare()
        return 1 if differences(upstream, options) else 0


def differences(upstream: Upstream, options: argparse.Namespace) -> int:
    """Run what was asked for, and say how many tests end otherwise."""
    total = 0
    for name in options.suite or SUITES:
        bare = upstream.run(SUITES[name], "bare", seed=options.seed)
        print(f"{name} bare: {bare}", flush=True)
        for mode in (mode for mode in options.mode or MODES if mode != "bare"):
            ran = upstream.run(SUITES[name], mode, seed=options.seed)
            changes = different(bare.outcomes, ran.outcomes)
            print(f"{name} {mode}: {ran}", *changes, sep="\n  ", flush=True)
            for _ in range(AGAIN if changes else 0):
                again = different(bare.outcomes, upstream.run(SUITES[name], mode, seed=options.seed).outcomes)
                changes = [change for change in changes if change in again]
                print(f"{name} {mode}, once more: {len(changes)} of these differ again", flush=True)
            total += len(changes)
    print(f"different {total} tests")
    return total


if __name__ == "__main__":
    sys.exit(main())
