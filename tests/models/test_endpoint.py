"""The endpoint's client: what it sends, when it asks again, what it counts, what it never shows."""

import asyncio
import base64
import threading
from collections.abc import Iterator

import pytest
from bench.faulty_endpoint_double import FaultyEndpointDouble, serving

from dreamgym_kit.adapters.models.addresses import read_address
from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint, check_endpoint, open_endpoint
from dreamgym_kit.adapters.models.keys import Key
from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.ports import ChatEndpoint
from dreamgym_kit.settings.model import EndpointSettings, Settings

ASK = ChatRequest([ChatMessage("user", "hello")], seed=7)
CANARY = "sk-canary/0123456789+abcdef"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.fixture
def server() -> Iterator[FaultyEndpointDouble]:
    with serving(FaultyEndpointDouble()) as double:
        yield double


@pytest.fixture
def opened() -> Iterator[list[OpenAIEndpoint]]:
    endpoints: list[OpenAIEndpoint] = []
    yield endpoints
    for endpoint in endpoints:
        endpoint.close()


@pytest.fixture
def client(opened: list[OpenAIEndpoint]):
    def make(*urls: str, key: str = "", **said: object) -> OpenAIEndpoint:
        settings = EndpointSettings(**{"urls": urls, "model": "m", "timeout_s": 5.0, **said})  # type: ignore[arg-type]
        addresses = tuple(read_address(url, source="test") for url in urls)
        opened.append(OpenAIEndpoint(addresses, settings, Key(key), wait_unit_s=0.001))
        return opened[-1]

    return make


async def test_every_sampling_parameter_is_sent_and_the_answer_is_counted(server, client) -> None:
    endpoint = client(server.url, usd_per_million_input=10.0, usd_per_million_output=100.0)
    reply = await endpoint.chat(ASK)
    assert (reply.content, reply.model, reply.attempts) == ("ready", "double", 1)
    (sent,) = server.requests
    assert sent == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 7,
        "max_tokens": 1024,
        "n": 1,
        "stream": False,
    }
    assert reply.cost_usd == pytest.approx(0.002)
    counts = endpoint.counts
    assert (counts.answers, counts.requests, counts.prompt_tokens, counts.cost_usd) == (
        *(1, 1, 100),
        pytest.approx(0.002),
    )
    assert isinstance(endpoint, ChatEndpoint)


@pytest.mark.parametrize(
    "way", ["429", "500", "reset", "truncated", "not_a_completion", "abort", "hang", "drip"]
)
async def test_what_may_pass_is_asked_again(server, client, way: str) -> None:
    server.way = lambda number: way if number == 1 else None
    reply = await client(server.url, timeout_s=0.4).chat(ASK)
    assert (reply.content, reply.attempts, len(server.requests)) == ("ready", 2, 2)


@pytest.mark.parametrize(
    ("way", "kind", "said"),
    [
        ("401", "unauthorized", "answered 401: Unauthorized; check the key in the variable that"),
        ("404", "not_found", "answered 404: no such model; check endpoint.urls and endpoint.model"),
        ("huge", "too_large", "sent more than 4194304 bytes; not read on"),
        ("huge_chunked", "too_large", "sent more than 4194304 bytes; not read on"),
        ("redirect", "rejected", "redirects, which is not followed"),
    ],
)
async def test_what_cannot_pass_is_asked_once(server, client, way: str, kind: str, said: str) -> None:
    server.way = lambda number: way
    with pytest.raises(EndpointError) as failed:
        await client(server.url).chat(ASK)
    assert (failed.value.kind, len(server.requests)) == (kind, 1)
    assert said in str(failed.value)


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        ("hang", "timeout"),
        ("drip", "timeout"),
        ("500", "server"),
        ("429", "rate_limit"),
        ("reset", "connection"),
    ],
)
async def test_a_server_that_stays_broken_is_left_after_the_tries(
    server, client, way: str, kind: str
) -> None:
    server.way = lambda number: way
    with pytest.raises(EndpointError, match=r"\(2 tries\)$") as failed:
        await asyncio.wait_for(client(server.url, timeout_s=0.3, attempts=2).chat(ASK), 3)
    assert (failed.value.kind, len(server.requests)) == (kind, 2)


async def test_the_server_is_left_alone_as_long_as_it_asks_for(server, client) -> None:
    server.way, server.retry_after = (lambda number: "429" if number == 1 else None), "0.3"
    reply = await client(server.url).chat(ASK)
    assert reply.elapsed_s >= 0.3


async def test_a_server_that_asks_for_minutes_is_not_waited_for(server, client) -> None:
    server.way, server.retry_after = (lambda number: "429"), "600"
    with pytest.raises(EndpointError):
        await asyncio.wait_for(client(server.url).chat(ASK), 2)
    assert len(server.requests) == 1


async def test_another_replica_answers_for_one_that_is_down(server, client) -> None:
    endpoint = client("http://127.0.0.1:9/v1", server.url)
    for group in range(6):
        assert (await endpoint.chat(ChatRequest(ASK.messages, affinity=f"g{group}"))).content == "ready"
    assert endpoint.counts.failures.get("connection", 0) <= 1  # then it rests


