"""V3: a replica is killed during a run of 32 episodes: none is lost, and none counts as a failure for it."""

import threading
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra train is not installed")

from bars.killed_server import SIBLINGS, TASKS, run
from nano_double import write_double
from served.starter import ENVIRON, POLICY, launched, started_together
from vllm_double import VllmDouble

from dreamgym_kit.adapters.models import endpoint
from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint
from dreamgym_kit.adapters.models.vllm.launch import Role, VllmServer
from dreamgym_kit.guard.egress import exempt
from dreamgym_kit.settings.schema import ServeSettings


@pytest.mark.slow
def test_v3_a_replica_that_dies_during_32_episodes_changes_no_episode(tmp_path: Path) -> None:
    undisturbed, disturbed = twice(tmp_path)
    print(f"V3: {changed(undisturbed, disturbed)} of {len(undisturbed)} episodes are others")
    assert len(disturbed) == TASKS * SIBLINGS
    assert disturbed == undisturbed


@pytest.mark.slow
def test_v3_a_client_that_goes_on_asking_the_dead_replica_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered = OpenAIEndpoint._ordered
    monkeypatch.setattr(OpenAIEndpoint, "_ordered", lambda *said: ordered(*said)[:1])
    monkeypatch.setattr(endpoint, "_REST_S", 0.0)
    assert changed(*twice(tmp_path)) > 0


def twice(folder: Path) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """The run undisturbed, and with one of two replicas killed in the middle."""
    model = write_double(folder / "model")
    servers = [VllmDouble(model), VllmDouble(model)]
    try:
        urls = [server.url for server in servers]
        undisturbed = run(folder / "whole", urls, "policy-v0")
        servers[1].dies_after = len(servers[1].asked) + 8  # those of the check among them
        disturbed = run(folder / "killed", urls, "policy-v0")
        assert servers[1].killed
    finally:
        for server in servers:
            server.close()
    return undisturbed, disturbed


def changed(undisturbed: list[tuple[str, ...]], disturbed: list[tuple[str, ...]]) -> int:
    """Episodes that are not there, or are others."""
    return len(set(undisturbed) - set(disturbed))


@pytest.mark.vllm
@pytest.mark.nightly
def test_v3_a_real_vllm_killed_during_32_episodes_changes_no_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    logs = tmp_path / "first.log", tmp_path / "second.log"
    launches = {
        log: launched(Role.POLICY, POLICY, name="nano", wanted=ServeSettings(lora_rank=8)) for log in logs
    }
    with started_together(launches) as (first, second):
        urls = [f"{server.launch.url}/v1" for server in (first, second)]
        more = 'key_env = "VLLM_API_KEY"'
        undisturbed = run(tmp_path / "whole", urls, "nano", more=more)
        over, until = threading.Event(), chats_in(logs[1]) + 6
        killer = threading.Thread(target=kill_in_the_middle, args=(second, logs[1], until, over), daemon=True)
        killer.start()
        try:
            disturbed = run(tmp_path / "killed", urls, "nano", more=more)
        finally:
            over.set()
        killer.join(60)
        assert second.process.code is not None, "it was never asked"
    assert len(undisturbed) == TASKS * SIBLINGS
    lost = TASKS * SIBLINGS - len(disturbed)
    failed = sum(one[1:3] != other[1:3] for one, other in zip(disturbed, undisturbed, strict=False))
    print(f"V3 real vLLM: {lost} lost, {failed} counted otherwise, of {len(undisturbed)}")
    assert (lost, failed) == (0, 0)


def chats_in(log: Path) -> int:
    """How many chats the server has answered."""
    return log.read_text(errors="replace").count("POST /v1/chat/completions")


def kill_in_the_middle(server: VllmServer, log: Path, until: int, over: threading.Event) -> None:
    """SIGKILL to the whole group when it has answered so many chats; not if the run is over before."""
    while chats_in(log) < until:
        if over.wait(0.02):  # expires: between two looks
            return
    with exempt():  # the test removes what the server leaves, not the agent
        server.kill()
