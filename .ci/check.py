"""The whole check: environment, wheel, lint, types, floors, then the tests, the quickest to find out first.

Its last lines tell everything: the seconds of each step, each failed test with the first line of its error
and how to run it alone, and last the sums of all suites. Up to five failed tests run
once more, each alone in a fresh process; one that passes then is printed as FLAKY and fails nothing.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
MOST_AGAIN = 5
MOST_LISTED = 12
ELSEWHERE = ("bench", "browser", "nightly", "ray", "slow", "upstream", "vllm")


@dataclass(frozen=True)
class Suite:
    """The tests with one mark, and how many processes run them."""

    marker: str
    processes: int = 2


SUITES = {
    "fast": Suite(" and ".join(f"not {mark}" for mark in ELSEWHERE)),
    "slow": Suite("(slow or bench or nightly) and not browser and not ray and not upstream and not vllm"),
    "upstream": Suite("upstream"),
    # Each has both cores: a page or a cluster that starts beside a server of vLLM's takes minutes.
    "browser": Suite("browser", 0),
    "ray": Suite("ray", 0),
    "vllm": Suite("vllm", 0),
}


@dataclass
class Outcome:
    """How one test ended: the worst of its setup, call and teardown."""

    test: str
    suite: str
    outcome: str = "passed"
    seconds: float = 0.0
    error: str = ""


class StepFailed(Exception):
    """A step without which nothing that follows can be told."""


@dataclass
class Check:
    """One run: its folder, its environment, and what came of each step."""

    work: Path
    seconds: dict[str, float] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)  # steps that failed, each with why and what to run
    outcomes: list[Outcome] = field(default_factory=list)
    flaky: list[Outcome] = field(default_factory=list)
    making_vllm: "subprocess.Popen[str] | None" = None

    def __post_init__(self) -> None:
        """The environment of every command: no variable of whoever started this changes a result."""
        strange = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONUNBUFFERED", "DREAMGYM_VLLM")
        self.environ = {name: value for name, value in os.environ.items() if name not in strange}
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dreamgym-kit"
        self.environ |= {
            "CI": "true",
            "COLUMNS": "200",
            "CI_ENVIRONMENTS": os.environ.get("CI_ENVIRONMENTS") or str(cache),
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONSAFEPATH": "1",
            "XDG_CACHE_HOME": str(self.work / "cache"),
        }
        data = CHECKOUT.parent / "shared" / "data"
        if data.is_dir():  # real traces; without them their tests are skipped
            self.environ["SHARED_DATA_FOLDER"] = str(data)

    @property
    def bin(self) -> Path:
        return self.work / "env" / "bin"

    @property
    def source(self) -> Path:
        return self.work / "source"

    @contextmanager
    def step(self, name: str, command: str = "") -> Iterator[None]:
        """Time a step; one that fails is told at the end, with the command that repeats it."""
        print(f"\n== {name} ({sum(self.seconds.values()):.0f} s)", flush=True)
        started = time.monotonic()
        try:
            yield
        except (subprocess.CalledProcessError, OSError) as error:
            self.broken.append(f"FAILED {name}: {error}" + (f"\n  alone: {command}" if command else ""))
            raise StepFailed from error
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started

    def run(self, *command: str | Path, cwd: Path | None = None) -> None:
        subprocess.run(command, cwd=cwd or self.source, env=self.environ, check=True)

    def environment(self) -> None:
        """Link the kept environment's files into one of this run's own, and install the wheel there."""
        with self.step("environment", ".ci/env checks"):
            made = subprocess.run(
                [CHECKOUT / ".ci" / "env", "checks"],
                env=self.environ,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            kept = Path(made.stdout.strip())
            linked = subprocess.run(
                ["cp", "-al", kept, self.work / "env"], stderr=subprocess.DEVNULL, check=False
            )
            if linked.returncode:  # another file system
                shutil.rmtree(self.work / "env", ignore_errors=True)
                self.run("cp", "-a", kept, self.work / "env", cwd=self.work)
            before, after = f"#!{kept}/".encode(), f"#!{self.work}/env/".encode()
            for script in self.bin.iterdir():
                if not script.is_symlink() and (text := script.read_bytes()).startswith(before):
                    script.unlink()  # a link: the kept one stays as it is
                    script.write_bytes(text.replace(before, after, 1))
                    script.chmod(0o755)
        with self.step("wheel", "python -m build"):
            self.source.mkdir()
            for file in sources():
                (self.source / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(CHECKOUT / file, self.source / file, follow_symlinks=False)
            python = self.bin / "python"
            self.run(python, "-m", "build", "--no-isolation", "--outdir", self.work / "dist", ".")
            self.run(
                python, "-m", "pip", "install", "--quiet", "--no-deps", *(self.work / "dist").glob("*.whl")
            )
            self.run(python, "-m", "pip", "check")

    def static(self) -> None:
        """What reads the sources and runs none of them."""
        with self.step("lint", "ruff check && ruff format --check"):
            self.run("ruff", "check", "--no-cache", ".")
            self.run("ruff", "format", "--no-cache", "--check", ".")
        # Away from the sources: what is checked is the installed wheel.
        (checks := self.work / "checks").mkdir()
        shutil.copy(self.source / "pyproject.toml", checks)
        with self.step("floors", "lint-imports"):
            self.run("lint-imports", "--no-cache", cwd=checks)
        with self.step("clock", "python tests/wall_time.py"):
            self.run("python", "tests/wall_time.py")
        with self.step("types", "mypy -p dreamgym_kit"):
            self.run("mypy", "-p", "dreamgym_kit", cwd=checks)

    def pytest(self, name: str, *options: str) -> int:
        """One process of pytest; it writes down each outcome as soon as it is known."""
        written = self.work / "outcomes.jsonl"
        written.unlink(missing_ok=True)
        command = [self.bin / "pytest", "-q", "-p", "no:cacheprovider", "--outcomes", str(written), *options]
        code = subprocess.run(command, cwd=self.source, env=self.environ, check=False).returncode
        lines = written.read_text("utf-8").splitlines() if written.exists() else []
        found: dict[str, Outcome] = {}
        for line in lines:
            part = Outcome(suite=name, **json.loads(line))
            known = found.setdefault(part.test, Outcome(part.test, name))
            known.seconds += part.seconds
            if part.outcome != "passed" and known.outcome != "failed":
                known.outcome, known.error = part.outcome, part.error
        self.outcomes.extend(found.values())
        return code

    def suite(self, name: str, *, nightly: bool) -> None:
        suite = SUITES[name]
        marker = suite.marker if nightly else f"({suite.marker}) and not nightly"
        options = ["-n", str(suite.processes), "-m", marker, "--durations=10"]
        with self.step(name):
            code = self.pytest(name, *options)
        failed = any(one.suite == name and one.outcome == "failed" for one in self.outcomes)
        if code not in (0, 5) and not failed:  # 5: no test has this mark
            self.broken.append(f"FAILED {name}: pytest ended with code {code} and named no test; see above")

    def again(self) -> None:
        """A test that fails by chance does not hold up a change. Fix a FLAKY test before the next one."""
        failed = [one for one in self.outcomes if one.outcome == "failed"]
        if not 0 < len(failed) <= MOST_AGAIN:
            return
        with self.step("once more"):
            for first in failed:
                before = len(self.outcomes)
                code = self.pytest(first.suite, "-n", "0", "-m", "", first.test)
                del self.outcomes[before:]
                if code == 0:
                    first.outcome = "passed"
                    self.flaky.append(first)

    def make_vllm(self) -> None:
        """Begin the server's environment, 3.5 GB where it is not kept yet, beside everything else."""
        self.making_vllm = subprocess.Popen(
            [CHECKOUT / ".ci" / "env", "vllm"],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def vllm(self) -> None:
        """Wait for the server's environment; where it cannot be made its tests say why they skip."""
        with self.step("vLLM"):
            if self.making_vllm is None:
                self.make_vllm()
            folder, said = self.making_vllm.communicate()
            if self.making_vllm.returncode:
                self.environ["DREAMGYM_VLLM_WHY"] = (said.strip() or "no reason given").splitlines()[-1]
                print(f"{self.environ['DREAMGYM_VLLM_WHY']}: the tests of a real server are skipped")
            else:
                self.environ["DREAMGYM_VLLM"] = f"{folder.strip()}/bin/vllm"

    def browser(self) -> None:
        """The system's own Chromium, for the report page; where there is none its tests are skipped."""
        if shutil.which("chromium") or os.geteuid() or not shutil.which("apt-get"):
            return
        environ = self.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        install = "apt-get update -q && apt-get install -qy --no-install-recommends chromium"
        with self.step("Chromium"):
            done = subprocess.run(
                ["sh", "-c", install], env=environ, check=False, capture_output=True, text=True
            )
            if done.returncode:
                print(done.stderr[-1000:], "no chromium: the browser tests are skipped", sep="\n")

    def prepare(self, name: str) -> None:
        """What a suite needs beside the environment."""
        if name == "vllm":
            self.vllm()
        elif name == "browser":
            self.browser()

    def told(self) -> bool:
        """Print what there is to know; the last line is the sum of all suites."""
        failed = [one for one in self.outcomes if one.outcome == "failed"]
        slowest = sorted(self.outcomes, key=lambda one: -one.seconds)[:40]
        print("\n== slowest tests", *(f"{one.seconds:7.1f} s  {one.test}" for one in slowest), sep="\n")
        total = sum(self.seconds.values())
        steps = ", ".join(f"{name} {seconds:.0f}" for name, seconds in self.seconds.items())
        print(f"\n== {total / 60:.1f} minutes; seconds of each step: {steps}")
        for one in failed[:MOST_LISTED]:
            print(f"FAILED {one.test} ({one.suite}, {one.seconds:.0f} s): {one.error}")
            print(f"  alone: .ci/run --suite {one.suite} '{one.test}'")
        if len(failed) > MOST_LISTED:
            print(f"FAILED {len(failed) - MOST_LISTED} more; each is named above as FAILED or ERROR")
        print(*self.broken, sep="\n", end="\n" if self.broken else "")
        for one in self.flaky:
            print(f"FLAKY {one.test}: {one.error}")
        counts = Counter(one.outcome for one in self.outcomes)
        print(
            f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped", flush=True
        )
        return not (failed or self.broken) and counts["passed"] > 0


def sources() -> list[str]:
    """The files of the checkout that git knows or would add."""
    if shutil.which("git") and (CHECKOUT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True).stdout
        return [file for file in listed.split("\0") if file and (CHECKOUT / file).exists()]
    found = (path.relative_to(CHECKOUT) for path in CHECKOUT.rglob("*") if path.is_file())
    return [str(path) for path in found if path.parts[0] != ".links" and "__pycache__" not in path.parts]


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for; the exit code."""
    parser = argparse.ArgumentParser(prog=".ci/run", description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=SUITES, action="append", help="only this one; may be given again")
    parser.add_argument("--nightly", action="store_true", help="with the tests that every change leaves out")
    parser.add_argument("tests", nargs="*", metavar="TEST", help="only these, as pytest names them")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what it made is removed
    with tempfile.TemporaryDirectory(prefix="ci-", ignore_cleanup_errors=True) as work:
        check = Check(Path(work))
        try:
            check.environment()
            if not (options.suite or options.tests):
                check.make_vllm()
                check.static()
            for name in options.suite or ([] if options.tests else SUITES):
                check.prepare(name)
                if not options.tests:
                    check.suite(name, nightly=options.nightly)
            if options.tests:
                with check.step("tests"):
                    check.pytest("tests", "-n", "0", "-m", "", *options.tests)
            else:
                check.again()
        except StepFailed:
            pass  # told below
        return 0 if check.told() else 1


if __name__ == "__main__":
    sys.exit(main())
