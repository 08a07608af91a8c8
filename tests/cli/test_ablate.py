"""`ablate` on the command line: how true the dream is without each part; what was measured is kept."""

import json
from pathlib import Path

import pytest


@pytest.mark.slow
def test_each_part_is_left_out_and_what_was_measured_is_kept(run, recorded: Path) -> None:
    asked = ("experience", "ablate", "agent:graph", "--without", "history", "--json")
    done = run(*asked)
    assert done.returncode == 0, done.stderr
    rows = {row["part"]: row for row in json.loads(done.stdout)["rows"]}
    assert list(rows) == ["nothing", "history"]
    assert rows["nothing"]["calls"] == 3  # one of two episodes is held out
    kept = recorded / "ablation" / "history.json"
    kept.write_text(kept.read_text().replace('"calls": 3', '"calls": 17'))
    assert [row["calls"] for row in json.loads(run(*asked).stdout)["rows"]] == [3, 17]
    assert not (recorded / "REAL").exists()


@pytest.mark.nightly
@pytest.mark.slow
def test_a_part_that_this_dream_does_not_have_is_not_left_out(run, recorded: Path) -> None:
    for part, why in (
        ("reasoning", "no model decides anything (experience.dir, experience.urls)"),
        ("curriculum", "tasks go in turn (curriculum.enabled)"),
        ("faults", "nothing fails by plan (train.faults)"),
    ):
        done = run("experience", "ablate", "agent:graph", "--without", part)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"error: ablate: there is no '{part}' to leave out: {why}.\n"
    assert not (recorded / "ablation").exists()


@pytest.mark.nightly
@pytest.mark.slow
def test_rows_of_another_measurement_are_not_taken_for_this_one(run, refusal, recorded: Path) -> None:
    assert run("experience", "ablate", "agent:graph", "--json").returncode == 0
    rows = json.loads(run("experience", "ablate", "agent:graph", "--json").stdout)["rows"]
    assert [row["part"] for row in rows] == ["nothing", "history", "state", "retrieval"]  # no model decides
    assert "ablation: holds rows of another measurement (calls: 400 there, 2 here); name" in refusal(
        "experience", "ablate", "agent:graph", "--calls", "2"
    )
    assert run("experience", "ablate", "agent:graph", "--calls", "2", "--out", "other").returncode == 0
