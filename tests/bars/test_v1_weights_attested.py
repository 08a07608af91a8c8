"""V1: a server with other weights, or one that a sync reached by half, is caught by canary log-probs."""

import asyncio
import random
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from each_row import each_row
from training.loop_doubles import Planted
from training.loop_run import QUICK, run_loop

from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.errors import EndpointError
from dreamgym_kit.settings.schema import AlarmSettings, PolicySettings
from dreamgym_kit.training import loop
from dreamgym_kit.trust.weight_check import attest

TRIES = 20
ASK = ChatRequest([ChatMessage("user", "hm")], max_tokens=2, seed=1, exact=True)


@each_row("fault", ["stale weights", "half a sync"])
def test_v1_a_sync_that_did_not_arrive_is_caught_every_time(tmp_path: Path, fault: str) -> None:
    caught = 0
    for seed in range(TRIES):
        at = 1 + seed % 5
        ran = run_loop(tmp_path / str(seed), replace(QUICK, steps=6, seed=seed), planted=Planted(fault, at))
        alarm = ran.trained.alarm
        caught += alarm is not None and (alarm.alarm, alarm.step) == ("stale_weights", at)
        assert max((step for step, _, _ in ran.collector.asked), default=0) <= at  # no rollout after it
    print(f"V1 {fault}: caught {caught} of {TRIES}")
    assert caught == TRIES


def scores(seed: int, moved: float = 0.0, noise: float = 0.0) -> list[list[float]]:
    dice, shaken = random.Random(seed), random.Random(seed + 1)
    return [
        [dice.uniform(-5, 0) + moved * dice.uniform(-1, 1) + noise * shaken.uniform(-1, 1) for _ in range(60)]
        for _ in range(4)
    ]


@each_row("moved", [1e-4, 1e-3, 1e-2])
def test_v1_a_tiny_step_that_is_missing_is_seen_though_it_is_within_the_bound(moved: float) -> None:
    before = scores(3)
    now = [[one + moved for one in row] for row in before]
    _, problem = attest([[one + 1e-6 for one in row] for row in before], now, before, most=0.2)
    assert problem
    gap, problem = attest([[one + 1e-6 for one in row] for row in now], now, before, most=0.2)
    assert not problem
    assert gap < 1e-5


def test_v1_a_server_in_16_bits_is_no_stale_one() -> None:
    before = scores(5)
    for seed in range(TRIES):
        dice = random.Random(seed)
        now = [[one + dice.uniform(-1e-3, 1e-3) for one in row] for row in before]
        served = [[one + dice.uniform(-0.05, 0.05) for one in row] for row in now]
        assert not attest(served, now, before, most=0.2)[1]


def test_v1_scores_that_are_no_numbers_or_too_few_are_no_proof() -> None:
    now = scores(1)
    assert attest(now[:-1], now, None, most=1.0)[1]
    assert attest([[float("nan")] * 60, *now[1:]], now, None, most=1.0)[1]
    assert not attest(now, now, now, most=0.0)[1]  # nothing moved, nothing to tell apart


def test_v1_an_attestation_that_trusts_the_version_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "attest", lambda *_, **__: (0.0, ""))
    ran = run_loop(tmp_path / "run", replace(QUICK, steps=3), planted=Planted("stale weights", 2))
    assert ran.trained.alarm is None or ran.trained.alarm.alarm != "stale_weights"


@pytest.mark.slow
@pytest.mark.parametrize("lr", [4e-5, 2e-4])
def test_v1_the_real_engine_with_the_weights_before_or_half_of_the_new_ones_is_caught(
    tmp_path: Path, lr: float
) -> None:
    """One step of Adam moves each weight by about its rate: as small as the first step of a warm-up."""
    torch = pytest.importorskip("torch", reason="the extra train is not installed")
    from nano_double import write_double
    from safetensors.torch import load_file, save_file

    from dreamgym_kit.adapters.models.folders import load_model
    from dreamgym_kit.adapters.models.local import open_local
    from dreamgym_kit.adapters.trainers.tensors import score

    old = write_double(tmp_path / "old", sharp=1.0)
    canaries = [[(7 * row + place) % 250 for place in range(80)] for row in range(4)]
    before = score(load_model(old), canaries)
    caught, gap = {"before": 0, "half": 0, "new": 0}, 0.0
    policy = open_local(old)
    try:
        for number in range(TRIES):
            torch.manual_seed(number)
            held = load_file(old / "model.safetensors")
            moved = {name: one + lr * torch.randn(one.shape).sign() for name, one in held.items()}
            half = {name: (moved if place % 2 else held)[name] for place, name in enumerate(sorted(held))}
            for name, tensors in (("new", moved), ("half", half)):
                shutil.copytree(old, tmp_path / name, dirs_exist_ok=True)
                save_file(tensors, tmp_path / name / "model.safetensors", metadata={"format": "pt"})
            now = score(load_model(tmp_path / "new"), canaries)
            for name, folder in (("before", old), ("half", tmp_path / "half"), ("new", tmp_path / "new")):
                asyncio.run(policy.load(folder, name))
                served = asyncio.run(policy.score(canaries))
                off, problem = attest(served, now, before, most=AlarmSettings().stale_weights)
                caught[name] += bool(problem)
                gap = max(gap, off) if name == "new" else gap
    finally:
        policy.close()
    print(f"V1 real engine, rate {lr:g}: {caught} of {TRIES}; the right weights' largest gap {gap:.2g} nats")
    assert caught["before"] == caught["half"] == TRIES
    assert caught["new"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        "other weights",
        *(pytest.param(one, marks=pytest.mark.nightly) for one in ("half of them", "nothing arrived")),
    ],
)
def test_v1_a_server_that_says_yes_and_has_other_weights_is_caught_and_nothing_is_answered(
    tmp_path: Path, fault: str
) -> None:
    """The client's own canaries, before the loop's; the weights move by as much as a step of Adam does."""
    pytest.importorskip("torch", reason="the extra train is not installed")
    from models.adapted import moved, small
    from vllm_double import VllmDouble

    from dreamgym_kit.adapters.models.remote import open_remote

    base = small(tmp_path / "base", sharp=1.0)
    server = VllmDouble(base)
    policy = open_remote(PolicySettings(model="policy-v0", urls=(server.url,)), source="test", attempts=1)
    caught, before = 0, base
    try:
        for number in range(TRIES):
            new = moved(before, tmp_path / f"new-{number}", seed=number)
            half = moved(before, tmp_path / f"half-{number}", seed=number, half=True)
            other = moved(before, tmp_path / f"other-{number}", seed=100 + number)
            server.swaps = {"other weights": other, "half of them": half}.get(fault)
            server.drops = {"/collective_rpc"} if fault == "nothing arrived" else set()
            with suppress(EndpointError):
                asyncio.run(policy.load(new, f"new-{number}"))
                continue
            with pytest.raises(EndpointError, match="nothing is answered until a load succeeds"):
                asyncio.run(policy.chat(ASK))
            caught += 1
            server.swaps, server.drops, before = None, set(), new
            asyncio.run(policy.load(new, f"new-{number}"))  # and the right ones are taken
    finally:
        policy.close()
        server.close()
    print(f"V1 {fault}, by the server's client: caught {caught} of {TRIES}")
    assert caught == TRIES
