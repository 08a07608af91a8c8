"""The whole check: environment, wheel, lint, types, floors, then the tests, the quickest to find out first.

Its last lines tell everything: the seconds of each step, each failed test with the first line of its error
and how to run it alone, and last the sums of all suites. Up to five failed tests run
once more, each alone in a fresh process; one that passes then is printed as FLAKY and fails nothing.
"""

import argparse
import json
import os
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
MOST_AGAIN = 5
MOST_LISTED = 12
SUITE_S, NIGHTLY_S, ONE_TEST_S = (
    3600,
    6 * 3600,
    900,
)  # against what hangs where pytest's own timeout cannot see it
LAST_WORDS_S = 60  # for fixtures to end what they started
ELSEWHERE = ("bench", "browser", "nightly", "ray", "slow", "upstream", "vllm")


@dataclass(frozen=True)
class Suite:
    """The tests with one mark, how many processes run them, and where they are."""

    marker: str
    processes: int = 3  # on two cores: a test often waits for a command that it started
    files: tuple[str, ...] = ()  # none: all
    without: tuple[str, ...] = ()


PLACES = runpy.run_path(str(CHECKOUT / "tests" / "places.py"))
FAST = " and ".join(f"not {mark}" for mark in ELSEWHERE)
SLOW = "(slow or bench or nightly) and not browser and not ray and not upstream and not vllm"
LARGE = PLACES["importing_large"]()
SLOWER = tuple(file for file in PLACES["marked"]("slow", "bench", "nightly") if file not in LARGE)
# A start of a dream looks at every object of its process: those of all other tests' imports would double it.
GRAPHS = tuple(
    file
    for path in sorted((CHECKOUT / "tests" / "langgraph").glob("test_*.py"))
    if (file := str(path.relative_to(CHECKOUT))) not in LARGE
)
# A long test that begins last keeps one core idle: these begin first. The others follow by name.
LONGEST = (
    "tests/docs/test_readme.py",
    "tests/bars/test_t3_kill_and_resume.py",
    "tests/cli/test_train.py",
    "tests/bars/test_x1_every_artefact.py",
    "tests/bench/test_benches.py",
    "tests/langgraph/test_inventory.py",
    "tests/langgraph/test_said_of_functions.py",
)
SUITES = {
    "fast": Suite(FAST, without=(*LARGE, *GRAPHS)),
    "graphs": Suite(FAST, files=GRAPHS),
    "slow": Suite(SLOW, files=SLOWER),
    "large": Suite(f"({FAST}) or ({SLOW})", files=LARGE),
    # Each has both cores: a page or a cluster that starts beside a server of vLLM's takes minutes.
    **{
        name: Suite(name, 2 if name == "browser" else 0, PLACES["marked"](name))
        for name in ("upstream", "browser", "ray", "vllm", "weaviate")
    },
}


WHOLE = tuple(
    name for name in SUITES if name != "weaviate"
)  # without a server, "fast" has its tests' reasons


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


class Stopped(BaseException):
    """Somebody ended the check by a signal."""

    def __init__(self, number: int, *_: object) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def stop(number: int, _: object) -> None:
    """The handler of every signal that ends a process."""
    raise Stopped(number)


