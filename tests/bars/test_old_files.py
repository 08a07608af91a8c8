"""Files of earlier versions are read: buffers, exported recordings, cassettes, run directories, trainings.

`old_files/<version>` was written by that version, by the agents of tests/golden. A version that writes
another form adds its own and leaves the older ones as they are.
"""

import json
import shutil
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from training.real_parts import run

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.replay.transfer import import_jsonl
from dreamgym_kit.rollout.rundir import RunDirectory

pytestmark = pytest.mark.slow
FILES = sorted((Path(__file__).parent / "old_files").iterdir())
GOLDEN = Path(__file__).parents[1] / "golden"
versions = pytest.mark.parametrize("files", FILES, ids=lambda path: path.name)


@pytest.fixture
def project(files: Path, tmp_path: Path) -> Path:
    """A copy of a project of that version with its agents, its settings with the names of today."""
    folder = Path(shutil.copytree(files, tmp_path / "project"))
    shutil.copy(GOLDEN / "agents.py", folder)
    renamed = run(folder, "init", "--update")
    assert renamed.returncode == 0, renamed.stderr
    return folder


@versions
def test_an_old_buffer_answers_as_it_did(project: Path) -> None:
    done = run(project, "simulate", "--repeats", "2", "--set", "simulate.concurrency=1")
    assert done.returncode == 1, done.stderr  # its tasks fail
    (directory,) = (project / "runs").iterdir()
    now = {one.id: one.digest for one in RunDirectory.open(directory).episodes()}
    assert now == json.loads((GOLDEN / "expected" / "react.json").read_text())["simulate"]["episodes"]


@versions
def test_old_recordings_are_imported_and_are_those_of_the_buffer(project: Path) -> None:
    imported = MemoryStore()
    import_jsonl(project / "rows.jsonl", imported)
    with closing(SqliteStore(project / "dreamgym.db")) as buffer:
        assert sorted(imported.scan(), key=str) == sorted(buffer.scan(), key=str)
    assert imported.count() > 20


@versions
def test_an_old_cassette_is_replayed(project: Path) -> None:
    (project / "test_shop.py.txt").rename(project / "test_shop.py")
    pytest_here = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"]
    done = subprocess.run(pytest_here, cwd=project, capture_output=True, text=True, timeout=300, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@versions
def test_an_old_training_is_shown_and_goes_on(project: Path) -> None:
    pytest.importorskip("trl", reason="the extra train is not installed")
    with tarfile.open(project / "training.tar.gz") as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.3 has none
        packed.extractall(folder := project / "training")
    kept = folder / "runs" / "old"
    for manifest in kept.rglob("manifest.json"):  # it names the policy by its place
        manifest.write_text(manifest.read_text().replace("FOLDER", str(folder)))
    renamed = run(folder, "init", "--update")  # its dreamgym.toml has the names of that version
    assert renamed.returncode == 0, renamed.stderr
    shown = run(folder, "report", str(kept))
    assert shown.returncode == 0, shown.stderr
    done = run(folder, "train", "--json", "--steps", "3", "--resume", str(kept))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kept"] == 3
