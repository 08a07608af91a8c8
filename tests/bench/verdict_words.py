"""Does every face give a planted run the verdict and the exit code that are right?

Each case of `verdict_cases` runs by the command line, by Python and by the pytest plugin, where that makes
sense; then a run is interrupted, ended, killed and resumed. Right means: verdict of the run and of each
episode, the counts, the exit code, and the texts that the case names. In pytest a test must pass exactly
where its episode passes, and an error is named by its word.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.etree import ElementTree

from verdict_cases import AGENT, CASES, Asked, Case

DEADLINE_S = 120.0
RUN = """
import json, sys
import dreamgym_kit
done = getattr(dreamgym_kit, sys.argv[2])(sys.argv[1], "tasks.jsonl", run_dir="run")
said = (done.summary if sys.argv[2] == "simulate" else done.b.summary).to_json()
told = {"verdict": done.verdict, "code": done.exit_code, "passed": done.passed, "counts": said["counts"]}
print(json.dumps(told | {"episodes": {line["id"]: line["verdict"] for line in said["list"]}}))
"""
EFFECTS = {"look": "read", "remove": "destructive", "sign": "write"}
QUICK = ("passes", "checker_no", "checker_raises", "no_task")


def measure(seed: int) -> Iterator[tuple[str, float, str]]:
    """Measure; `seed` changes nothing, every case is planted."""
    del seed
    yield from figures(CASES, signals=True)


def quick(seed: int) -> Iterator[tuple[str, float, str]]:
    """A few of the cases."""
    del seed
    yield from figures([case for case in CASES if case.name in QUICK], signals=False)


def figures(cases: Sequence[Case], *, signals: bool) -> Iterator[tuple[str, float, str]]:
    """Run them, and say on stderr what is wrong."""
    runs = list(ran(cases, signals=signals))
    for name, found in runs:
        for wrong in found:
            print(f"wrong: {name}: {wrong}", file=sys.stderr)
    yield "runs", len(runs), ""
    yield "wrong", sum(bool(found) for _, found in runs), "runs"


def ran(cases: Sequence[Case], *, signals: bool) -> Iterator[tuple[str, list[str]]]:
    """Each run by name, with what is wrong about it."""
    with tempfile.TemporaryDirectory() as root, stub() as url:
        environ = {**os.environ, "STUB_URL": url, "PYTHONPATH": "", "NO_COLOR": "1"}
        environ.pop("CI", None)
        for case in cases:
            for face in case.faces:
                folder = project(Path(root) / f"{case.name}_{face}", case)
                record_first(case, folder, environ)
                yield f"{case.name} by {face}", FACES[face](case, folder, environ)
        for name, run in SIGNALS.items() if signals else ():
            folder = project(Path(root) / name, Case(name, WAITS, "inconclusive"))
            yield name, run(folder, environ)


@contextmanager
def stub() -> Iterator[str]:
    """A model's endpoint that fails as its address says."""
    over = threading.Event()

    class Fails(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            how = self.path.split("/")[1]
            if how == "timeout":
                over.wait(DEADLINE_S)
            body = b'{"error": {"message": "no"}}'
            self.send_response(int(how) if how.isdecimal() else 500)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(BrokenPipeError):  # its client did not wait
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Fails)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def project(folder: Path, case: Case) -> Path:
    """Write the agent, its tasks and its settings."""
    folder.mkdir(parents=True)
    name = f"agent_{folder.name}"
    text = AGENT
    for old, new in {
        "CONTEXT": "None",
        "TOOLS": "held",
        "DOOR": "pass",
        **case.agent,
        "NAME": folder.name,
    }.items():
        text = text.replace(old, new)
    (folder / f"{name}.py").write_text(text)
    write_tasks(folder / "tasks.jsonl", case.tasks, name)
    effects = "".join(
        f'[tools.{tool}_{folder.name}]\neffect = "{effect}"\n' for tool, effect in EFFECTS.items()
    )
    more = case.settings.replace("AGENT", name)
    (folder / "dreamgym.toml").write_text(f'graph = "{name}:graph"\ntasks = "tasks.jsonl"\n{more}{effects}')
    return folder


