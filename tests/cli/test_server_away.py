"""The installed command and a buffer's server that is away, comes back, and goes away again."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("weaviate_double", reason="weaviate-client is not installed")

from weaviate_double import DoubleOnItsOwnPorts

pytestmark = pytest.mark.slow


@pytest.mark.nightly
def test_what_is_recorded_while_the_server_is_away_is_dreamt_from_afterwards(
    run, project: Path, own_systems: Callable[[], None]
) -> None:
    with DoubleOnItsOwnPorts() as server:
        buffer = ("--buffer", f"{server.address}&tenant=shop&timeout=60")
        server.stop()
        recorded = run("record", "agent:graph", "--tasks", "tasks.jsonl", "--yes", *buffer)
        server.start()
        assert recorded.returncode == 0, recorded.stderr
        assert "  Real calls    6 of 6 tool calls, as asked\n" in recorded.stdout
        assert "(6 wait in the outbox)" in recorded.stdout
        (told,) = [line for line in recorded.stderr.splitlines() if "deliver them: " in line]
        flushed = run(*shlex.split(told.partition("deliver them: dreamgym-kit ")[2]))
        assert flushed.returncode == 0, flushed.stderr
        assert flushed.stdout.startswith("6 recordings were delivered to weaviate://")

        own_systems()
        server.stop()
        more = (*buffer, "-n", "2", "--set", "workers.count=2")
        recorded = run("record", "agent:graph", "--tasks", "tasks.jsonl", "--yes", *more)
        server.start()
        assert recorded.returncode == 0, recorded.stderr
        assert "12 calls added to" in recorded.stdout
        assert "(12 wait in the outbox)" in recorded.stdout
        assert "UserWarning" not in recorded.stderr
        assert run("buffer", "flush", *buffer).returncode == 0

        dream = ("simulate", "agent:graph", "--tasks", "tasks.jsonl", *buffer)
        dreamt = run(*dream)
        assert dreamt.returncode == 1, dreamt.stderr  # as on the real tools, both fail
        assert "  Real calls    0 executed" in dreamt.stdout
        assert "open before the dream" not in dreamt.stderr  # the buffer's own connections are no gap
        said = " ".join(dreamt.stdout.split())
        assert "0 passed, 2 failed" in said
        assert (project / "REAL").read_text() == "x" * 12

        server.stop()
        away = run(*dream)
        server.start()
    assert (away.returncode, away.stdout) == (2, "")
    assert "no answer" in away.stderr or "cannot do it now" in away.stderr
    assert "Traceback" not in away.stderr
