"""Golden runs: what a refactoring must not change.

    python tests/golden/golden.py [--write]

Runs each scenario by the command line in a folder of its own and compares digests of episodes, the report,
the buffer's rows and what is exported with `expected/`. `--write` replaces these; a commit that does so says
why.
"""

import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
TOML = """
graph = "agents:{shape}"
tasks = "tasks.jsonl"
[environments.default]
ref = "agents:Shop"
[tools.look_up_order]
effect = "read"
[tools.cancel_an_order]
effect = "write"
[tools.refund_an_order]
effect = "destructive"
[tools.mail_customer]
effect = "destructive"
[tools.add_up]
effect = "pure"
"""
FUNCTION = '[functions."agents:note_in_ledger"]\neffect = "write"\n'
FAULTS = """
[faults."*"]
rate = 0.4
kinds = ["timeout", "timeout_applied", "rate_limit", "malformed", "stale_read"]
"""
HELD = '[environments.default]\nref = "agents:Shop"\n[tools.look_up_order]\neffect = "read"\n'


def _talks() -> list[dict[str, Any]]:
    return [
        {"id": "cancel-1", "input": "cancel o1", "checker": "agents:says_so"},
        {"id": "cancel-2", "input": "cancel o2", "checker": "agents:says_so"},
        {
            "id": "refund-2",
            "input": "refund o2",
            "expect": {"calls": ["refund_an_order"]},
            "replies": ["yes"],
        },
        {
            "id": "refund-2-no",
            "input": "refund o2",
            "expect": {"max": {"refund_an_order": 1}},
            "replies": ["no"],
        },
        {"id": "refund-3", "input": "refund o3 twice", "expect": {"max": {"refund_an_order": 1}}},
        {"id": "find-9", "input": "find o9", "checker": "agents:says_so"},
        {"id": "mail-3", "input": "mail o3", "checker": "agents:says_so", "split": "held_out"},
    ]


def _fans() -> list[dict[str, Any]]:
    return [
        {"id": f"fan-{'-'.join(orders)}", "input": {"orders": orders, "messages": [], "found": []},
         "expect": {"calls": ["note_in_ledger"]}}
        for orders in (["o1"], ["o2", "o3"], ["o3", "o9", "o1"])
    ]  # fmt: skip


SHAPES = {
    "react": (TOML.format(shape="react"), _talks()),
    "nested": (TOML.format(shape="nested"), _talks()),
    "fan": (f'graph = "agents:fan"\ntasks = "tasks.jsonl"\n{HELD}{FUNCTION}', _fans()),
}
RECORD = """
import dreamgym_kit
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.settings.load import load_settings
settings = load_settings(environ={}).with_overrides({"simulate.repeats": 2})
with __import__("contextlib").closing(SqliteStore("dreamgym.db")) as store:
    dreamgym_kit.record(
        settings.graph, "tasks.jsonl", settings=settings, buffer=store, label="golden", run_dir="recorded"
    )
raise SystemExit
"""
"""In Python, for the label: a drawn one would be in the rows' ids."""
_CLOCK = re.compile(r"(seconds|elapsed|_s$|_at$|started|directory|^run$|calls_per|dreamed|p50|p95)")


def scenario(shape: str, folder: Path) -> dict[str, Any]:
    """Record, look, dream twice and export; gives everything that must stay."""
    settings, tasks = SHAPES[shape]
    shutil.copy(HERE / "agents.py", folder)
    (folder / "dreamgym.toml").write_text(settings)
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    made: dict[str, Any] = {}
    (program := folder / "record.py").write_text(RECORD)
    _command(folder, program=program).check_returncode()
    made["record"] = _of_run(folder / "recorded", folder)
    made["rows"] = _rows(folder / "dreamgym.db")
    made["simulate"] = _ran(folder, "simulate", "--repeats", "2")
    (folder / "dreamgym.toml").write_text(settings + FAULTS)
    made["faults"] = _ran(folder, "simulate", "--repeats", "2")
    _typed(folder, "buffer", "export", "rows.jsonl")
    made["export"] = sorted(_lines(folder / "rows.jsonl"))
    made["rules"] = _typed(folder, "rules", "export").splitlines()
    return made


def demo(folder: Path) -> dict[str, Any]:
    """Give what `demo` shows."""
    _typed(folder, "demo", "--keep", "kept", codes=(0,))
    return {
        "demo": _of_run(next((folder / "kept/runs").iterdir()), folder),
        "rows": _rows(folder / "kept/recordings.db"),
    }


