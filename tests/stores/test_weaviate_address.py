"""Addresses of buffers on Weaviate: which server, whose key, and which server of one's own is started."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from each_row import each_row
from ports import own_port
from weaviate_double import WeaviateDouble
from weaviate_double.binary import binary_double

from dreamgym_kit.adapters.stores.factory import open_store
from dreamgym_kit.adapters.stores.weaviate import target_of
from dreamgym_kit.adapters.stores.weaviate_server import ServerTarget
from dreamgym_kit.errors import StoreError, StoreUnavailable, UnknownName, UserError
from dreamgym_kit.rollout.atomic_files import RunLock
from dreamgym_kit.settings.buffer_url import Address, place_of
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.settings.schema import ReplaySettings, Settings
from dreamgym_kit.types import Answer, Call, Effect, Transition


def address(text: str) -> Address:
    place = place_of(text, Path("/base"))
    assert isinstance(place, Address)
    return place


def row(step: int) -> Transition:
    return Transition(Call("get", {"id": step}), Answer("lamp"), Effect.READ, "t.1", step)


@each_row(
    ("text", "target"),
    [
        ("weaviate://db", ServerTarget("db", 8080, "db", 50051)),
        ("weaviate://db:9000?grpc=9001", ServerTarget("db", 9000, "db", 9001)),
        ("weaviate://db:80?grpc=rpc.db:80", ServerTarget("db", 80, "rpc.db", 80)),
        ("weaviates://db?grpc=50051", ServerTarget("db", 443, "db", 50051, True)),
        (
            "weaviates://x1.c0.europe.gcp.weaviate.cloud",
            ServerTarget(
                "x1.c0.europe.gcp.weaviate.cloud", 443, "grpc-x1.c0.europe.gcp.weaviate.cloud", 443, True
            ),
        ),
        (
            "weaviates://shop.weaviate.network",
            ServerTarget("shop.weaviate.network", 443, "shop.grpc.weaviate.network", 443, True),
        ),
        ("weaviate://[::1]?grpc=[::1]:9001", ServerTarget("::1", 8080, "::1", 9001)),
    ],
)
def test_an_address_names_both_ports(text: str, target: ServerTarget) -> None:
    assert target_of(address(text)) == target


@each_row("said", ["grpc=x", "grpc=99999", "grpc=:1", "grpc=8080"])
def test_a_grpc_address_that_is_none_is_refused(said: str) -> None:
    with pytest.raises(UserError, match="grpc"):
        target_of(address(f"weaviate://db?{said}"))


@each_row(
    ("said", "told"),
    [
        ("consistency=most", "consistency must be one, quorum or all"),
        ("replicas=0", "replicas must be from 1 to 99"),
        ("timeout=soon", "timeout must be from 1 to 600"),
        ("tenannt=a", "did you mean 'tenant'"),
    ],
)
def test_options_are_checked_before_anything_is_asked(said: str, told: str) -> None:
    with pytest.raises((UserError, UnknownName), match=told):
        open_store(address(f"weaviate://127.0.0.1:9?{said}"), Settings())


def test_the_key_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dreamgym.toml").write_text('[replay]\nweaviate_key_env = "OUR_KEY"\n')
    settings = load_settings(tmp_path / "dreamgym.toml", environ={})
    with WeaviateDouble(key="k-1") as double:
        place = address(f"{double.address}&tenant=shop&timeout=60")
        monkeypatch.setenv("WEAVIATE_API_KEY", "k-1")
        store = open_store(place, Settings(), read_only=False)
        assert store.put([row(1)]) == 1
        store.close()
        monkeypatch.delenv("WEAVIATE_API_KEY")
        with pytest.raises(UserError, match=r"dreamgym\.toml:2: .* OUR_KEY is not set"):
            open_store(place, settings)
        monkeypatch.setenv("OUR_KEY", "k-2")
        with pytest.raises(StoreError, match="check OUR_KEY") as told:
            open_store(place, settings)
        assert "k-2" not in str(told.value)
        monkeypatch.setenv("OUR_KEY", "k-1")
        again = open_store(place, settings)
        assert list(again.scan()) == [row(1)]
        again.close()


def test_the_key_comes_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEAVIATE_API_KEY", "that of another server")
    (tmp_path / "dreamgym.toml").write_text('[replay]\nweaviate_key_file = "key.txt"\n')
    settings = load_settings(tmp_path / "dreamgym.toml", environ={})
    with WeaviateDouble(key="k-file-1") as double:
        place = address(f"{double.address}&tenant=shop&timeout=60")
        with pytest.raises(UserError, match=r"dreamgym\.toml:2: .*key\.txt cannot be read"):
            open_store(place, settings)
        (tmp_path / "key.txt").write_text("k-file-2\n")
        with pytest.raises(StoreError, match=r"check .*key\.txt") as told:
            open_store(place, settings)
        assert "k-file-2" not in str(told.value)
        (tmp_path / "key.txt").write_text("k-file-1\n")
        store = open_store(place, settings, read_only=False)
        assert store.put([row(1)]) == 1
        store.close()


def test_a_key_from_two_places_is_refused() -> None:
    both = Settings(replay=ReplaySettings(weaviate_key_env="A_KEY", weaviate_key_file="key.txt"))
    with pytest.raises(UserError, match="name one of them"):
        open_store(address("weaviate://127.0.0.1:9"), both)


def test_no_server_is_told_by_its_address() -> None:
    place = address(f"weaviate://127.0.0.1:{own_port()}?grpc={own_port()}&timeout=2")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1"):
        open_store(place, Settings())


@pytest.mark.slow
def test_a_server_of_ones_own_runs_as_long_as_its_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not to be passed on")
    monkeypatch.setenv("WEAVIATE_BINARY", str(binary_double(tmp_path)))
    place = address(f"weaviate+embedded:{tmp_path / 'data'}?tenant=shop")
    store = open_store(place, Settings(), read_only=False)
    assert store.put([row(1)]) == 1
    with pytest.raises(StoreError, match=r"a server already runs on"):
        open_store(place, Settings())
    store.close()
    argv, seen = json.loads((tmp_path / "data" / "data.json").read_text())
    assert argv[:2] == ["--host", "127.0.0.1"]
    assert seen == {"DISABLE_TELEMETRY": "true", "OPENAI_API_KEY": None}
    RunLock(tmp_path / "data" / "server.lock").close()  # nobody holds it any more


OPENS = """
import sys, threading, time
from pathlib import Path
from dreamgym_kit.adapters.stores.factory import open_store
from dreamgym_kit.settings.buffer_url import place_of
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition
def opened():
    store = open_store(place_of(sys.argv[1], Path()), Settings(), read_only=False)
    seen = Call("get_order", {"id": 1}), Answer("lamp"), Effect.READ, "t.1", 1, Environment("shop")
    store.put([Transition(*seen)])
    print("put", flush=True)
    time.sleep(600)  # killed long before
