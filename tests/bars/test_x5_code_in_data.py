"""X5: no file that is read runs code: pickles, torch archives, YAML tags, msgpack and `.pth` are data."""

import asyncio
import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from each_row import each_row

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.adapters.traces.importing import import_traces
from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.dream.programs.rules_files import read_file
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.replay.transfer import import_jsonl
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.rollout.tasks import read_tasks
from dreamgym_kit.settings.load import load_settings


class Runs:
    """What it is unpickled into: a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> object:
        return os.system, (self.command,)


def in_an_archive(inside: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("archive/data.pkl", inside)
    return made.getvalue()


def hostile(canary: Path) -> dict[str, bytes]:
    """Files that run `touch canary` where somebody takes them for more than data."""
    command = f"touch {canary}"
    pickled = pickle.dumps(Runs(command))
    tag = f'!!python/object/apply:os.system ["{command}"]'
    return {
        "pickle": pickled,
        "pickle 0": pickle.dumps(Runs(command), protocol=0),
        "torch archive": in_an_archive(pickled),
        "yaml": tag.encode(),
        "yaml in json": json.dumps({"id": tag, "input": tag, "graph": tag}).encode(),
        "msgpack ext": b"\xc7" + bytes([len(pickled) % 256]) + b"\x01" + pickled,
        "pth": f"import os; os.system({command!r})\n".encode(),
        "expression": f"__import__('os').system({command!r})".encode(),
        "toml": f"graph = \"__import__('os').system('{command}')\"\n".encode(),
    }


def run_report(path: Path) -> object:
    folder = path.with_suffix(".run")
    folder.mkdir()
    for name in ("manifest.json", "episodes.jsonl", "events.jsonl", "report.json", "trials.json"):
        (folder / name).write_bytes(path.read_bytes())
    opened = RunDirectory.open(folder)
    return [*opened.episodes(), opened.read_trials()]


def import_by_guess(path: Path) -> object:
    return import_traces(path, MemoryStore())


READERS: dict[str, Callable[[Path], object]] = {
    "tasks": read_tasks,
    "buffer import": lambda path: import_jsonl(path, MemoryStore()),
    "traces": import_by_guess,
    "settings": lambda path: load_settings(file=path, environ={}),
    "rules": read_file,
    "buffer": SqliteStore,
    "run directory": run_report,
}


def ran(reader: Callable[[Path], object], folder: Path) -> list[str]:
    """Which files ran something under a reader; one that refuses in other words than ours raises here."""
    found = []
    for number, name in enumerate(hostile(folder)):
        canary, file = folder / f"canary-{number}", folder / f"file-{number}.dat"
        file.write_bytes(hostile(canary)[name])
        with suppress(UserError):
            reader(file)
        found += [name] if canary.exists() else []
    return found


@each_row("reader", READERS)
def test_no_file_that_is_read_runs_code(reader: str, tmp_path: Path) -> None:
    found = ran(READERS[reader], tmp_path)
    print(f"X5 {reader}: {len(found)} of {len(hostile(tmp_path))} ran")
    assert found == []


MODEL_FILES = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
)


@each_row("replaced", [*MODEL_FILES, "pytorch_model.bin"])
def test_no_file_of_a_model_directory_runs_code(replaced: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra train is not installed")
    from nano_double import write_double

    from dreamgym_kit.adapters.models.local import open_local

    good = write_double(tmp_path / "good")

    def opened(file: Path) -> object:
        folder = Path(shutil.copytree(good, file.with_suffix(".model")))
        if replaced not in MODEL_FILES:
            (folder / "model.safetensors").unlink()
        (folder / replaced).write_bytes(file.read_bytes())
        return open_local(folder).close()

    assert ran(opened, tmp_path) == []


def test_a_chat_template_cannot_leave_its_sandbox(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra train is not installed")
    from nano_double import write_double

    from dreamgym_kit.adapters.models.local import open_local

    folder, canary = write_double(tmp_path / "model"), tmp_path / "canary"
    command = f"touch {canary}"
    ways = ("cycler.__init__.__globals__.os.system", "self.__init__.__globals__.__builtins__.eval")
    for way in ways:
        (folder / "chat_template.jinja").write_text("{{ " + way + f"({command!r})" + " }}")
        policy = open_local(folder)
        with pytest.raises(EndpointError, match="chat template refuses these messages"):
            asyncio.run(policy.chat(ChatRequest([ChatMessage("user", "hm")])))
        policy.close()
    assert not canary.exists()


def test_mutant_a_reader_that_unpickles_is_found_out(tmp_path: Path) -> None:
    def unpickles(path: Path) -> object:
        try:
            return pickle.loads(path.read_bytes())
        except Exception as error:
            raise UserError(f"{path}: {error}") from None

    assert ran(unpickles, tmp_path)[:2] == ["pickle", "pickle 0"]
