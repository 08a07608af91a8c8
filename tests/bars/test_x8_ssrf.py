"""Bar X8: endpoints and buffers are asked where settings say, and never at a metadata service."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import openai
import pytest
from bench.faulty_endpoint_double import FaultyEndpointDouble, serving
from each_row import each_row
from ports import own_port

from dreamgym_kit.adapters.models.addresses import ApiKey, Resolver, is_metadata, read_address
from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint
from dreamgym_kit.adapters.stores.factory import open_store
from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.errors import EndpointError, StoreError, StoreUnavailable, UserError
from dreamgym_kit.guard import egress
from dreamgym_kit.settings.buffer_url import Address, place_of
from dreamgym_kit.settings.schema import ExperienceSettings, Settings

ASK = ChatRequest([ChatMessage("user", "hello")])
REFUSED = [
    "file:///etc/passwd",
    "ftp://host/v1",
    "gopher://169.254.169.254/",
    "host/v1",
    "http://",
    "http://user@host/v1",
    "http://sk-canary:pass@host/v1",
    "http://host/v1?key=sk-canary",
    "http://169.254.169.254/v1",
    "http://169.254.170.2/v1",
    "http://[::ffff:169.254.169.254]/v1",
    "http://[::ffff:a9fe:a9fe]/v1",
    "http://[64:ff9b::a9fe:a9fe]/v1",
    "http://[2002:a9fe:a9fe::]/v1",
    "http://[::a9fe:a9fe]/v1",
    "http://[fd00:ec2::254]/v1",
    "http://[fe80::1%25eth0]/v1",
    "http://2852039166/v1",
    "http://0xa9fea9fe/v1",
    "http://0251.0376.0251.0376/v1",
    "http://169.254.43518/v1",
    "http://metadata.google.internal/v1",
    "http://METADATA.google.internal./v1",
    "http://100.100.100.200/v1",
    "http://168.63.129.16/v1",
    "http://①⑥⑨.254.169.254/v1",
    "http://169。254。169。254/v1",
    "http://host:99999/v1",
    "http://0.0.0.0/v1",
    "http://ho st/v1",
    "http://host\r\nx: y/v1",
]


@each_row("url", REFUSED)
def test_a_url_that_no_endpoint_has_is_refused_without_repeating_a_key(url: str) -> None:
    with pytest.raises(UserError) as refused:
        read_address(url, source="dreamgym.toml:3")
    assert str(refused.value).startswith("dreamgym.toml:3: ")
    assert "canary" not in str(refused.value)


@each_row("url", ["http://10.0.0.4:8000/v1", "https://api.example.com/v1", "http://[::1]:8000"])
def test_what_a_person_may_mean_passes(url: str) -> None:
    assert str(read_address(url, source="x")).startswith(url.rpartition(":")[0][:10])


def names(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    """Let the next look-ups give these addresses, one each."""
    left = list(answers)

    def lookup(host: Any, port: Any, *args: Any, **kwargs: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (left.pop(0), port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


@each_row("address", ["169.254.169.254", "100.100.100.200"])
def test_a_name_that_leads_to_metadata_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    names(monkeypatch, address)
    with pytest.raises(EndpointError, match="metadata service") as refused:
        Resolver().resolve("models.example.com", 443)
    assert refused.value.retryable is False


def test_a_name_that_turns_private_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "93.184.216.34", "127.0.0.1")
    resolver = Resolver()
    assert resolver.resolve("models.example.com", 443) == ["93.184.216.34"]
    with pytest.raises(EndpointError, match="now to a private one"):
        resolver.resolve("models.example.com", 443)


async def test_what_was_looked_at_is_what_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(FaultyEndpointDouble()) as server:
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        names(monkeypatch, "127.0.0.1")  # a second look-up would find nothing left
        endpoint = client(f"http://models.example.com:{port}/v1")
        assert (await endpoint.chat(ASK)).content == "ready"
        endpoint.close()
        assert f"host: models.example.com:{port}".encode() in server.heads[0].lower()


async def test_a_redirect_to_metadata_is_not_followed() -> None:
    with serving(FaultyEndpointDouble(way=lambda number: "redirect")) as server:
        endpoint = client(server.url)
        with pytest.raises(EndpointError, match="redirects, which is not followed"):
            await endpoint.chat(ASK)
        endpoint.close()
        assert len(server.requests) == 1


async def test_the_guard_lets_the_client_pass_and_nobody_else() -> None:
    trips: list[egress.Trip] = []
    with serving(FaultyEndpointDouble()) as server:
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        endpoint = client(server.url.replace("127.0.0.1", "localhost"))
        egress.arm(egress.Allowance(), trips.append)
        try:
            assert (await endpoint.chat(ASK)).content == "ready"
            assert trips == []
            with socket.socket() as other, pytest.raises(BaseException, match="refused to"):
                other.connect(("127.0.0.1", port))
            agents_own = openai.AsyncOpenAI(api_key="none", base_url=server.url, max_retries=0)
            with pytest.raises(BaseExceptionGroup):
                await agents_own.post("/chat/completions", cast_to=object, content=b"{}")
        finally:
            egress.disarm()
            endpoint.close()
    assert (len(trips), len(server.requests)) == (2, 1)


def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = f"http://127.0.0.1:{own_port()}"
    monkeypatch.setenv("HTTP_PROXY", nobody)
    monkeypatch.setenv("ALL_PROXY", nobody)
    with serving(FaultyEndpointDouble()) as server:
        endpoint = client(server.url)
        assert asyncio.run(endpoint.chat(ASK)).content == "ready"
        endpoint.close()


@each_row("address", ["8.8.8.8", "10.0.0.1", "127.0.0.1", "::1", "2001:4860:4860::8888"])
def test_other_addresses_are_no_metadata(address: str) -> None:
    assert not is_metadata(address)


HOSTS = [
    "169.254.169.254",
    "169.254.169.254:80",
    "169.254.170.2",
    "[::ffff:169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]:8080",
    "[2002:a9fe:a9fe::]",
    "[::a9fe:a9fe]",
    "[fd00:ec2::254]",
    "[fe80::1%25eth0]",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "METADATA.google.internal.",
    "metadata",
    "100.100.100.200",
    "①⑥⑨.254.169.254",
    "169。254。169。254",
]


@each_row("form", ["weaviate://{}?tenant=a", "weaviates://{}/Rows", "weaviate://db?grpc={}"])
@each_row("host", HOSTS)
def test_a_buffer_is_never_opened_at_a_metadata_service(host: str, form: str) -> None:
    pytest.importorskip("weaviate", reason="the extra weaviate is not installed")
    with_port = host if not form.endswith("grpc={}") or ":8" in host[-6:] else f"{host}:9"
    with pytest.raises(UserError, match="is a cloud's metadata service, which is never asked"):
        open_store(buffer_at(form.format(with_port)), Settings())


@each_row(
    "text",
    [
        "weaviate://user@host",
        "weaviate://sk-canary:pass@host",
        "weaviate://db?grpc=sk-canary@169.254.169.254:80",
    ],
)
def test_a_buffers_address_with_a_user_in_it_is_refused_without_repeating_a_key(text: str) -> None:
    pytest.importorskip("weaviate", reason="the extra weaviate is not installed")
    with pytest.raises(UserError) as refused:
        open_store(buffer_at(text), Settings())
    assert "canary" not in str(refused.value)


@each_row("text", ["weaviate://db.example.com?timeout=5", "weaviate://127.0.0.1?grpc=db.example.com:1"])
def test_a_buffers_name_that_leads_to_metadata_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    pytest.importorskip("weaviate", reason="the extra weaviate is not installed")

    def lookup(host: Any, port: Any, *args: Any, **kwargs: Any) -> list[Any]:
        address = "169.254.169.254" if "example" in host else host
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with pytest.raises(StoreError, match=r"db\.example\.com leads to a cloud's metadata service") as refused:
        open_store(buffer_at(text), Settings())
    assert not isinstance(refused.value, StoreUnavailable)  # nothing waits for such a server


@each_row("lookups", [2, 10**6])  # until the name turns: before HTTP connects, and after all is connected
def test_a_buffers_name_that_turns_to_metadata_is_not_connected(
    monkeypatch: pytest.MonkeyPatch, lookups: int
) -> None:
    pytest.importorskip("weaviate", reason="the extra weaviate is not installed")
    from weaviate_double import WeaviateDouble

    resolved, asked = socket.getaddrinfo, list[str]()

    def lookup(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "db.example.com":
            return resolved(host, port, *args, **kwargs)
        asked.append(host)
        return resolved("127.0.0.1" if len(asked) <= lookups else "169.254.169.254", port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with WeaviateDouble() as double:
        http, grpc = double._ports
        address = buffer_at(f"weaviate://db.example.com:{http}?grpc={grpc}&timeout=60")
        if lookups == 2:
            with pytest.raises(StoreError, match="leads to a cloud's metadata service") as refused:
                open_store(address, Settings())
            assert not isinstance(refused.value, StoreUnavailable)
            assert double.requests == []
        else:
            store = open_store(address, Settings(), read_only=False)
            lookups = 0  # gRPC's core would look up by itself, where Python sees nothing
            assert store.count() == 0
            store.close()


def buffer_at(text: str) -> Address:
    place = place_of(text, Path(), source="--buffer")
    assert isinstance(place, Address)
    return place


def client(url: str) -> OpenAIEndpoint:
    settings = ExperienceSettings(urls=(url,), model="m", timeout_s=60.0)
    return OpenAIEndpoint((read_address(url, source="x"),), settings, ApiKey(""), wait_unit_s=0.001)