def write_tasks(file: Path, tasks: Sequence[Asked], module: str) -> None:
    """Write a task file."""
    lines = (json.dumps(record(task, place, module)) for place, task in enumerate(tasks))
    file.write_text("".join(f"{line}\n" for line in lines))


def record_first(case: Case, folder: Path, environ: dict[str, str]) -> None:
    """Record what the case builds on, into the project's buffer."""
    if not case.recorded:
        return
    write_tasks(folder / "recorded.jsonl", case.recorded, f"agent_{folder.name}")
    command = ("-m", "dreamgym_kit.cli.main", "record", "--yes", "--tasks", "recorded.jsonl")
    done = child(folder, environ, *command)
    if done.returncode:
        raise RuntimeError(f"{case.name}: not recorded: {done.stderr[-600:]}")
    shutil.rmtree(folder / "runs")


def record(task: Asked, place: int, module: str) -> dict[str, object]:
    """A line of the task file."""
    told: dict[str, object] = {
        "id": f"t{place}",
        "input": {"messages": [{"role": "user", "content": task.said}]},
    }
    told |= {"checker": f"{module}:{task.checker}"} if task.checker else {}
    told |= {"expect": dict(task.expect)} if task.expect else {}
    return told | ({"replies": list(task.replies)} if task.replies else {})


