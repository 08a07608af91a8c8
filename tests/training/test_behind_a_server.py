"""`train` with the policy behind a vLLM server: weights go there after each step, and are proven there."""

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="the extra train is not installed")

from training.real_parts import begun, command, environment, project, run
from vllm_double import VllmDouble
from waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[VllmDouble]:
    server = VllmDouble(project(tmp_path) / "policy")
    served = f'model = "{server.name}"\nurls = ["{server.url}"]\nweights = "policy"'
    said = (tmp_path / "dreamgym.toml").read_text().replace('model = "policy"', served)
    (tmp_path / "dreamgym.toml").write_text(said)
    yield server
    server.close()


def loaded(server: VllmDouble, route: str) -> list[str]:
    told = [asked for path, asked in server.managed if path == route]
    return [Path(one["kwargs"]["weights_path"]).name for one in told]


def test_a_training_brings_its_weights_to_the_server_after_each_step(
    tmp_path: Path, server: VllmDouble
) -> None:
    done = run(tmp_path, "train", "--steps", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kept"] == 2
    assert loaded(server, "/collective_rpc") == ["step-000000", "step-000001", "step-000002"]
    assert server.weight_version == "step-000002"
    (run_folder,) = (tmp_path / "runs").iterdir()
    steps = [json.loads(line) for line in (run_folder / "steps.jsonl").read_text().splitlines()]
    assert [one["canary_gap"] < 1e-4 for one in steps] == [True, True]
    (row,) = json.loads(done.stdout)["servers"]
    assert row["server"] == server.url
    assert min(row["prompt_tokens"], row["generated_tokens"]) > 0
    shown = run(tmp_path, "report", str(run_folder))
    assert f"{server.url} read {row['prompt_tokens']:,} tokens" in " ".join(shown.stdout.split())


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["whole", "adapter"])
def test_its_episodes_are_collected_in_workers_as_in_one_process_also_after_a_stop(
    tmp_path: Path, server: VllmDouble, kind: str
) -> None:
    """Each worker asks the server for the weights that the training brought there last."""
    if kind == "adapter":
        server.off = {"dev"}
        said = (tmp_path / "dreamgym.toml").read_text().replace("[train]\n", "[train]\nlora_rank = 4\n")
        (tmp_path / "dreamgym.toml").write_text(said)
    done = run(tmp_path, "train", "--steps", "2", "--set", "runs=here", "--json")
    assert done.returncode == 0, done.stderr
    here = learned(tmp_path / "here")

    server.asked.clear()
    server.managed.clear()
    stopped_after_a_step(
        server, tmp_path, "train", "--steps", "2", "--set", "runs=there", "--set", "workers.count=2"
    )
    (folder,) = (tmp_path / "there").iterdir()
    done = run(
        tmp_path, "train", "--resume", str(folder), "--steps", "2", "--set", "workers.count=2", "--json"
    )
    assert done.returncode == 0, done.stderr
    there = learned(tmp_path / "there")
    assert [facts for facts, _ in there] == [facts for facts, _ in here]
    # who shared a batch of the server differs
    assert [loss for _, loss in there] == pytest.approx([loss for _, loss in here], abs=1e-6)
    names = {one["model"].rpartition(".")[0] for one in server.asked if one["max_tokens"] > 1}
    assert (names == {""}) == (kind == "whole")


def learned(runs: Path) -> list[tuple[object, float]]:
    """What was collected in each step, and its loss."""
    (folder,) = runs.iterdir()
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    assert [one["canary_gap"] < 1e-4 for one in steps] == [True, True]
    return [(one["facts"], one["loss"]) for one in steps]


def stopped_after_a_step(server: VllmDouble, folder: Path, *arguments: str) -> None:
    """Stop it as a terminal does once its first step is kept: what its second asks is held up for that."""
    asking, stopping = threading.Event(), threading.Event()

    def wait(body: dict[str, Any]) -> None:
        an_episode_asks = body["object"] == "chat.completion" and body["usage"]["completion_tokens"] > 1
        if an_episode_asks and any("step-000001" in str(told) for _, told in server.managed):
            asking.set()
            stopping.wait()

    server.spoil = wait
    with begun(command(folder, *arguments), folder, environment()) as running:
        assert running.stderr is not None
        try:
            wait_until(lambda: asking.is_set() or running.poll() is not None, "the second step", within_s=600)
            running.send_signal(signal.SIGINT)
            assert any("stopping (SIGINT)" in line for line in running.stderr)
        finally:
            stopping.set()
        _, said = running.communicate(timeout=600)
    assert running.returncode == 130, said
    (kept,) = (folder / next(one for one in arguments if one.startswith("runs=")).removeprefix("runs=")).glob(
        "*/steps.jsonl"
    )
    assert kept.read_text().count("\n") == 1


@pytest.mark.nightly
def test_a_training_of_an_adapter_loads_it_under_a_new_name_each_time(
    tmp_path: Path, server: VllmDouble
) -> None:
    server.off = {"dev"}
    said = (tmp_path / "dreamgym.toml").read_text().replace("[train]\n", "[train]\nlora_rank = 4\n")
    (tmp_path / "dreamgym.toml").write_text(said)
    done = run(tmp_path, "train", "--steps", "2", "--json")
    assert done.returncode == 0, done.stderr
    names = [asked["lora_name"] for path, asked in server.managed if path == "/v1/load_lora_adapter"]
    assert [name.rpartition(".")[0] for name in names] == [f"policy-v0.step-{step:06d}" for step in range(3)]
    assert list(server.adapters) == names[-1:]


@pytest.mark.nightly
def test_a_server_that_stops_taking_weights_ends_the_training_and_that_step_is_not_kept(
    tmp_path: Path, server: VllmDouble
) -> None:
    whole = server.policy.load

    async def once(weights: Path, version: str) -> None:
        await whole(weights, version)
        server.drops = {"/collective_rpc"}

    server.policy.load = once  # type: ignore[method-assign]
    done = run(tmp_path, "train", "--steps", "2")
    assert done.returncode == 1, done.stderr
    assert "step-000001 is not served everywhere" in done.stdout + done.stderr


def test_a_server_that_takes_no_weights_is_named_before_anything_runs(
    tmp_path: Path, server: VllmDouble
) -> None:
    server.off = {"dev", "lora"}
    done = run(tmp_path, "train", "--steps", "1")
    assert done.returncode == 2
    assert (
        f"{server.url} takes no new weights while it runs; start it with VLLM_SERVER_DEV_MODE=1"
        in done.stderr
    )
    assert not server.asked or all(one["max_tokens"] == 1 for one in server.asked)