def training(folder: Path) -> dict[str, Any]:
    """Train two steps from a seed."""
    from training.real_parts import project, run

    done = run(project(folder), "train", "--steps", "2")
    if done.returncode:
        raise RuntimeError(done.stderr)
    (kept,) = (folder / "runs").iterdir()
    from dreamgym_kit.rollout.rundir import RunDirectory

    rollouts = sorted(one.parent for one in kept.glob("rollouts/*/episodes.jsonl"))
    return {
        "steps": [_plain(json.loads(line)) for line in (kept / "steps.jsonl").read_text().splitlines()],
        "evaluations": [
            _plain(json.loads(line)) for line in (kept / "evaluations.jsonl").read_text().splitlines()
        ],
        "episodes": sorted(
            f"{run.name.split('-')[1]} {one.id} {one.digest}"
            for run in rollouts
            for one in RunDirectory.open(run).episodes()
        ),
    }


def _ran(folder: Path, command: str, *flags: str) -> dict[str, Any]:
    before = set((folder / "runs").iterdir()) if (folder / "runs").exists() else set()
    code = _code(folder, command, "--set", "simulate.concurrency=1", *flags)
    (run,) = set((folder / "runs").iterdir()) - before
    return {"code": code, **_of_run(run, folder)}


def _of_run(run: Path, folder: Path) -> dict[str, Any]:
    from dreamgym_kit.rollout.rundir import RunDirectory

    episodes = {one.id: one.digest for one in RunDirectory.open(run).episodes()}
    report = (run / "report.json").read_text().replace(f"{folder.resolve()}/", "")
    return {"episodes": dict(sorted(episodes.items())), "report": _plain(json.loads(report))}


def _plain(value: Any) -> Any:
    """The same without times, places, and the sandbox that this machine gives."""
    if isinstance(value, dict):
        return {
            name: _plain(one) for name, one in value.items() if not _CLOCK.search(name) and name != "sandbox"
        }
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _rows(file: Path) -> list[str]:
    """A digest of each recording, without its times."""
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.replay.records import transition_to_record

    with closing(SqliteStore(file)) as store:
        return sorted(_digest(_plain(transition_to_record(one))) for one in store.scan())


def _lines(file: Path) -> Iterable[str]:
    return [_digest(_plain(json.loads(line))) for line in file.read_text().splitlines()]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _typed(folder: Path, *words: str, codes: tuple[int, ...] = (0,)) -> str:
    done = _command(folder, *words)
    if done.returncode not in codes:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def _code(folder: Path, *words: str) -> int:
    done = _command(folder, *words)
    if done.returncode in (2, 70):
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.returncode


def _command(folder: Path, *words: str, program: Path | None = None) -> "subprocess.CompletedProcess[str]":
    from warm import shared

    kept = {name: value for name, value in os.environ.items() if not name.startswith("DREAMGYM_")}
    return shared().run(words, folder, {**kept, "NO_COLOR": "1"}, program=program)


def made(name: str) -> Mapping[str, Any]:
    """One scenario in a folder that goes again."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        if name in SHAPES:
            return scenario(name, Path(folder))
        return {"demo": demo, "training": training}[name](Path(folder))


NAMES = (*SHAPES, "demo", "training")


def alike(now: Any, expected: Any) -> bool:
    """Whether both are equal, but for what one processor rounds otherwise than another."""
    if isinstance(now, dict) and isinstance(expected, dict):
        return now.keys() == expected.keys() and all(alike(now[name], expected[name]) for name in now)
    if isinstance(now, list) and isinstance(expected, list):
        return len(now) == len(expected) and all(map(alike, now, expected))
    if isinstance(now, float) and isinstance(expected, float):
        return math.isclose(now, expected, rel_tol=1e-5, abs_tol=1e-6)
    return bool(now == expected)


def main() -> int:
    """Compare, or write."""
    different = 0
    for name in NAMES:
        file, now = EXPECTED / f"{name}.json", json.dumps(made(name), indent=1, sort_keys=True) + "\n"
        if "--write" in sys.argv:
            EXPECTED.mkdir(exist_ok=True)
            file.write_text(now)
        same = alike(json.loads(now), json.loads(file.read_text()))
        different += not same
        print(f"{name}: {'equal' if same else 'DIFFERENT'}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    sys.exit(main())
