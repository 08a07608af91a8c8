"""Whether Ray is used, and which cluster: said before anything is started."""

from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from each_row import each_row
from ports import own_port

from dreamgym_kit import errors
from dreamgym_kit.adapters.engines.ray_cluster import checked_address, usable
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.run import run
from dreamgym_kit.adapters.langgraph.run.workers import host_of
from dreamgym_kit.errors import MissingExtra, UserError
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import WorkersSettings
from dreamgym_kit.types import Task


@pytest.fixture(autouse=True)
def _no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@each_row("address", [None, "auto", "10.0.0.5:6379", "head.internal:6379", "[::1]:6379"])
def test_an_address_is_taken_as_it_is(address: str | None) -> None:
    assert checked_address(address) == address


@each_row("address", ["", "head", "head:", ":6379", "head:port", "head:0", "head:65536"])
def test_an_address_without_host_or_port_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="write HOST:PORT, or auto"):
        checked_address(address)


def test_the_client_protocol_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(UserError, match=r'not supported.+workers.address = "auto".+ray job submit'):
        checked_address("ray://head:10001")


def test_a_cluster_that_the_environment_names_is_never_joined_silently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    with pytest.raises(UserError, match=r'RAY_ADDRESS is set \(head:6379\): set workers.address = "auto"'):
        checked_address(None)
    assert checked_address("auto") == "auto"


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None if name == "ray" else find_spec(name))
    with pytest.raises(
        MissingExtra, match=r"workers.backend = .ray. needs an extra: pip install 'dreamgym-kit\[ray\]'"
    ):
        host_of(WorkersSettings("ray", 2), 2)


def test_an_address_is_for_ray_alone() -> None:
    with pytest.raises(UserError, match=r'workers.address = "head:6379" needs workers.backend'):
        host_of(WorkersSettings("local", 2, "head:6379"), 2)


@each_row(
    ("said", "why"),
    [
        (
            WorkersSettings("local", 0, "head:6379"),
            'workers.address = "head:6379" needs workers.backend = "ray"',
        ),
        (WorkersSettings("dask"), "unknown engine 'dask'. Use local or ray"),
        (WorkersSettings("ray", 2, "ray://head:10001"), "the client protocol is not supported"),
    ],
)
async def test_an_engine_that_cannot_be_used_is_refused_before_a_run_directory_is_made(
    tmp_path: Path, said: WorkersSettings, why: str
) -> None:
    settings = replace(parse_settings("", path=tmp_path / "dreamgym.toml"), workers=said)
    request = RunRequest(graph="no_such_module:graph", tasks=[Task("a", {})], settings=settings)
    with pytest.raises(UserError, match=why):
        await run(request, events=NoEvents())
    assert list(tmp_path.iterdir()) == []


def test_ray_always_has_workers() -> None:
    assert WorkersSettings("ray").elsewhere >= 1
    assert WorkersSettings("ray", 3).elsewhere == WorkersSettings("local", 3).elsewhere == 3
    assert WorkersSettings("local").elsewhere == 0


def test_where_nobody_listens_it_is_said_at_once() -> None:
    address = f"127.0.0.1:{own_port()}"
    with pytest.raises(
        UserError, match=rf"workers.address {address}: no Ray cluster answers there \(.+refused\)"
    ):
        usable(address)


def test_what_a_run_would_do_is_told_without_doing_it() -> None:
    if find_spec("ray") is None:
        pytest.skip("the extra `ray` is not installed")
    assert usable(None) == f"{version('ray')}; a run starts a cluster of its own on this machine"
    assert usable("auto") == f"{version('ray')}; a run joins the cluster at auto"
