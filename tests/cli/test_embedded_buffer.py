"""A server of the buffer's own lives as long as the command that dreams from it."""

import json
from pathlib import Path

import pytest

pytest.importorskip("weaviate_double", reason="weaviate-client is not installed")

from weaviate_double.binary import binary_double

pytestmark = pytest.mark.slow


@pytest.mark.nightly
def test_each_command_ends_the_server_that_it_started(run, project: Path, tmp_path: Path) -> None:
    kept = project / "server-rows"
    buffer = ("--buffer", f"weaviate+embedded:{kept}?tenant=shop")
    weaviate = {"WEAVIATE_BINARY": str(binary_double(tmp_path))}
    done = run("record", "agent:graph", "--tasks", "tasks.jsonl", "--yes", *buffer, **weaviate)
    assert done.returncode == 0, done.stderr
    for command in ("simulate", "simulate", "evaluate"):
        done = run(command, "agent:graph", "--tasks", "tasks.jsonl", "--json", *buffer, **weaviate)
        assert "a server runs over" not in done.stderr
        assert json.loads(done.stdout)["schema"] == 2, done.stderr
