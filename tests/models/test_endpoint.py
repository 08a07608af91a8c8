"""The endpoint's client: what it sends, when it asks again, what it counts, what it never shows."""

import asyncio
import base64
import gc
import random
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress

import pytest
from bench.faulty_endpoint_double import FaultyEndpointDouble, serving
from each_row import each_row
from ports import own_port

from dreamgym_kit.adapters.models.addresses import ApiKey, EndpointAddress, read_address
from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint
from dreamgym_kit.adapters.models.http import Transport
from dreamgym_kit.adapters.models.named_models import check_endpoint, open_endpoint
from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.interfaces import ChatEndpoint
from dreamgym_kit.settings.schema import ExperienceSettings, Settings

ASK = ChatRequest([ChatMessage("user", "hello")], seed=7)
LIMIT_S = 60.0  # for what is answered, on however busy a machine
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
        settings = ExperienceSettings(**{"urls": urls, "model": "m", "timeout_s": LIMIT_S, **said})  # type: ignore[arg-type]
        addresses = tuple(read_address(url, source="test") for url in urls)
        opened.append(OpenAIEndpoint(addresses, settings, ApiKey(key), wait_unit_s=0.001))
        return opened[-1]

    return make


def late(endpoint: OpenAIEndpoint, way: str, requests: int) -> Callable[[int], str | None]:
    """The first requests go wrong in this way, and the client's time runs out once each has been heard.

    For its clock a minute passes in three steps, and what drips comes between them: that it is not silent
    helps it nothing.
    """

    def chosen(number: int) -> str | None:
        if number > requests:
            return None
        for step in (1, 2, 3):
            asyncio.get_running_loop().call_later(0.25 * step, pass_time, endpoint, LIMIT_S / 3)
        return way

    return chosen


def pass_time(endpoint: OpenAIEndpoint, seconds: float) -> None:
    loop = endpoint.transport._loop
    told = loop.time
    loop.time = lambda: told() + seconds
    loop.call_soon_threadsafe(lambda: None)  # it may be waiting by what it took for the time


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
    assert (counts.requests, counts.prompt_tokens, counts.cost_usd) == (1, 100, pytest.approx(0.002))
    assert isinstance(endpoint, ChatEndpoint)


@each_row("way", ["429", "500", "reset", "truncated", "not_a_completion", "abort"])
async def test_what_may_pass_is_asked_again(server, client, way: str) -> None:
    server.requests.clear()
    server.way = lambda number: way if number == 1 else None
    reply = await client(server.url).chat(ASK)
    assert (reply.content, reply.attempts, len(server.requests)) == ("ready", 2, 2)


@each_row("way", ["hang", "drip"])
async def test_what_is_not_whole_when_its_time_is_over_is_asked_again(server, client, way: str) -> None:
    server.requests.clear()
    endpoint = client(server.url)
    server.way = late(endpoint, way, requests=1)
    reply = await endpoint.chat(ASK)
    assert (reply.content, reply.attempts, len(server.requests)) == ("ready", 2, 2)
    assert endpoint.counts.failures == {"timeout": 1}


@each_row(
    ("way", "kind", "said"),
    [
        ("401", "unauthorized", "answered 401: Unauthorized; check the key that"),
        ("404", "not_found", "answered 404: no such model; check experience.urls and experience.model"),
        ("huge", "too_large", "sent more than 4194304 bytes; not read on"),
        ("huge_chunked", "too_large", "sent more than 4194304 bytes; not read on"),
        ("redirect", "rejected", "redirects, which is not followed"),
    ],
)
async def test_what_cannot_pass_is_asked_once(server, client, way: str, kind: str, said: str) -> None:
    server.requests.clear()
    server.way = lambda number: way
    with pytest.raises(EndpointError) as failed:
        await client(server.url).chat(ASK)
    assert (failed.value.kind, len(server.requests)) == (kind, 1)
    assert said in str(failed.value)


