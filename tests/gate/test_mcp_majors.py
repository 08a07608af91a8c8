"""MCP calls of every kind over every transport: in the environment here, and in those of both majors."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("mcp")
pytest.importorskip("langchain_mcp_adapters", reason="needs the extra: mcp")
BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return importlib.import_module("mcp_majors")


@pytest.mark.parametrize(
    "transport", ["memory", *(pytest.param(one, marks=pytest.mark.slow) for one in ("stdio", "http"))]
)
def test_no_call_reaches_its_server_out_of_a_dream_and_each_does_once_outside(
    bench: ModuleType, transport: str
) -> None:
    one = bench.tried(Path(sys.executable), 8, transport)["transports"][transport]
    assert (one["leaks"], one["wrong"]) == ([], [])
    assert one["calls"] >= 8


def test_without_the_guard_every_call_past_a_tool_is_seen_to_leak(bench: ModuleType) -> None:
    one = bench.tried(Path(sys.executable), 8, "memory", "--unguarded")["transports"]["memory"]
    assert set(one["leaks"]) == {way for way in one["ways"] if not way.startswith("adapters tool")}
    assert {"session", "send_request bound before", "session from a thread", "server"} <= set(one["leaks"])


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["mcp1", "mcp2"])
def test_the_same_in_the_environment_of_each_major(bench: ModuleType, name: str) -> None:
    try:
        python = bench.environment(name)
    except bench.NoEnvironment as error:
        pytest.skip(str(error))
    said = bench.tried(python, 11)
    assert said["mcp"].startswith(name[-1])
    for one in said["transports"].values():
        assert (one["leaks"], one["wrong"]) == ([], [])
        assert one["calls"] >= 11