def child(folder: Path, environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run to the end in a project's folder."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def by_command(case: Case, folder: Path, environ: dict[str, str]) -> list[str]:
    """By the command line, and its report again."""
    done = child(folder, environ, "-m", "dreamgym_kit.cli.main", *case.command)
    wrong = [] if done.returncode == case.expected_code else [f"code {done.returncode}: {done.stderr[-600:]}"]
    text = " ".join(done.stdout.split())
    wrong += [f"does not say: {told}" for told in case.about if " ".join(told.split()) not in text]
    if done.returncode in (2, 5) or not case.tasks:
        return wrong
    again = child(folder, environ, "-m", "dreamgym_kit.cli.main", "report", "--json")
    said = json.loads(again.stdout)
    episodes = {line["id"]: line["verdict"] for line in said["list"]}
    wrong += compared(case, said["verdict"], said["counts"], episodes)
    word = case.word or case.verdict.upper()
    for begins in (done.stdout, child(folder, environ, "-m", "dreamgym_kit.cli.main", "report").stdout):
        wrong += [] if begins.startswith(f"{word}  ") else [f"begins: {begins[:60]!r}"]
    if case.command == ("evaluate",):
        wrong += against(case, folder, environ)
    return wrong


def against(case: Case, folder: Path, environ: dict[str, str]) -> list[str]:
    """What `evaluate` says of the run against itself, and `compare` of the two."""
    (before,) = (folder / "runs").iterdir()
    asked = ("evaluate", "--baseline", f"runs/{before.name}", "--require", "not-worse")
    held = child(folder, environ, "-m", "dreamgym_kit.cli.main", *asked)
    after = next(one for one in (folder / "runs").iterdir() if one != before)
    both = child(folder, environ, "-m", "dreamgym_kit.cli.main", "compare", str(before), str(after))
    words = [told.split("  ")[0] for told in (held.stdout, both.stdout)]
    wrong = [] if words[0] == words[1] else [f"evaluate says {words[0]!r}, compare {words[1]!r}"]
    right = (
        "NO DIFFERENCE"
        if any(task.verdict in ("passed", "failed") for task in case.tasks)
        else "INCONCLUSIVE"
    )
    wrong += [] if words[0] == right else [f"{words[0]}, not {right}"]
    codes = (held.returncode, both.returncode)
    return wrong + ([] if codes == (case.expected_code, 0) else [f"evaluate and compare: codes {codes}"])


def by_python(case: Case, folder: Path, environ: dict[str, str]) -> list[str]:
    """By `simulate` or `evaluate` in Python."""
    done = child(folder, environ, "-c", RUN, f"agent_{folder.name}:graph", case.command[0])
    if done.returncode:
        return [f"raised: {done.stderr[-600:]}"]
    said = json.loads(done.stdout.splitlines()[-1])
    wrong = [] if said["code"] == case.expected_code else [f"code {said['code']}"]
    wrong += [] if said["passed"] is (case.verdict == "passed") else ["passed is wrong"]
    return wrong + compared(case, said["verdict"], said["counts"], said["episodes"])


def compared(case: Case, verdict: str, counts: dict[str, int], episodes: dict[str, str]) -> list[str]:
    """What differs from what the case foretold."""
    wrong = [] if verdict == case.verdict else [f"verdict {verdict}"]
    right = Counter(task.verdict for task in case.tasks)
    named = {**counts, "error": counts["errors"]}
    wrong += [
        f"{named[word]} {word}, not {right[word]}"
        for word in ("passed", "failed", "inconclusive", "error")
        if named[word] != right[word]
    ]
    for place, task in enumerate(case.tasks):
        if episodes.get(f"t{place}.1") != task.verdict:
            wrong.append(f"t{place} is {episodes.get(f't{place}.1')}, not {task.verdict}")
    return wrong


def by_pytest(case: Case, folder: Path, environ: dict[str, str]) -> list[str]:
    """By the plugin: a test for each task."""
    name, lines = f"agent_{folder.name}", ["import pytest"]
    for place, task in enumerate(case.tasks):
        options = {"checker": f"{name}:{task.checker}" if task.checker else None}
        options |= {"replies": task.replies, "expect": dict(task.expect) or None, "allow_incomplete": True}
        told = ", ".join(f"{option}={value!r}" for option, value in options.items())
        lines += [
            f"def test_t{place}(dream):",
            f"    dream.run('{name}:graph', {task.said!r}, {told}).passed()",
        ]
    (folder / "test_agent.py").write_text("\n".join(lines) + "\n")
    done = child(
        folder, environ, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--junitxml=j.xml"
    )
    if not (folder / "j.xml").exists():
        return [f"no report: {done.stdout[-600:]}{done.stderr[-600:]}"]
    wrong = [] if (done.returncode == 0) is all(one.verdict == "passed" for one in case.tasks) else ["code"]
    cases = {one.get("name"): one for one in ElementTree.parse(folder / "j.xml").iter("testcase")}
    for place, task in enumerate(case.tasks):
        found = cases[f"test_t{place}"].find("failure")
        if (found is None) is not (task.verdict == "passed"):
            wrong.append(
                f"t{place} {'passes' if found is None else 'fails'}: {found is not None and found.text}"
            )
        elif found is not None and task.verdict == "error" and "error" not in str(found.get("message")):
            wrong.append(f"t{place} does not say that it is an error: {found.get('message')}")
    return wrong


FACES: dict[str, Callable[[Case, Path, dict[str, str]], list[str]]] = {
    "command": by_command,
    "python": by_python,
    "pytest": by_pytest,
}
WAITS = (Asked("hi", "passed"), Asked("wait", "inconclusive"), Asked("hi", "passed"))


def stopped(*signals: signal.Signals, code: int, word: str) -> Callable[[Path, dict[str, str]], list[str]]:
    """A run that is stopped while its second episode waits, and is resumed to its end."""

    def run(folder: Path, environ: dict[str, str]) -> list[str]:
        command = [
            sys.executable,
            "-m",
            "dreamgym_kit.cli.main",
            "simulate",
            "--set",
            "simulate.concurrency=1",
        ]
        log, out = folder / "log", folder / "out"
        with log.open("w") as err, out.open("w") as said:
            process = subprocess.Popen(command, cwd=folder, env=environ, stdout=said, stderr=err)
            try:
                until(lambda: "1/3" in log.read_text() or process.poll() is not None)
                for place, number in enumerate(signals, start=1):
                    process.send_signal(number)
                    if place < len(signals):  # two at once would be one
                        until(lambda: "stopping" in log.read_text() or process.poll() is not None)
                ended = process.wait(DEADLINE_S)
            finally:
                process.kill()
                process.wait()
        wrong = [] if ended == code else [f"code {ended}: {log.read_text()[-400:]}"]
        wrong += [] if out.read_text().startswith(word) else [f"begins: {out.read_text()[:80]!r}"]
        return wrong + resumed(folder, environ, "time.sleep(120)")

    return run


def resumed(folder: Path, environ: dict[str, str], held_up: str) -> list[str]:
    """Go on with a run whose agent now does not do what stopped it."""
    (directory,) = (folder / "runs").iterdir()
    agent = folder / f"agent_{folder.name}.py"
    agent.write_text(agent.read_text().replace(held_up, "pass"))
    resume = ("simulate", "--set", "simulate.concurrency=1", "--resume", str(directory))
    again = child(folder, environ, "-m", "dreamgym_kit.cli.main", *resume)
    right = again.stdout.startswith("PASSED  3 passed, 0 failed, 0 inconclusive, 0 errors")
    return [] if right else [f"resumed: {again.stdout[:80]!r}{again.stderr[-300:]}"]


def raised(folder: Path, environ: dict[str, str]) -> list[str]:
    """A KeyboardInterrupt of the agent's own code is a Ctrl-C."""
    agent = folder / f"agent_{folder.name}.py"
    agent.write_text(agent.read_text().replace("time.sleep(120)", "raise KeyboardInterrupt"))
    done = child(
        folder, environ, "-m", "dreamgym_kit.cli.main", "simulate", "--set", "simulate.concurrency=1"
    )
    wrong = [] if done.returncode == 130 else [f"code {done.returncode}: {done.stderr[-400:]}"]
    word = "INCONCLUSIVE (interrupted)  1 passed"
    wrong += [] if done.stdout.startswith(word) else [f"begins: {done.stdout[:80]!r}"]
    return wrong + resumed(folder, environ, "raise KeyboardInterrupt")


def mended(folder: Path, environ: dict[str, str]) -> list[str]:
    """A resume runs the episodes that were errors again, and only those."""
    agent = folder / f"agent_{folder.name}.py"
    text = agent.read_text().replace("time.sleep(120)", "pass")
    agent.write_text(text.replace("return True", 'return outcome.task.id != "t1" or 1 // 0'))
    first = child(folder, environ, "-m", "dreamgym_kit.cli.main", "simulate")
    (directory,) = (folder / "runs").iterdir()
    wrong = [] if first.returncode == 4 else [f"code {first.returncode}"]
    agent.write_text(text)
    again = child(folder, environ, "-m", "dreamgym_kit.cli.main", "simulate", "--resume", str(directory))
    wrong += [] if again.returncode == 0 else [f"resumed: code {again.returncode}: {again.stderr[-400:]}"]
    begun = [
        json.loads(line)["episode"]
        for line in (directory / "events.jsonl").read_text().splitlines()
        if '"event":"episode_started"' in line
    ]
    return wrong + ([] if begun[3:] == ["t1.1"] else [f"the resume began {begun[3:]}"])


SIGNALS: dict[str, Callable[[Path, dict[str, str]], list[str]]] = {
    "ctrl_c": stopped(signal.SIGINT, signal.SIGINT, code=130, word="INCONCLUSIVE (interrupted)  1 passed"),
    "term": stopped(signal.SIGTERM, signal.SIGTERM, code=143, word="INCONCLUSIVE (interrupted)  1 passed"),
    "interrupt_raised": raised,
    "kill": stopped(signal.SIGKILL, code=-9, word=""),
    "mended": mended,
}


def until(there: Callable[[], bool]) -> None:
    """Wait for it."""
    end = time.monotonic() + DEADLINE_S
    while not there():
        if time.monotonic() > end:
            raise TimeoutError("it did not come")
        time.sleep(0.05)
