"""The run directory: what it refuses and how it says so; that a resume is of the same run."""

import errno
import json
import os
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from each_row import each_row
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamgym_kit.errors import RunDirectoryError
from dreamgym_kit.rollout import atomic_files
from dreamgym_kit.rollout.rundir import (
    Manifest,
    RunDirectory,
    differences,
    directory_name,
    half_made,
    latest_run,
    new_run,
)
from dreamgym_kit.types import Environment, Episode, Verdict

SETTINGS = {"graph": "desk:graph", "n": 4, "seed": 7, "dream": {"abstain_below": 0.3, "faults": {}}}
MANIFEST = Manifest("7f3a", 1000.0, SETTINGS, {"python": "3.11"})
EPISODE = Episode("a.1", "a", 1, Environment(), Verdict.PASSED, "ok")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A run that has one episode and was left."""
    with RunDirectory.create(tmp_path / "runs", "desk-7f3a", MANIFEST) as run, run.journal() as journal:
        journal.append(EPISODE)
        return run.path


def refusal_of_resume(path: Path, manifest: Manifest = MANIFEST) -> str:
    with pytest.raises(RunDirectoryError) as caught:
        RunDirectory.resume(path, manifest)
    return str(caught.value).replace(str(path), "RUN")


def test_a_run_is_written_and_read(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "runs", "2026-11-21-desk-7f3a", MANIFEST) as run:
        assert run.path == tmp_path / "runs" / "2026-11-21-desk-7f3a"
        with run.journal() as journal, run.events() as events:
            journal.append(EPISODE)
            events.emit("run_started", run="7f3a")
        assert run.read_report() is None
        assert run.write_report({"success": 1}) == run.path / "report.json"
    read = RunDirectory.open(run.path)
    assert (read.manifest, list(read.episodes()), read.read_report()) == (MANIFEST, [EPISODE], {"success": 1})
    assert {path.name for path in run.path.iterdir()} == {
        *("manifest.json", "episodes.jsonl", "events.jsonl", "report.json", "lock")
    }


def test_a_resumed_run_goes_on_with_its_own_manifest(there: Path) -> None:
    later = replace(MANIFEST, run="ffff", created_at=2000.0, about={"python": "3.12"})
    with RunDirectory.resume(there, later) as run, run.journal() as journal:
        assert run.manifest == MANIFEST
        assert list(journal.done) == ["a.1"]


def test_resume_refuses_other_settings_and_names_each(there: Path) -> None:
    other = {
        "graph": "desk:graph",
        "n": 8,
        "dream": {"abstain_below": 0.5, "faults": {"x": 1}},
        "crawl": True,
    }
    assert refusal_of_resume(there, replace(MANIFEST, matters=other)) == (
        "RUN: was begun with other settings: crawl: not set there, true here; "
        "dream.abstain_below: 0.3 there, 0.5 here; dream.faults: {} there, not set here; "
        "dream.faults.x: not set there, 1 here; n: 4 there, 8 here; seed: 7 there, not set here. "
        "Resume with the old settings, or begin a new run."
    )
    RunDirectory.resume(there, MANIFEST).close()  # the refusal kept no lock


def test_a_run_in_use_is_refused_with_its_owner(there: Path) -> None:
    with RunDirectory.resume(there, MANIFEST):
        said = refusal_of_resume(there)
        assert said.startswith(f"RUN: in use by process {os.getpid()} on ")
        assert said.endswith("; wait for it to end, or stop it.")
        assert list(RunDirectory.open(there).episodes()) == [EPISODE]  # reading needs no lock


def test_a_run_in_which_nothing_was_begun_is_discarded_and_any_other_stays(tmp_path: Path) -> None:
    for name, begun in (("empty", ""), ("event", "events.jsonl"), ("left", "scratch/crash.log")):
        with RunDirectory.create(tmp_path, name, Manifest("7f3a", 0.0, {})) as directory:
            (directory.path / "scratch").mkdir()
            directory.journal().close()
            if begun:
                (directory.path / begun).write_text("{}\n")
            directory.discard_unused()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["event", "left"]
    assert (tmp_path / "left" / "manifest.json").exists()


@each_row("content", ["", "{", "[]", "{}", '{"schema": 1}', '{"schema": 2, "run": "a"}', "\udcff"])
def test_a_manifest_that_is_none_is_named(there: Path, content: str) -> None:
    (there / "manifest.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert refusal_of_resume(there).startswith("RUN/manifest.json: ")


def test_what_is_no_run_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file", tmp_path / "none"):
        assert refusal_of_resume(path) == "RUN: is not a run directory (it has no manifest.json)."
    assert not (tmp_path / "lock").exists()


def test_a_run_opened_for_reading_is_not_written(there: Path) -> None:
    run = RunDirectory.open(there)
    for write in (run.journal, run.events, lambda: run.write_report({})):
        with pytest.raises(RunDirectoryError, match="opened read-only; resume the run to write to it"):
            write()


def test_a_name_that_is_taken_is_refused(there: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"already exists; resume it or choose another name\.$"):
        RunDirectory.create(there.parent, there.name, MANIFEST)
    assert list(RunDirectory.open(there).episodes()) == [EPISODE]


def test_a_root_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(RunDirectoryError, match="runs: is not a folder; choose a folder for runs"):
        RunDirectory.create(tmp_path / "runs", "a", MANIFEST)


@each_row(
    ("number", "hint"),
    [(errno.ENOSPC, "free some space, then resume the run"), (errno.EROFS, "check who may write there"),
     (errno.EIO, "finished episodes are kept")],
)  # fmt: skip
def test_a_disk_that_refuses_is_named_and_the_old_file_stays(
    there: Path, monkeypatch, number: int, hint: str
) -> None:
    def refuse(_descriptor: int, _data: bytes) -> int:
        raise OSError(number, "the disk's word")

    with RunDirectory.resume(there, MANIFEST) as run:
        run.write_report({"old": True})
        monkeypatch.setattr(atomic_files.os, "write", refuse)
        with pytest.raises(RunDirectoryError) as caught:
            run.write_report({"old": False})
        assert str(caught.value) == f"{there}/report.json: cannot be written (the disk's word); {hint}."
        assert run.read_report() == {"old": True}
        with pytest.raises(RunDirectoryError, match="the disk's word"):
            RunDirectory.create(there.parent, "another", MANIFEST)
    assert [path.name for path in there.parent.iterdir()] == [there.name]
    assert not [path for path in there.iterdir() if path.name.startswith(".")]


def test_names_of_new_runs_say_day_and_label_and_are_free(tmp_path: Path) -> None:
    run, name = new_run(tmp_path, "Desk: the Graph!", date(2026, 11, 21))
    assert name == f"2026-11-21-desk-the-graph-{run}"
    assert len(run) == 4
    assert new_run(tmp_path, "../", date(2026, 11, 21))[1].startswith("2026-11-21-run-")
    assert directory_name(name) == name


def test_the_latest_run_is_the_one_begun_last(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    with pytest.raises(RunDirectoryError, match="runs: has no run yet; start one: dreamgym-kit simulate"):
        latest_run(root)
    for name, created_at in (("b", 2.0), ("c", 3.0), ("a", 1.0)):
        RunDirectory.create(root, name, replace(MANIFEST, created_at=created_at)).close()
    (root / "c" / "manifest.json").write_text("{")
    (root / "z").mkdir()
    assert latest_run(root) == root / "b"


objects = st.recursive(
    st.dictionaries(
        st.text(max_size=3), st.one_of(st.integers(), st.text(max_size=3), st.none()), max_size=3
    ),
    lambda inner: st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50, derandomize=True, deadline=None)
@given(objects, objects)
def test_settings_differ_in_nothing_exactly_when_they_are_equal(one: dict, other: dict) -> None:
    assert differences(one, json.loads(json.dumps(one))) == []
    assert differences({"a.b": one}, {"a": {"b": one}}) != []
    if one != other:
        assert differences(one, other) != []


def test_many_differences_are_counted_and_long_values_are_cut() -> None:
    found = differences({str(number): "x" * 1000 for number in range(20)}, {})
    assert (len(found), found[-1]) == (11, "and 10 more")
    assert all(len(line) < 120 for line in found)


def test_a_directory_whose_making_was_cut_off_is_told_from_any_other(tmp_path: Path) -> None:
    cut, other, whole = tmp_path / "cut", tmp_path / "other", tmp_path / "whole"
    for folder in (cut, other):
        folder.mkdir()
        (folder / "lock").touch()
    (cut / ".manifest.json.new").touch()
    (other / "notes.txt").touch()
    RunDirectory.create(tmp_path, "whole", Manifest("7f3a", 1.0, {})).close()
    assert [half_made(one) for one in (cut, other, whole, tmp_path / "none")] == [True, False, False, False]
