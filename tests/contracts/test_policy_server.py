"""What every `PolicyServer` promises: in this process, behind HTTP, or a real vLLM."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from nano_double import write_double
from served.starter import launched, started
from served.starter import remote as asked_over_http
from vllm_double import VllmDouble

from dreamgym_kit.adapters.models.local import open_local
from dreamgym_kit.adapters.models.remote import RemotePolicy, open_remote
from dreamgym_kit.adapters.models.vllm.launch import Role, VllmServer
from dreamgym_kit.chat import ChatMessage, ChatRequest, ToolRequest
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.interfaces import PolicyServer
from dreamgym_kit.settings.schema import PolicySettings, ServeSettings

TOOL = {
    "type": "function",
    "function": {
        "name": "get_order",
        "description": "Look an order up.",
        "parameters": {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]},
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="the extra train is not installed")
    return write_double(tmp_path_factory.mktemp("model"), context=512, head=32)


@pytest.fixture(scope="module")
def vllm(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    launch = launched(Role.POLICY, folder, name="policy-v0", wanted=ServeSettings(lora_rank=8))
    with started(launch, tmp_path_factory.mktemp("vllm") / "server.log") as server:
        yield server


@pytest.fixture
def server(folder: Path) -> Iterator[VllmDouble]:
    server = VllmDouble(folder)
    yield server
    server.close()


VLLM = pytest.param("vllm", marks=[pytest.mark.vllm, pytest.mark.nightly])


@pytest.fixture(params=["local", "remote", VLLM])
async def policy(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[PolicyServer]:
    if request.param == "vllm":
        with asked_over_http(request.getfixturevalue("vllm"), attempts=3) as policy:
            yield policy
            if policy.version != "policy-v0":
                await policy.load(folder, "policy-v0")  # as it was found
        return
    policy = open_local(folder) if request.param == "local" else remote(request.getfixturevalue("server"))
    yield policy
    policy.close()


def remote(server: VllmDouble) -> RemotePolicy:
    return open_remote(PolicySettings(model=server.name, urls=(server.url,)), source="policy")


def ask(text: str = "where is my order?", **more) -> ChatRequest:
    asked = {"temperature": 1.0, "max_tokens": 24, "seed": 3, "exact": True} | more
    return ChatRequest([ChatMessage("system", "You help."), ChatMessage("user", text)], **asked)


async def test_an_exact_answer_has_a_logprob_for_each_token_and_the_weights_name(policy) -> None:
    assert isinstance(policy, PolicyServer)
    reply = await policy.chat(ask())
    tokens = reply.tokens
    assert len(tokens.ids) == len(tokens.logprobs) == reply.completion_tokens > 0
    assert len(tokens.prompt_ids) == reply.prompt_tokens
    assert all(one <= 0 for one in tokens.logprobs)
    assert tokens.version == policy.version
    assert not tokens.constrained
    assert (await policy.chat(ask(exact=False))).tokens is None


async def test_sampled_logprobs_are_those_of_the_weights(policy) -> None:
    for seed in range(4):
        tokens = (await policy.chat(ask(seed=seed))).tokens
        scored = (await policy.score([[*tokens.prompt_ids, *tokens.ids]]))[0]
        assert scored[len(tokens.prompt_ids) - 1 :] == pytest.approx(list(tokens.logprobs), abs=1e-4)


async def test_equal_requests_get_equal_answers_and_seeds_differ(policy) -> None:
    first, again, other = [(await policy.chat(ask(seed=seed))).tokens.ids for seed in (3, 3, 4)]
    assert first == again != other
    cold = [(await policy.chat(ask(seed=seed, temperature=0.0))).tokens.ids for seed in (3, 4)]
    assert cold[0] == cold[1]


async def test_an_answer_ends_where_it_has_to(policy) -> None:
    short = await policy.chat(ask(max_tokens=2))
    assert (short.finish_reason, short.completion_tokens) == ("length", 2)
    long = await policy.chat(ask(max_tokens=60))
    said = next(one for one in long.content if one.isascii() and one.isprintable())
    cut = await policy.chat(ask(max_tokens=60, stop=(said,)))
    assert (cut.finish_reason, cut.content) == ("stop", long.content[: long.content.index(said)])
    assert cut.tokens.ids == long.tokens.ids[: len(cut.tokens.ids)]


async def test_a_prompt_that_leaves_no_room_is_no_answer(policy) -> None:
    with pytest.raises(EndpointError, match="context") as refused:
        await policy.chat(ask("x" * 600))
    assert (refused.value.kind, refused.value.retryable) == ("context", False)


async def test_many_at_once_say_what_each_says_alone(policy) -> None:
    requests = [ask(f"order {number}?", seed=number, affinity=f"e{number}") for number in range(12)]
    together = await asyncio.gather(*[policy.chat(one) for one in requests])
    for one, reply in zip(requests, together, strict=True):
        alone = await policy.chat(one)
        assert alone.tokens.ids == reply.tokens.ids
        assert alone.tokens.logprobs == pytest.approx(reply.tokens.logprobs, abs=1e-5)


async def test_new_weights_answer_from_then_on_and_wrong_ones_change_nothing(policy, tmp_path: Path) -> None:
    before = await policy.chat(ask())
    with pytest.raises(UserError):
        await policy.load(tmp_path / "none", "v9")
    assert (await policy.chat(ask())).tokens == before.tokens
    other = write_double(tmp_path / "other", seed=5, context=512, head=32)
    await policy.load(other, "v1")
    after = (await policy.chat(ask())).tokens
    assert (policy.version, after.version) == ("v1", "v1")
    assert after.logprobs != before.tokens.logprobs
    scored = (await policy.score([[*after.prompt_ids, *after.ids]]))[0]
    assert scored[len(after.prompt_ids) - 1 :] == pytest.approx(list(after.logprobs), abs=1e-4)


async def test_a_forced_call_comes_back_as_a_call_and_is_marked(policy) -> None:
    reply = await policy.chat(ask(tools=[TOOL], tool_choice="get_order", max_tokens=200, seed=1))
    assert reply.tokens.constrained
    if reply.finish_reason != "length":
        assert [call.name for call in reply.tool_calls] == ["get_order"]


async def test_calls_and_their_answers_are_part_of_the_prompt(policy) -> None:
    said = [
        ChatMessage("user", "where?"),
        ChatMessage("assistant", "", (ToolRequest("get_order", '{"order": "O-7"}', "call_1"),)),
        ChatMessage("tool", '{"status": "sent"}', call_id="call_1", name="get_order"),
    ]
    asked = [ChatRequest(said[:end], tools=[TOOL], max_tokens=2, seed=1, exact=True) for end in (1, 3)]
    first, later = [(await policy.chat(one)).tokens.prompt_ids for one in asked]
    assert len(later) > len(first) + 20


async def test_an_episode_may_be_announced(policy) -> None:
    async with policy.episode("e1"):
        assert (await policy.chat(ask(affinity="e1"))).tokens.ids
