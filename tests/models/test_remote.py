"""A policy behind HTTP: what is asked of the server, and answers that are none because tokens do not fit."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from each_row import each_row

pytest.importorskip("torch", reason="the extra train is not installed")

from nano_double import write_double
from vllm_double import VllmDouble

from dreamgym_kit.adapters.models.remote import RemotePolicy, open_remote
from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.settings.schema import PolicySettings

ASK = ChatRequest([ChatMessage("user", "hm")], temperature=1.0, max_tokens=8, seed=1, exact=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmDouble]:
    server = VllmDouble(write_double(tmp_path_factory.mktemp("model")))
    yield server
    server.close()


@pytest.fixture
def policy(server: VllmDouble) -> Iterator[RemotePolicy]:
    server.spoil = lambda body: None
    server.asked.clear()
    said = PolicySettings(model=server.name, urls=(server.url,))
    policy = open_remote(said, source="dreamgym.toml:3", attempts=2)
    yield policy
    policy.close()


async def test_an_exact_request_leaves_nothing_to_the_servers_defaults(policy, server) -> None:
    await policy.chat(ASK)
    (asked,) = server.asked
    said = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "seed": 1, "max_tokens": 8, "n": 1}
    tokens = {"logprobs": True, "return_token_ids": True, "return_tokens_as_token_ids": True}
    off = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    assert asked == said | tokens | off | {
        "model": "policy-v0",
        "messages": [{"role": "user", "content": "hm"}],
        "stream": False,
    }


def choice(body: dict[str, Any]) -> dict[str, Any]:
    return body["choices"][0]


def set_logprob(value: object) -> Callable[[dict[str, Any]], object]:
    return lambda body: choice(body)["logprobs"]["content"][0].update(logprob=value)


SPOILT = {
    "no_ids": (lambda body: choice(body).pop("token_ids"), "sent no token ids and log-probs"),
    "no_prompt_ids": (lambda body: body.pop("prompt_token_ids"), "sent no token ids and log-probs"),
    "no_logprobs": (lambda body: choice(body).update(logprobs=None), "sent no token ids and log-probs"),
    "one_too_few": (lambda body: choice(body)["logprobs"]["content"].pop(), "8 token ids and 7 log-probs"),
    "slipped": (
        lambda body: choice(body)["logprobs"]["content"].reverse(),
        "sent a log-prob of token_id:",
    ),
    "nothing": (
        lambda body: (choice(body).update(token_ids=[]), choice(body)["logprobs"].update(content=[])),
        "0 token ids",
    ),
    "minus_infinity": (set_logprob(-9999.0), "sent -9999.0 as a log-prob"),
    "above_zero": (set_logprob(0.5), "sent 0.5 as a log-prob"),
    "text": (set_logprob("nan"), "sent nan as a log-prob"),
    "true_ids": (lambda body: choice(body).update(token_ids=[True] * 8), "sent no token ids"),
}


@each_row("name", SPOILT)
async def test_tokens_that_do_not_fit_are_no_answer_and_asked_for_once(policy, server, name: str) -> None:
    server.asked.clear()
    server.spoil, said = SPOILT[name]
    with pytest.raises(EndpointError, match=said) as failed:
        await policy.chat(ASK)
    assert (failed.value.kind, failed.value.retryable, len(server.asked)) == ("malformed", False, 1)


async def test_an_aborted_answer_is_asked_for_again_and_never_given(policy, server) -> None:
    server.spoil = lambda body: choice(body).update(finish_reason="abort")
    with pytest.raises(EndpointError, match="stopped before its answer ended"):
        await policy.chat(ASK)
    assert len(server.asked) == 2


async def test_scores_without_prompt_logprobs_are_no_scores(policy, server) -> None:
    server.spoil = lambda body: choice(body).pop("prompt_logprobs", None)
    with pytest.raises(EndpointError, match="sent no prompt_logprobs"):
        await policy.score([[1, 2, 3]])
    server.spoil = lambda body: choice(body)["prompt_logprobs"].reverse()
    with pytest.raises(EndpointError, match="no log-prob of token"):
        await policy.score([[1, 2, 3]])
    assert await policy.score([[5]]) == [[]]


@each_row(
    ("said", "why"),
    [
        (PolicySettings(urls=("http://h/v1",)), "needs the server's urls and the model's served name"),
        (PolicySettings(model="m", urls=("http://169.254.169.254/v1",)), "metadata service"),
        (PolicySettings(model="m", urls=("http://h/v1",), key_env="NO_SUCH"), "NO_SUCH is not set"),
    ],
)
def test_settings_that_name_no_server_say_what_is_missing(said: PolicySettings, why: str) -> None:
    with pytest.raises(UserError, match=why) as refused:
        open_remote(said, source="dreamgym.toml:3", environ={})
    assert str(refused.value).startswith("dreamgym.toml:3: ")
