"""Tries cases: each once for real, in a dream, and the same with its twin."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from attacks.bank import Bank, opened_bank, opened_mcp
from attacks.project import Case

SECONDS = 60.0  # a trial that takes longer is killed
AT_ONCE = 2
REFUSED_TO_START = 2
REAL = ("real", "real_async")
TELLING = (1, 4, 6, 70)  # exit codes that no one takes for success


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case."""

    case: Case
    real: bool  # without the kit its body does run: else the case shows nothing
    ran: bool  # its body ran in the dream
    said: bool  # and the run says so
    refused: bool  # nothing ran: the run did not start, or the episode was refused
    code: int
    twin: bool  # the harmless twin ran to its end and said what the real graph says
    twin_why: str = ""

    @property
    def silent(self) -> bool:
        """A body ran, and nobody hears of it."""
        return self.ran and not self.said


class Zygote:
    """A warm process that runs trials one after the other; see `zygote.py`."""

    def __init__(self, preload: str = "") -> None:
        command = [sys.executable, "-P", str(Path(__file__).with_name("zygote.py")), preload]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=_environment())

    def run(self, folder: Path, way: str) -> int:
        """The exit code of one trial."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"folder": str(folder), "way": way, "seconds": SECONDS}) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def tried(cases: Sequence[Case], *, folder: Path | None = None, preload: str = "") -> list[Outcome]:
    """Try each case.

    Args:
        cases: what to try.
        folder: keeps the generated projects; default: none is kept.
        preload: a file that is run in each process before its trials; a planted bug, to see that it is found.
    """
    with ExitStack() as stack:
        home = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="attack-")))
        bank = stack.enter_context(opened_bank(home))
        mcp = stack.enter_context(opened_mcp(bank)) if any(case.with_mcp for case in cases) else 0
        idle: SimpleQueue[Zygote] = SimpleQueue()
        for _ in range(AT_ONCE):
            zygote = Zygote(preload)
            stack.callback(zygote.close)
            idle.put(zygote)
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        return list(pool.map(lambda case: _tried(case, home, bank, mcp, idle), cases))


@contextmanager
def _taken(idle: "SimpleQueue[Zygote]") -> Iterator[Zygote]:
    zygote = idle.get()
    try:
        yield zygote
    finally:
        idle.put(zygote)


def _tried(case: Case, home: Path, bank: Bank, mcp: int, idle: "SimpleQueue[Zygote]") -> Outcome:
    with _taken(idle) as zygote:
        trial = _Trial(case, home, bank, mcp, zygote)
        real = trial.acts(REAL[case.is_async or case.with_mcp], twin=False)
        ran = trial.acts(case.entry, twin=False)
        code, report = trial.code, trial.report
        harmless = _harmless(trial)
    tells = bool(report.get("executed") or report.get("violations")) or code in TELLING
    refused = not ran and (code == REFUSED_TO_START or bool(report.get("violations")))
    return Outcome(case, real, ran, tells, refused, code, not harmless, harmless)


def _harmless(trial: "_Trial") -> str:
    """What is wrong with the dream of a twin; nothing where it is right."""
    trial.acts(REAL[trial.case.is_async or trial.case.with_mcp], twin=True)
    expected = trial.report.get("answer")
    if trial.code or not expected:
        return f"no real answer: {trial.last_words()}"
    trial.acts(trial.case.entry, twin=True)
    if not trial.report:
        return f"did not start: {trial.last_words()}"
    if trial.report.get("violations") or trial.report.get("executed"):
        return f"refused: {trial.report.get('executed') or trial.report['violations']}"
    if trial.code not in (0, 3):  # 3: there is no checker to say that it was right
        return f"ended with code {trial.code}: {trial.last_words()}"
    episode = trial.episode()
    said = str(episode["messages"][-1].get("content")) if episode["messages"] else ""
    if episode["stop"] != "finished":
        return f"{episode['stop']}: {episode['reason']}"
    return "" if said == expected else f"said {said!r} in the dream, {expected!r} for real"


class _Trial:
    """The runs of one case, each in a folder of its own."""

    def __init__(self, case: Case, home: Path, bank: Bank, mcp: int, zygote: Zygote) -> None:
        self.case, self._home, self._bank, self._mcp, self._zygote = case, home, bank, mcp, zygote
        self._folder, self.code, self.report = home, 0, dict[str, Any]()

    def acts(self, way: str, *, twin: bool) -> bool:
        """Run it once; says whether its body ran, by the bank's log or the file."""
        tag = f"{self.case.name}-{'twin' if twin else 'attack'}-{way}"
        self._folder = self._home / tag
        mark = self.case.write(self._folder, tag, self._bank.port, self._mcp, twin=twin)
        self.code = self._zygote.run(self._folder, way)
        printed = (self._folder / f"{way}.out").read_text("utf-8", "replace")
        self.report = _json_in(printed)
        self._way = way
        return mark.exists() or self._bank.refunds(tag) > 0

    def episode(self) -> Any:
        """The one episode as the run's journal keeps it."""
        journal = next(self._folder.glob("runs/*/episodes.jsonl"))
        return json.loads(journal.read_text("utf-8").splitlines()[-1])["episode"]

    def last_words(self) -> str:
        """The last line of stderr."""
        lines = (self._folder / f"{self._way}.err").read_text("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else f"code {self.code}"


def _json_in(printed: str) -> dict[str, Any]:
    """The object that was printed, after whatever an agent printed before."""
    start = printed.find("{")
    try:
        found = json.loads(printed[start:]) if start >= 0 else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _environment() -> dict[str, str]:
    import os

    keep = {name: value for name, value in os.environ.items() if not name.startswith(("DREAMGYM", "LANG"))}
    keep.pop("CI", None)  # with it no lock is written
    places = os.pathsep.join([str(Path(__file__).parents[1])])
    return keep | {"PYTHONPATH": places, "PYTHONDONTWRITEBYTECODE": "1", "LANGSMITH_TRACING": "false"}
