"""R7: a run directory of each release so far is read by every form of `report`, or refused by name.

`old_runs/<version>` was written by that version: some episodes of the desk with planned faults. A release
that writes another schema adds its own and leaves the older ones as they are.
"""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from each_row import each_row
from pages.blocks import blocks, unpacked

from dreamgym_kit.codec import Codec
from dreamgym_kit.errors import RunDirectoryError
from dreamgym_kit.replay.records import TRANSITIONS
from dreamgym_kit.report.episode import render_episode
from dreamgym_kit.report.page.writing import page_of
from dreamgym_kit.report.summary import summarize
from dreamgym_kit.report.terminal import render_run
from dreamgym_kit.rollout.rundir import MANIFESTS, RunDirectory
from dreamgym_kit.types import Episode

RUNS = sorted((Path(__file__).parent / "old_runs").iterdir())


@each_row("path", RUNS, ids=lambda path: path.name)
def test_r7_every_form_of_report_reads_it(path: Path) -> None:
    run = RunDirectory.open(path)
    summary = summarize(run.episodes(), MANIFESTS.write(run.manifest))
    print(f"r7: {path.name}: {len(summary.episodes)} episodes, {summary.headline}")
    assert "repeated_write" in {group.kind for group in summary.findings}
    assert summary.headline in render_run(summary)
    counts = json.loads(json.dumps(summary.to_json()))["counts"]
    assert sum(counts.values()) == len(summary.episodes) > 0
    assert counts["failed"] > 0 < counts["passed"]  # kept in the words of then
    for episode in run.episodes():
        assert episode.id in render_episode(episode)
    html = page_of(run, place="r").html
    said = blocks(html)[0]["verdict"]
    assert f"{said['word']}  {said['counted']}" == summary.headline
    assert len(unpacked(html)) == len(summary.episodes)


@each_row(
    ("file", "old", "new", "said"),
    [
        ("manifest.json", '"schema": 1', '"schema": 99', "99 is newer than 1"),
        ("manifest.json", '"schema": 1', '"schema": 0', "there is no schema 0"),
        ("episodes.jsonl", '{"journal":1', '{"journal":99', "episodes.jsonl"),
    ],
)
def test_r7_what_is_not_read_is_refused_by_name(
    tmp_path: Path, file: str, old: str, new: str, said: str
) -> None:
    shutil.copytree(RUNS[-1], run := tmp_path / "run")
    (run / file).write_text((run / file).read_text("utf-8").replace(old, new, 1), "utf-8")
    with pytest.raises(RunDirectoryError, match=re.escape(said)):
        page_of(RunDirectory.open(run), place="r")


@dataclass(frozen=True, slots=True, kw_only=True)
class Longer(Episode):
    new: str


def test_r7_a_reader_that_wants_more_than_was_written_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    wants = Codec(Longer, schema=1, computed="digest", nested=(TRANSITIONS,))
    monkeypatch.setattr("dreamgym_kit.rollout.journal.EPISODES", wants)
    with pytest.raises(RunDirectoryError, match="new"):
        page_of(RunDirectory.open(RUNS[-1]), place="r")