@each_row(
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
    server.requests.clear()
    endpoint = client(server.url, max_attempts=2)
    server.way = late(endpoint, way, requests=2) if kind == "timeout" else lambda number: way
    with pytest.raises(EndpointError, match=r"\(2 tries\)$") as failed:
        await endpoint.chat(ASK)
    assert (failed.value.kind, len(server.requests)) == (kind, 2)


async def test_the_server_is_left_alone_as_long_as_it_asks_for(server, client) -> None:
    server.way, server.retry_after = (lambda number: "429" if number == 1 else None), "0.3"
    reply = await client(server.url).chat(ASK)
    assert reply.elapsed_s >= 0.3


async def test_a_server_that_asks_for_minutes_is_not_waited_for(server, client) -> None:
    server.way, server.retry_after = (lambda number: "429"), "600"
    with pytest.raises(EndpointError):
        await client(server.url).chat(ASK)
    assert len(server.requests) == 1


async def test_another_replica_answers_for_one_that_is_down(
    server, client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dreamgym_kit.adapters.models.endpoint._REST_S", 600.0)
    endpoint = client(f"http://127.0.0.1:{own_port()}/v1", server.url)
    for group in range(6):
        assert (await endpoint.chat(ChatRequest(ASK.messages, affinity=f"g{group}"))).content == "ready"
    assert endpoint.counts.failures.get("connection", 0) <= 1  # then it rests


async def test_siblings_ask_the_same_replica(server, client) -> None:
    with serving(FaultyEndpointDouble()) as other:
        endpoint = client(server.url, other.url)
        for _ in range(5):
            await endpoint.chat(ChatRequest(ASK.messages, affinity="group 1"))
        assert sorted([len(server.requests), len(other.requests)]) == [0, 5]


@each_row(
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
    spaced = form["schema"].pop("x-guidance")
    assert (form["schema"], form["strict"]) == (SCHEMA, True)
    assert (spaced["item_separator"], spaced["key_separator"]) == (", ", ": ")  # as models were taught


async def test_a_server_that_refuses_to_be_told_spacing_still_gets_the_schema(server, client) -> None:
    server.refuse = lambda body: "Invalid schema: unknown keyword" if "x-guidance" in str(body) else None
    await client(server.url).chat(ChatRequest(ASK.messages, schema=SCHEMA))
    assert len(server.requests) == 2
    assert server.requests[-1]["response_format"]["json_schema"]["schema"] == SCHEMA


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


@each_row("key", ["", CANARY])
async def test_what_the_environment_holds_for_the_agents_own_openai_is_not_sent(
    server, client, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID"):
        monkeypatch.setenv(f"OPENAI_{name}", "agents-own")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{own_port()}")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer agents-own\napi-key: agents-own")
    assert (await client(server.url, key=key).chat(ASK)).content == "ready"
    assert b"agents-own" not in server.heads[-1]
    names = {line.partition(b":")[0].lower() for line in server.heads[-1].split(b"\r\n")[1:] if line}
    names -= {b"authorization"} if key else set()
    assert names == {b"host", b"accept", b"accept-encoding", b"content-type", b"content-length"}


async def test_only_the_beginning_of_a_refusal_is_read(server, client) -> None:
    """What the library makes of an error's body has no bounds of its own."""
    server.refuse = lambda body: "no " * 2**20
    transport = client(server.url).transport
    address = read_address(server.url, source="test")
    refused = await transport.run(transport.post(address, "/chat/completions", b"{}", {}))
    assert (refused.status, len(refused.body)) == (400, 100_000)


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
        thread.join()
    assert said == ["ready"] * 8


async def test_a_cancelled_question_is_dropped_and_the_client_lives_on(server, client) -> None:
    heard = threading.Event()

    def hang_once(number: int) -> str | None:
        heard.set()
        return "hang" if number == 1 else None

    server.way = hang_once
    endpoint = client(server.url)
    question = asyncio.create_task(endpoint.chat(ASK))
    assert await asyncio.to_thread(heard.wait, 60)
    question.cancel()
    with pytest.raises(asyncio.CancelledError):
        await question
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


@each_row(
    ("environ", "told"),
    [({}, "A_KEY is not set; it has to hold"), ({"A_KEY": "sk two"}, "A_KEY holds no key")],
)
def test_a_variable_without_a_key_is_named(environ: dict[str, str], told: str) -> None:
    settings = ExperienceSettings(urls=("http://h/v1",), model="m", key_env="A_KEY")
    with pytest.raises(UserError, match=told):
        open_endpoint(Settings(experience=settings), environ=environ)


def test_settings_without_a_model_are_named() -> None:
    with pytest.raises(UserError, match=r"experience\.urls is set, but neither experience\.model"):
        open_endpoint(Settings(experience=ExperienceSettings(urls=("http://h/v1",))))


def test_no_url_is_no_endpoint() -> None:
    assert open_endpoint(Settings()) is None


def test_closed_while_it_connects_it_leaves_nothing_that_nobody_awaits() -> None:
    """What a library started for a request has to be ended by that library: it is at a loss otherwise."""
    chance = random.Random(0)

    def ask(transport: Transport, address: EndpointAddress) -> None:
        with suppress(EndpointError, CancelledError):
            transport.post_now(address, "/chat/completions", b"{}", {})

    with socket.create_server(("127.0.0.1", 0)) as silent, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        address = read_address(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", source="test")
        for _ in range(40):
            transport = Transport(timeout_s=60)
            asking = [threading.Thread(target=ask, args=(transport, address)) for _ in range(8)]
            for thread in asking:
                thread.start()
            time.sleep(chance.uniform(0, 0.006))
            transport.close()
            for thread in asking:
                thread.join()
        gc.collect()
    assert [str(one.message) for one in said if "never awaited" in str(one.message)] == []
