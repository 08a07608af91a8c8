"""`train` with its policy behind a real vLLM, its episodes collected in workers: what is served learns."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="the extra train is not installed")

from served.starter import KEY, POLICY, remote
from training.real_parts import project, run

from dreamgym_kit.adapters.models.vllm.launch import VllmServer

pytestmark = [pytest.mark.vllm, pytest.mark.nightly]
CLOSE = 1e-3  # nats: float32 here and there


@pytest.fixture
def served(policy_server: VllmServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = project(tmp_path)
    launch = policy_server.launch
    learns = (
        f'model = "{launch.name}"\nurls = ["{launch.url}/v1"]\nweights = "{POLICY}"\nkey_env = "VLLM_API_KEY"'
    )
    said = (folder / "dreamgym.toml").read_text()
    (folder / "dreamgym.toml").write_text(
        said.replace('model = "policy"', learns).replace("lr = 0.001", "lr = 0.0001")
    )
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    yield folder
    with remote(policy_server, attempts=3) as policy:
        asyncio.run(policy.load(POLICY, "as-it-was-found"))


@pytest.mark.parametrize("lora", [False, True])
def test_a_training_brings_it_weights_and_is_answered_by_them(served: Path, lora: bool) -> None:
    if lora:
        said = (served / "dreamgym.toml").read_text()
        (served / "dreamgym.toml").write_text(said.replace("[train]\n", "[train]\nlora_rank = 4\n"))
    done = run(served, "train", "--steps", "2", "--set", "workers.count=2", "--json")
    assert done.returncode == 0, done.stderr
    assert "open before the dream" not in done.stderr
    (kept,) = (served / "runs").iterdir()
    steps = [json.loads(line) for line in (kept / "steps.jsonl").read_text().splitlines()]
    assert [(one["facts"]["inconclusive"], one["canary_gap"] < CLOSE) for one in steps] == [(0, True)] * 2
    assert max(one["logprob_gap"] for one in steps) < CLOSE
    assert KEY.encode() not in b"".join(one.read_bytes() for one in served.rglob("*") if one.is_file())
    assert os.environ["VLLM_API_KEY"] == KEY
