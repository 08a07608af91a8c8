"""What a real vLLM answers as the policy, held against the same weights in this process."""

import json
from collections.abc import Iterator

import pytest
from jsonschema import Draft202012Validator
from served.patience import look
from served.starter import POLICY, remote
from waiting import wait_until

from dreamgym_kit.adapters.models.local import LocalPolicy, open_local
from dreamgym_kit.adapters.models.remote import RemotePolicy
from dreamgym_kit.adapters.models.vllm.launch import VllmServer
from dreamgym_kit.adapters.models.vllm.looking import ServerMetrics, read_metrics
from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.errors import EndpointError

pytestmark = pytest.mark.vllm

ARGS = {
    "type": "object",
    "properties": {"order": {"type": "string", "maxLength": 8}, "speed": {"enum": ["slow", "fast"]}},
    "required": ["order", "speed"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {"name": "send", "description": "Send it.", "parameters": ARGS, "strict": True},
}
TEXTS = ("Please cancel my order o12. I am ann@example.org.", "Where is parcel P7?", "hello")


@pytest.fixture(scope="module")
def local() -> Iterator[LocalPolicy]:
    policy = open_local(POLICY)
    yield policy
    policy.close()


@pytest.fixture
def served(policy_server: VllmServer) -> Iterator[RemotePolicy]:
    with remote(policy_server) as policy:
        yield policy


def asked(text: str, **more) -> ChatRequest:
    said = {"temperature": 1.0, "max_tokens": 24, "seed": 5, "exact": True} | more
    return ChatRequest([ChatMessage("user", text)], **said)


@pytest.mark.parametrize("text", TEXTS)
async def test_a_real_server_says_the_greedy_tokens_of_the_same_weights_in_process(
    served: RemotePolicy, local: LocalPolicy, text: str
) -> None:
    there = await served.chat(asked(text, temperature=0.0))
    here = await local.chat(asked(text, temperature=0.0))
    assert there.tokens.prompt_ids == here.tokens.prompt_ids
    assert there.tokens.ids == here.tokens.ids
    assert there.content == here.content


async def test_a_real_servers_logprobs_are_aligned_and_those_of_the_weights(
    served: RemotePolicy, local: LocalPolicy
) -> None:
    for seed in range(3):
        tokens = (await served.chat(asked(TEXTS[0], seed=seed))).tokens
        whole = [*tokens.prompt_ids, *tokens.ids]
        assert len(tokens.ids) == len(tokens.logprobs) > 0
        ours, theirs = (await local.score([whole]))[0], (await served.score([whole]))[0]
        assert ours[len(tokens.prompt_ids) - 1 :] == pytest.approx(tokens.logprobs, abs=2e-3)
        assert theirs == pytest.approx(ours, abs=2e-3)


async def test_hot_sampling_brings_the_logprobs_of_what_was_sampled_from(
    served: RemotePolicy, local: LocalPolicy
) -> None:
    """At a temperature other than 1 the server's own default would tell those of temperature 1."""
    tokens = (await served.chat(asked(TEXTS[0], temperature=2.0))).tokens
    at_one = (await served.score([[*tokens.prompt_ids, *tokens.ids]]))[0][len(tokens.prompt_ids) - 1 :]
    assert tokens.logprobs != pytest.approx(at_one, abs=0.05)


async def test_a_real_server_holds_a_strict_tools_schema_and_leaves_its_words_unsampled(
    served: RemotePolicy,
) -> None:
    for choice in ("required", "send"):
        request = asked("send it", tools=[TOOL], tool_choice=choice, max_tokens=200, parallel_calls=False)
        reply = await served.chat(request)
        (call,) = reply.tool_calls
        assert call.name == "send"
        Draft202012Validator(ARGS).validate(json.loads(call.args))
        assert reply.tokens.constrained  # and so is not trained on


async def test_a_prompt_over_the_real_servers_context_is_told_as_that(served: RemotePolicy) -> None:
    with pytest.raises(EndpointError) as refused:
        await served.chat(asked("x" * 5000))
    assert (refused.value.kind, refused.value.retryable) == ("context", False)


async def test_a_real_server_with_another_key_is_asked_once(policy_server: VllmServer) -> None:
    with remote(policy_server, attempts=3, environ={"VLLM_API_KEY": "sk-wrong"}) as stranger:
        with pytest.raises(EndpointError, match="401") as refused:
            await stranger.chat(asked("hello"))
        assert stranger._endpoint.counts.requests == 1
    assert refused.value.kind == "unauthorized"
    assert "sk-wrong" not in str(refused.value)


async def test_a_paused_server_is_a_timeout_and_answers_once_it_goes_on(
    policy_server: VllmServer, served: RemotePolicy
) -> None:
    url, key = policy_server.launch.url, policy_server.launch.key
    assert look(url, "/pause?mode=abort", key=key, method="POST").status == 200
    try:
        soon_over = remote(policy_server, timeout_s=2.0)  # expires: the server is paused
        with soon_over as hasty, pytest.raises(EndpointError) as late:
            await hasty.chat(asked("hello"))
        assert (late.value.kind in ("timeout", "server"), late.value.retryable) == (True, True)
    finally:
        assert look(url, "/resume", key=key, method="POST").status == 200
    assert (await served.chat(asked("hello"))).completion_tokens > 0


async def test_the_real_prefix_cache_serves_siblings_and_can_be_emptied(
    policy_server: VllmServer, served: RemotePolicy
) -> None:
    long = "My order is late and I want to know where it is. " * 6
    before, again = [await served.chat(asked(long, seed=seed)) for seed in (1, 2)]
    assert again.cached_tokens >= 0.7 * again.prompt_tokens > before.cached_tokens
    url, key = policy_server.launch.url, policy_server.launch.key
    emptied = look(url, "/reset_prefix_cache", key=key, method="POST")
    assert (emptied.status, json.loads(emptied.text)["success"]) == (200, True)
    assert (await served.chat(asked(long, seed=3))).cached_tokens == 0

    def idle() -> ServerMetrics | None:
        """What it counts once nothing runs: it sends an answer before it counts it as ended."""
        counted = read_metrics(look(url, "/metrics", key=key).text)
        return counted if counted is not None and not (counted.running or counted.waiting) else None

    counted = wait_until(idle, "an idle server")
    assert counted.prompt_tokens >= before.prompt_tokens + again.prompt_tokens
    assert 0 < counted.cached_tokens < counted.looked_up_tokens
