"""New weights in a real vLLM: an adapter and a whole model give what transformers gives; what fails shows."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra train is not installed")

from models.adapted import adapted, moved, small
from served.starter import POLICY, launched, remote, started

from dreamgym_kit.adapters.models.remote import RemotePolicy
from dreamgym_kit.adapters.models.vllm.launch import Role, VllmServer
from dreamgym_kit.adapters.models.vllm.replica import Replica
from dreamgym_kit.adapters.models.vllm.weights import compute_expected
from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.errors import EndpointError, UserError

pytestmark = [pytest.mark.vllm, pytest.mark.nightly]

CLOSE = 1e-3  # nats: float32 here and there
TRIES = 5  # of each fault


@pytest.fixture
async def policy(policy_server: VllmServer) -> AsyncIterator[RemotePolicy]:
    with remote(policy_server, attempts=3) as policy:
        await asyncio.to_thread(policy.check, adapters=True)
        yield policy
        await policy.load(POLICY, "as-it-was-found")


def ask(seed: int) -> ChatRequest:
    said = [ChatMessage("user", "Please cancel my order o12.")]
    return ChatRequest(said, temperature=1.0, max_tokens=24, seed=seed, exact=True)


async def farthest(policy: RemotePolicy, folder: Path) -> float:
    """Nats between what the server samples and scores, and what transformers gives for the same tokens."""
    replies = [await policy.chat(ask(seed)) for seed in range(3)]
    rows = [[*one.tokens.prompt_ids, *one.tokens.ids] for one in replies]
    served = await policy.score(rows)
    far = 0.0
    for reply, row, told in zip(replies, rows, served, strict=True):
        here = compute_expected(folder, [row]).scores[0]
        sampled = zip(here[-len(reply.tokens.ids) :], reply.tokens.logprobs, strict=True)
        pairs = [*zip(here, told, strict=True), *sampled]
        far = max(far, *(abs(one - other) for one, other in pairs))
    return far


async def test_a_real_server_can_do_what_its_role_says(policy: RemotePolicy) -> None:
    (found,) = policy.features
    assert (found.token_ids, found.tools, found.generate, found.lora, found.dev) == (True,) * 5
    assert found.logprobs == "processed_logprobs"
    assert found.version
    assert found.models["nano"].root == str(POLICY)


async def test_a_whole_model_answers_as_transformers_does_and_nothing_old_is_cached(
    policy: RemotePolicy, tmp_path: Path
) -> None:
    for seed in range(2):
        folder = moved(POLICY, tmp_path / str(seed), seed=seed)
        await policy.load(folder, f"step-{seed:06d}")
        reply = await policy.chat(ask(0))
        assert (reply.tokens.version, reply.cached_tokens) == (f"step-{seed:06d}", 0)
        far = await farthest(policy, folder)
        print(f"full update {seed}: {far:.2g} nats")
        assert far < CLOSE


async def test_each_adapter_answers_as_transformers_does_under_a_name_of_its_own(
    policy: RemotePolicy, tmp_path: Path, policy_server: VllmServer
) -> None:
    names = set()
    for seed in range(3):
        folder = adapted(POLICY, tmp_path / str(seed), seed=seed)
        await policy.load(folder, f"step-{seed:06d}")
        names.add((await policy.chat(ask(0))).model)
        far = await farthest(policy, folder)
        print(f"adapter {seed}: {far:.2g} nats")
        assert far < CLOSE
    assert len(names) == 3
    await asyncio.to_thread(policy.check)
    (found,) = policy.features
    assert len(found.models) == 2  # the base and the last


@pytest.mark.parametrize("fault", ["not loaded", "half of it", "cached prompts kept"])
async def test_v1_a_real_server_that_says_200_and_answers_otherwise_is_caught(
    policy: RemotePolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    caught, before, right = 0, POLICY, Replica.reload
    await policy.load(POLICY, "before")
    for number in range(TRIES):
        new = moved(before, tmp_path / f"new-{number}", seed=number)
        half = moved(before, tmp_path / f"half-{number}", seed=number, half=True)

        async def nothing(_: Replica, *said: object) -> None:
            pass

        async def halfway(one: Replica, _: Path, half: Path = half) -> None:
            await right(one, half)

        with monkeypatch.context() as planted:
            if fault == "cached prompts kept":
                for name in ("pause", "resume", "reset_cache"):
                    planted.setattr(Replica, name, nothing)
            else:
                planted.setattr(Replica, "reload", nothing if fault == "not loaded" else halfway)
            with suppress(EndpointError):
                await policy.load(new, f"step-{number:06d}")
                continue
        with pytest.raises(EndpointError, match="is not served everywhere"):
            await policy.chat(ask(0))
        caught += 1
        await policy.load(new, f"step-{number:06d}")
        before = new
    print(f"V1 real vLLM, {fault}: caught {caught} of {TRIES}")
    assert caught == TRIES


async def test_a_directory_that_would_kill_the_engine_is_never_sent(
    policy: RemotePolicy, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="no such directory"):
        await policy.load(tmp_path / "none", "step-000001")
    assert (await policy.chat(ask(1))).tokens.version == "nano"


@pytest.fixture
def tied(tmp_path: Path) -> Iterator[tuple[Path, VllmServer]]:
    folder = small(tmp_path / "tied", tied=True)
    launch = launched(Role.POLICY, folder, name="tied")
    with started(launch, tmp_path / "server.log") as server:
        yield folder, server


async def test_tied_embeddings_on_a_cpu_keep_the_old_head_and_that_is_told(
    tied: tuple[Path, VllmServer], tmp_path: Path
) -> None:
    folder, server = tied
    with remote(server) as policy:
        await policy.load(folder, "step-000000")
        with pytest.raises(EndpointError, match=r"embeddings are tied, .* use LoRA \(\[train\] lora\)"):
            await policy.load(moved(folder, tmp_path / "new", seed=1), "step-000001")


async def test_a_real_server_started_anew_answers_nothing_before_it_has_the_present_weights(
    tmp_path: Path,
) -> None:
    """Nobody asks it meanwhile: neither a refused nor a broken connection tells."""
    new = moved(POLICY, tmp_path / "new", seed=1)
    launch = launched(Role.POLICY, POLICY, name="nano")
    with ExitStack() as clients:
        with started(launch, tmp_path / "first.log") as server:
            driver, follower = (clients.enter_context(remote(server, attempts=2)) for _ in range(2))
            await driver.load(new, "step-000001")
            await follower.follow(driver.spec())
            before = (await driver.chat(ask(1))).tokens
            assert (await follower.chat(ask(1))).tokens == before
        with started(launch, tmp_path / "second.log"):
            with pytest.raises(EndpointError, match="reports weights 'default'"):
                await follower.chat(ask(1))
            assert (await driver.chat(ask(1))).tokens == before
            assert await farthest(driver, new) < CLOSE
            assert (await follower.chat(ask(1))).tokens == before
