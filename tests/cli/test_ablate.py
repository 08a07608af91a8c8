"""`ablate` on the command line: how true the dream is without each part; what was measured is kept."""

import json
from pathlib import Path

import pytest


@pytest.mark.slow
def test_each_part_is_left_out_and_what_was_measured_is_kept(run, recorded: Path) -> None:
    asked = ("ablate", "agent:graph", "--without", "history", "--json")
    done = run(*asked)
    assert done.returncode == 0, done.stderr
    rows = {row["part"]: row for row in json.loads(done.stdout)["rows"]}
    assert list(rows) == ["nothing", "history"]
    assert rows["nothing"]["calls"] == 3  # one of two episodes is held out
    kept = recorded / "ablation" / "history.json"
    kept.write_text(kept.read_text().replace('"calls": 3', '"calls": 17'))
    assert [row["calls"] for row in json.loads(run(*asked).stdout)["rows"]] == [3, 17]
    assert not (recorded / "REAL").exists()