if sys.argv[2] == "main": opened()
thread = threading.Thread(target=opened)
thread.start()
thread.join()
"""


def _runs(pid: int) -> bool:
    """Whether a process runs; one that ended stays in /proc until its adopter has read its code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not end a program with its parent")
@each_row("thread", ["main", "another"])  # of the latter the server outlives its parent
def test_embedded_server_ends_with_its_parent_or_is_stopped_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: str
) -> None:
    monkeypatch.setenv("WEAVIATE_BINARY", str(binary_double(tmp_path)))
    text = f"weaviate+embedded:{tmp_path / thread}?tenant=shop"
    parent = subprocess.Popen([sys.executable, "-c", OPENS, text, thread], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "put\n"
    server = json.loads((tmp_path / thread / "server.lock").read_text())["pid"]
    assert _runs(server)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    while thread == "main" and _runs(server):  # else the test's own time ends it
        time.sleep(0.05)
    assert _runs(server) is (thread != "main")
    store = open_store(address(text), Settings(), read_only=False)
    assert not _runs(server)
    assert store.count() == 1
    os.kill(json.loads((tmp_path / thread / "server.lock").read_text())["pid"], signal.SIGKILL)
    with pytest.raises(StoreUnavailable, match=r"its server ended \(code -9\)"):
        store.count()
    store.close()


def test_a_missing_or_failing_binary_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = address(f"weaviate+embedded:{tmp_path / 'data'}")
    monkeypatch.delenv("WEAVIATE_BINARY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(StoreError, match="the Weaviate binary was not found; get it"):
        open_store(place, Settings())
    monkeypatch.setenv("WEAVIATE_BINARY", str(tmp_path / "none"))
    with pytest.raises(StoreError, match="is not executable"):
        open_store(place, Settings())
    failing = tmp_path / "failing"
    failing.write_text("#!/bin/sh\necho no disk; exit 3\n")
    failing.chmod(0o755)
    monkeypatch.setenv("WEAVIATE_BINARY", str(failing))
    monkeypatch.setenv("PATH", os.defpath)
    with pytest.raises(StoreUnavailable, match=r"ended at once \(code 3\); see its log: .*server.log"):
        open_store(place, Settings())
    assert (tmp_path / "data" / "server.log").read_text() == "no disk\n"
    RunLock(tmp_path / "data" / "server.lock").close()  # nobody holds it any more
