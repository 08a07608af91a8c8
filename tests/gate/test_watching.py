"""Watching: what a dream would refuse happens and is noted, tools are refused; then all is as before."""

import socket
import tempfile
from pathlib import Path

import pytest
from langchain_core.tools import tool

from dreamgym_kit.adapters.langgraph.intercept.install import watched_loading
from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.guard import egress
from dreamgym_kit.guard.egress import Allowance
from dreamgym_kit.routing.process import PROCESS
from dreamgym_kit.settings.schema import GuardSettings, Settings


def test_what_would_be_refused_happens_and_is_noted_once_with_its_place(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with egress.watching(Allowance(paths=(tmp_path / "mine",))) as trips:
            (tmp_path / "mine").write_text("x")
            (tmp_path / "other").write_text("x")
            socket.create_connection(("127.0.0.1", port)).close()
    assert (tmp_path / "other").read_text() == "x"
    assert [trip.target for trip in trips] == [str(tmp_path / "other"), f"127.0.0.1:{port}"]
    assert "test_watching.py:" in trips[0].message
    assert f'[guard] allow_hosts = ["127.0.0.1:{port}"] (it is really reached' in trips[1].message
    assert not egress.armed()
    (tmp_path / "later").write_text("x")


def test_tools_are_refused_while_a_graph_is_loaded_and_run_again_after_it(gate: None, tmp_path: Path) -> None:
    ran = []

    @tool
    def act() -> str:
        """Act."""
        ran.append(1)
        return "done"

    temporary = tempfile.gettempdir()
    settings = Settings(guard=GuardSettings(allow_paths=(str(tmp_path / "mine"),)))
    with watched_loading(settings) as touched:
        (tmp_path / "mine").write_text("x")
        Path(tempfile.gettempdir(), "scratch").write_text("x")  # a dream has such a place as well
        (tmp_path / "other").write_text("x")
        (tmp_path / "other").write_text("x")
        with pytest.raises(RealCallBlocked, match="act was called outside every episode"):
            act.invoke({})
    assert len(set(touched)) == len(touched) >= 1
    # threads of other tests may write meanwhile
    own = [line for line in touched if str(tmp_path) in line or "scratch" in line]
    assert own
    assert all("other" in line for line in own)
    assert tempfile.gettempdir() == temporary
    assert not PROCESS.open_dreams
    assert act.invoke({}) == "done"
    assert ran == [1]


def test_what_was_touched_is_told_also_where_loading_fails(gate: None, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="broken"), watched_loading(Settings()) as touched:
        (tmp_path / "other").write_text("x")
        raise ValueError("broken")
    assert len(touched) == 1
    assert not PROCESS.open_dreams
