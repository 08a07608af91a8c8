"""Other projects' own test suites, without the gate, with it idle, and recording: is any outcome different?

usage: python tests/upstream/run.py [--suite NAME] [--mode bare|idle|record] [--cache FOLDER]

The suites come from the sdists of the versions that are installed beside this package. They run in an
environment of their own, made once per set of versions from requirements/upstream.txt; this package is
copied beside it from wherever it is installed. The last line is `different N tests`.
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
import tempfile
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
    def prepared(self) -> Iterator["Run"]:
        """The environment and the unpacked suites; whoever comes first makes them, others wait for that."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        with self.root.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._prepare()
        with tempfile.TemporaryDirectory() as folder:
            copy_package(Path(folder))
            yield Run(self, Path(folder))

    def _prepare(self) -> None:
        ready = self.root / "ready"
        if not ready.exists():
            self.root.mkdir(parents=True, exist_ok=True)
            run([sys.executable, "-m", "venv", "--clear", self.root / "environment"])
            run([self.python, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", LOCK])
            if unlocked := [f"{name}=={pin}" for name, pin in self.pins.items() if not locked(name, pin)]:
                print(f"not the versions of {LOCK.name}: {', '.join(unlocked)}", file=sys.stderr)
                run([self.python, "-m", "pip", "install", "--quiet", *unlocked])
            for suite in SUITES.values():
                self._unpack(suite)
            ready.touch()

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
            tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.3 has none
            tar.extractall(self.root, members=wanted)

    def folder(self, suite: Suite) -> Path:
        """Where a suite was unpacked."""
        return self.root / f"{suite.project.replace('-', '_')}-{self.pins[suite.project]}"


@dataclass(frozen=True)
class Run:
    """One use of the environment, beside others: `folder` holds its copy of this package, and its results."""

    upstream: Upstream
    folder: Path

    def __call__(self, suite: Suite, mode: str, *, seed: int = 0) -> "Ran":
        """Run one suite in one mode."""
        result = self.folder / "result.json"
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
            [self.upstream.python.with_name("pytest"), *options, *suite.tests],
            cwd=self.upstream.folder(suite),
            env={
                **{
                    name: value
                    for name, value in os.environ.items()
                    if not name.startswith(("PYTEST_", "COV_"))
                },
                "PYTHONPATH": os.pathsep.join((str(HERE), str(self.folder))),
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


AGAIN = 2  # a test of theirs that waits for a clock may fail once, with the gate or without


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
    patient = os.environ | {"PIP_RETRIES": "10", "PIP_TIMEOUT": "60"}  # an index may stall
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, env=patient)


def copy_package(folder: Path) -> None:
    """A copy, not a link: all modes are to run the same code."""
    spec = find_spec("dreamgym_kit")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("dreamgym_kit is not installed beside this python; pip install -e . first")
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(spec.submodule_search_locations[0], folder / "dreamgym_kit", ignore=left_out)


def locked(project: str, pin: str) -> bool:
    return f"\n{project}=={pin} " in LOCK.read_text()


def different(bare: Sequence["Ran"], other: Sequence["Ran"]) -> list[str]:
    """One line per test that never ended as in any run of the other side, or ran on one side only."""
    tests = sorted({test for ran in (*bare, *other) for test in ran.outcomes})
    before, after = (
        [{ran.outcomes.get(test, "absent") for ran in side} for test in tests] for side in (bare, other)
    )
    return [
        f"{test}: {' or '.join(sorted(one))} -> {' or '.join(sorted(two))}"
        for test, one, two in zip(tests, before, after, strict=True)
        if not one & two
    ]


def main(argv: Sequence[str] | None = None) -> int:
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dreamgym-kit"
    default_cache = Path(os.environ.get("CI_ENVIRONMENTS") or user_cache) / "upstream"
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

    with Upstream(options.cache).prepared() as run_suite:
        return 1 if differences(run_suite, options) else 0


def differences(run_suite: Run, options: argparse.Namespace) -> int:
    """Run what was asked for, and say how many tests end otherwise."""
    total = 0
    for name in options.suite or SUITES:
        bare = [run_suite(SUITES[name], "bare", seed=options.seed)]
        print(f"{name} bare: {bare[0]}", flush=True)
        for mode in (mode for mode in options.mode or MODES if mode != "bare"):
            ran = [run_suite(SUITES[name], mode, seed=options.seed)]
            changes = different(bare, ran)
            print(f"{name} {mode}: {ran[0]}", *changes, sep="\n  ", flush=True)
            for _ in range(AGAIN if changes and mode in MODES else 0):
                bare.append(run_suite(SUITES[name], "bare", seed=options.seed))
                ran.append(run_suite(SUITES[name], mode, seed=options.seed))
                changes = different(bare, ran)
                print(f"{name} {mode}, both once more:", *changes, sep="\n  ", flush=True)
            total += len(changes)
    print(f"different {total} tests")
    return total


if __name__ == "__main__":
    sys.exit(main())