async def test_siblings_ask_the_same_replica(server, client) -> None:
    with serving(FaultyEndpointDouble()) as other:
        endpoint = client(server.url, other.url)
        for _ in range(5):
            await endpoint.chat(ChatRequest(ASK.messages, affinity="group 1"))
        assert sorted([len(server.requests), len(other.requests)]) == [0, 5]


@pytest.mark.parametrize(
    ("words", "refused", "sent"),
    [
        ("response_format json_schema is not supported", lambda b: b.get("response_format", {}).get("type")
         == "json_schema", {"response_format": {"type": "json_object"}}),
        ("unknown field response_format", lambda b: "response_format" in b, {"response_format": None}),
        ("Use 'max_completion_tokens' instead", lambda b: "max_tokens" in b, {"max_completion_tokens": 1024}),
        ("'temperature' does not support 0", lambda b: "temperature" in b, {"temperature": None}),
    ],
)  # fmt: skip
async def test_what_a_server_refuses_to_know_is_learned_once(server, client, words, refused, sent) -> None:
    server.refuse = lambda body: words if refused(body) else None
    endpoint = client(server.url)
    request = ChatRequest(ASK.messages, schema=SCHEMA)
    assert (await endpoint.chat(request)).content == "ready"
    asked = len(server.requests)
    await endpoint.chat(request)
    assert len(server.requests) == asked + 1
    assert {name: server.requests[-1].get(name) for name in sent} == sent


async def test_a_schema_is_sent_where_the_server_takes_it(server, client) -> None:
    await client(server.url).chat(ChatRequest(ASK.messages, schema=SCHEMA))
    form = server.requests[0]["response_format"]["json_schema"]
    assert (form["schema"], form["strict"]) == (SCHEMA, True)


async def test_a_refusal_about_something_else_is_not_tried_in_other_forms(server, client) -> None:
    server.refuse = lambda body: "this model's maximum context length is 10 tokens"
    with pytest.raises(EndpointError, match="maximum context length") as failed:
        await client(server.url).chat(ChatRequest(ASK.messages, schema=SCHEMA))
    assert (failed.value.kind, len(server.requests)) == ("rejected", 1)


async def test_the_key_is_sent_and_never_shown(server, client) -> None:
    coded = base64.b64encode(f"x:{CANARY}".encode()).decode()
    server.refuse = lambda body: f"bad key {CANARY} {coded}"
    endpoint = client(server.url, key=CANARY)
    with pytest.raises(EndpointError) as failed:
        await endpoint.chat(ASK)
    assert f"Bearer {CANARY}".encode() in server.heads[0]
    shown = f"{failed.value} {failed.value!r} {vars(failed.value)} {vars(endpoint)}"
    assert "***" in shown
    assert "canary" not in shown
    assert coded[8:-8] not in shown


def test_threads_and_loops_share_one_client(server, client) -> None:
    endpoint = client(server.url)
    said: list[str] = []
    threads = [
        threading.Thread(target=lambda: said.append(asyncio.run(endpoint.chat(ASK)).content))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert said == ["ready"] * 8


async def test_a_cancelled_question_is_dropped_and_the_client_lives_on(server, client) -> None:
    server.way = lambda number: "hang" if number == 1 else None
    endpoint = client(server.url)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(endpoint.chat(ASK), 0.2)
    assert (await endpoint.chat(ASK)).content == "ready"


async def test_a_closed_client_asks_nothing(server, client) -> None:
    endpoint = client(server.url)
    await endpoint.chat(ASK)
    endpoint.close()
    endpoint.close()
    with pytest.raises(EndpointError, match="closed"):
        await endpoint.chat(ASK)


async def test_a_run_is_told_before_it_begins_that_the_model_cannot_be_asked(server, client) -> None:
    server.way = lambda number: "401"
    with pytest.raises(UserError, match=r"^the dream's model cannot be asked: .* 401: .*Nothing was run\.$"):
        await check_endpoint(client(server.url))


@pytest.mark.parametrize(
    ("said", "environ", "message"),
    [
        (
            EndpointSettings(urls=("http://h/v1",)),
            {},
            "settings: endpoint.urls is set, but no endpoint.model.",
        ),
        (
            EndpointSettings(urls=("http://h/v1",), model="m", key_env="NO_KEY"),
            {},
            "settings: the environment variable NO_KEY is not set; it has to hold the key.",
        ),
        (
            EndpointSettings(urls=("http://h/v1",), model="m", key_env="BAD_KEY"),
            {"BAD_KEY": "sk-canary two"},
            "settings: the environment variable BAD_KEY holds no key: a key is one word.",
        ),
    ],
)
def test_wrong_settings_are_named(said: EndpointSettings, environ: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as refused:
        open_endpoint(Settings(endpoint=said), environ=environ)
    assert str(refused.value) == message


def test_no_url_is_no_endpoint() -> None:
    assert open_endpoint(Settings()) is None