def end(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> None:
    """End a process that leads a session of its own, and what it left there."""
    try:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C at a terminal does
            with suppress(subprocess.TimeoutExpired):
                process.wait(LAST_WORDS_S)
    finally:  # also where somebody who has had enough sends a second signal
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def left_by(mark: str) -> list[str]:
    """End what has this variable and outlives its tests in a session of its own; the command lines."""
    ends = time.monotonic() + LAST_WORDS_S
    while (found := having(mark)) and time.monotonic() < ends:
        time.sleep(0.1)
    for number in found:
        with suppress(OSError):
            os.kill(number, signal.SIGKILL)
    return list(found.values())


def having(mark: str) -> dict[int, str]:
    """The processes that have this variable, each with its command line."""
    found: dict[int, str] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                line = (place / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(place.name)] = line.decode("utf-8", "replace").strip()[:150]
    return found


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
        """The environment of every command: no variable of who started this changes a result."""
        known = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DREAMGYM_", "PYTEST_", "PYTHON")) and name != "VIRTUAL_ENV"
        }
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dreamgym-kit"
        self.environ = known | {
            "CI": "true",
            "CI_ENVIRONMENTS": str(Path(os.environ.get("CI_ENVIRONMENTS") or cache).absolute()),
            "COLUMNS": "200",
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PIP_CACHE_DIR": str(cache / "pip"),  # a package is fetched once, not in every run
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
    def environments(self) -> Path:
        return Path(self.environ["CI_ENVIRONMENTS"])

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
        process = subprocess.Popen(command, cwd=cwd or self.source, env=self.environ, start_new_session=True)
        try:
            code = process.wait()
        finally:
            end(process)
        if code:
            raise subprocess.CalledProcessError(code, shlex.join(map(str, command)))

    def kept(self, name: str) -> Path | None:
        """The folder of a kept environment; None, with the reason on stderr, where it cannot be made."""
        process = subprocess.Popen(
            [CHECKOUT / ".ci" / "env", name],
            env=self.environ,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            folder, _ = process.communicate()
        finally:
            end(process)
        return Path(folder.strip()) if process.returncode == 0 else None

    def environment(self) -> None:
        """Link the kept environment's files into one of this run's own, and install the wheel there."""
        packages = os.environ.get("CI_PACKAGES", "checks")
        with self.step("environment", f".ci/env {packages}"):
            if not (
                kept := self.kept(packages)
            ):  # a cache that is full or read-only: made for this run alone
                self.environ["CI_ENVIRONMENTS"] = str(self.work / "kept")
                kept = self.kept(packages)
            if not kept:
                raise OSError("the environment cannot be made; see above")
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
            if not (self.bin / "pytest").read_bytes().startswith(after):
                raise OSError(f"the scripts of {kept} name no interpreter that can be replaced")
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
            where = "import dreamgym_kit, sys; sys.exit('site-packages' not in dreamgym_kit.__file__)"
            self.run(python, "-c", where)  # what is tested is the wheel
        if packages != "checks":  # what it got, for who reads why it failed
            self.run(python, "-m", "pip", "list")

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
        with self.step("limits", "python tests/limits.py"):
            self.run("python", "tests/limits.py")
        with self.step("types", "mypy -p dreamgym_kit"):
            # what it knows of each file by its digest: it reads only what has changed since an earlier run
            known, earlier = self.work / "mypy", self.environments / "mypy-types"
            with suppress(OSError):  # there is none yet, or another run replaces it: then less is known
                shutil.copytree(earlier, known)
            self.run("mypy", "--cache-dir", known, "-p", "dreamgym_kit", cwd=checks)
            made = self.environments / f"mypy-{self.work.name}"
            with suppress(OSError):  # a cache that is read-only, or another run's at the same time
                shutil.copytree(known, made)
                shutil.rmtree(earlier, ignore_errors=True)
                made.rename(earlier)
            shutil.rmtree(made, ignore_errors=True)

    def pytest(self, name: str, *options: str, limit_s: int) -> tuple[list[Outcome], str]:
        """Run one pytest; its outcomes, and what is wrong beside failed tests."""
        written = self.work / "outcomes.jsonl"
        written.unlink(missing_ok=True)
        flags = (
            "-q",
            "-p",
            "no:cacheprovider",
            "--continue-on-collection-errors",
            f"--outcomes={written}",  # one word, or a replaced worker looks for tests there
        )
        # other tests start commands, which would take these names for settings
        environ = {
            one: value
            for one, value in self.environ.items()
            if name == "vllm" or not one.startswith("DREAMGYM_VLLM")
        } | {"CI_TESTS": str(written)}
        process = subprocess.Popen(
            [self.bin / "pytest", *flags, *options],
            cwd=self.source,
            env=environ,
            start_new_session=True,
        )
        code = None
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            print(f"not over after {limit_s // 60} minutes: ended", flush=True)
        finally:
            end(process)
        left = left_by(f"CI_TESTS={written}")
        outcomes, whole = read_outcomes(written, name)
        failed = any(one.outcome == "failed" for one in outcomes)
        if code is None:
            return outcomes, f"pytest was not over after {limit_s // 60} minutes"
        if code not in (0, 1, 5) or not whole or (code == 1 and not failed):  # 5: no test has this mark
            return outcomes, f"pytest ended with code {code} before all was run or written down; see above"
        if left and not failed:  # a failed test may have left them
            return outcomes, f"{len(left)} processes outlived the tests that started them, such as {left[0]}"
        return outcomes, ""

    def suite(self, name: str, *tests: str, nightly: bool) -> None:
        """Run a suite, or some tests of it."""
        suite = SUITES[name]
        marker = suite.marker if nightly else f"({suite.marker}) and not nightly"
        # By file: what a module's tests share (whole trainings, too) is made once and not in each process.
        options = ["-n", str(suite.processes), "--dist", "loadfile", "-m", marker, "--durations=10"]
        if suite.files:
            options.append("--no-loadscope-reorder")
        if any("::" in test for test in tests):  # named one by one, whatever their marks are
            options = ["-n", "0", "-m", ""]
        with self.step(name):
            ignored = [f"--ignore={file}" for file in suite.without] if not tests else []
            files = sorted(suite.files, key=lambda file: file not in LONGEST)
            outcomes, wrong = self.pytest(
                name, *options, *ignored, *(tests or files), limit_s=NIGHTLY_S if nightly else SUITE_S
            )
            self.outcomes += outcomes
        if wrong:
            self.broken.append(f"FAILED {name}: {wrong}\n  alone: .ci/run --suite {name}")

    def again(self) -> None:
        """A test that fails by chance does not hold up a change. Fix a FLAKY test before the next one."""
        failed = [one for one in self.outcomes if one.outcome == "failed"]
        if not 0 < len(failed) <= MOST_AGAIN:
            return
        with self.step("once more"):
            for first in failed:
                if first.error.startswith("Failed: Timeout"):
                    continue  # what hung may hang again for as long
                outcomes, wrong = self.pytest(
                    first.suite, "-n", "0", "-m", "", first.test, limit_s=ONE_TEST_S
                )
                if not wrong and {one.outcome for one in outcomes} == {"passed"}:
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
            start_new_session=True,
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
            print(f"  alone: .ci/run --suite {one.suite} {shlex.quote(one.test)}")
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


def read_outcomes(written: Path, suite: str) -> tuple[list[Outcome], bool]:
    """What a pytest wrote down: how each test ended, and whether that is all of it."""
    lines = written.read_text("utf-8").splitlines() if written.exists() else []
    found: dict[str, Outcome] = {}
    over: set[str] = set()  # tests that went through their teardown, and files that were collected
    whole = False
    for line in lines:
        try:
            part = json.loads(line)
        except ValueError:  # torn
            continue
        if "exit" in part:
            whole = not part["left"]  # some were, if too many of pytest's processes died
            continue
        if part["when"] in ("teardown", "collect"):
            over.add(part["test"])
        known = found.setdefault(part["test"], Outcome(part["test"], suite))
        known.seconds += part["seconds"]
        if part["outcome"] != "passed" and known.outcome != "failed":
            known.outcome, known.error = part["outcome"], part["error"]
    for test, known in found.items():
        if test not in over and known.outcome != "failed":
            known.outcome, known.error = "failed", "its process ended before it did"
    return list(found.values()), whole


def sources() -> list[str]:
    """The files of the checkout that git knows or would add."""
    if shutil.which("git") and (CHECKOUT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=False)
        if listed.returncode == 0:
            return [file for file in listed.stdout.split("\0") if file and (CHECKOUT / file).exists()]
    found = (path.relative_to(CHECKOUT) for path in CHECKOUT.rglob("*") if path.is_file())
    return [str(path) for path in found if not {".git", ".links", "__pycache__"} & {*path.parts}]


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for; the exit code."""
    parser = argparse.ArgumentParser(prog=".ci/run", description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=SUITES, action="append", help="only this one; may be given again")
    parser.add_argument("--nightly", action="store_true", help="with the tests that every change leaves out")
    parser.add_argument("tests", nargs="*", metavar="TEST", help="only these, as pytest names them")
    options = parser.parse_args(argv)
    if options.tests and len(options.suite or []) != 1:
        parser.error("name the suite of these tests: --suite NAME TEST...")
    sys.stdout.reconfigure(errors="backslashreplace")  # whatever a test is called
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    with tempfile.TemporaryDirectory(prefix="ci-", ignore_cleanup_errors=True) as work:
        check = Check(Path(work))
        stopped = 0
        try:
            check.environment()
            if not options.suite:
                check.make_vllm()
                check.static()
            for name in options.suite or WHOLE:
                check.prepare(name)
                check.suite(name, *options.tests, nightly=options.nightly)
            check.again()
        except StepFailed:
            pass  # told below
        except Stopped as error:
            check.broken.append(f"FAILED: ended by {error}")
            stopped = error.number
        finally:
            if check.making_vllm is not None:
                end(check.making_vllm)
        passed = check.told()
        return 128 + stopped if stopped else int(not passed)


if __name__ == "__main__":
    sys.exit(main())
