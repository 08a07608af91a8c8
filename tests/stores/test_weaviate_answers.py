"""What a live Weaviate 1.39.0 answered to faults, and whether waiting helps (weaviate_answers.jsonl)."""

import json
import ssl
from pathlib import Path

import pytest
import weaviate_buffers

from dreamgym_kit.adapters.stores.weaviate_server import meaning
from dreamgym_kit.errors import StoreError, StoreUnavailable

FILE = Path(__file__).parent / "weaviate_answers.jsonl"
ANSWERS = [json.loads(line) for line in FILE.read_text().splitlines()]


def test_the_double_answers_the_adapters_calls_as_a_live_server_did() -> None:
    from weaviate_double.live import differing

    calls, wrong = differing()
    print(f"{len(wrong)} of {calls} calls are answered otherwise")
    assert wrong == []
    assert calls > 40


def test_each_recorded_server_error_is_classified() -> None:
    wrong = [
        (answer["name"], meaning(answer["status"], answer["text"]))
        for answer in ANSWERS
        if (meaning(answer["status"], answer["text"]) is not None) != answer["stays"]
    ]
    print(f"{len(wrong)} of {len(ANSWERS)} answers are told wrong")
    assert wrong == []


@pytest.mark.parametrize(
    ("status", "text", "advice"),
    [
        (
            "429",
            "'errorCode': 'USAGE_LIMIT_EXCEEDED', 'limit': 'tenants'",
            "the server reached a limit",
        ),
        (
            "RESOURCE_EXHAUSTED",
            "objects count limit of 5 reached for this instance.",
            "the server reached a limit",
        ),
        ("UNKNOWN", "query maximum results exceeded", "QUERY_MAXIMUM_RESULTS"),
        ("", "Could not connect to Weaviate:illegal request line.", "wrong or swapped"),
        ("UNIMPLEMENTED", "unknown service weaviate.v1.Weaviate", "wrong or swapped"),
        ("", "[SSL: WRONG_VERSION_NUMBER] wrong version number", "this port does not use TLS"),
        ("401", "no authentication scheme is configured (API Key or OIDC)", "unset WEAVIATE_API_KEY"),
        ("401", "unauthorized: invalid api key", "check WEAVIATE_API_KEY"),
        ("", "rbac: authorization, forbidden action: user 'v'", "lacks the permission"),
        ("422", "Could not check if tenant exists for Foreign3!", "has no tenants"),
        ("422", "could not find enough weaviate nodes for replication: 1 available", "replicas=3"),
        ("RESOURCE_EXHAUSTED", "grpc: trying to send message larger than max (5 vs. 4)", "read less"),
        (
            "RESOURCE_EXHAUSTED",
            "CLIENT: Sent message larger than max (4019325 vs. 65536)",
            "a row exceeds",
        ),
    ],
)
def test_permanent_error_gives_advice(status: str, text: str, advice: str) -> None:
    server = weaviate_buffers.server_of("weaviate://127.0.0.1:1?grpc=2")("here")
    told = server.store_error("reading", status, text)
    assert not isinstance(told, StoreUnavailable)
    assert advice in str(told)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ("429", "Too many requests"),
        ("UNKNOWN", "429 Too many requests"),
        ("UNKNOWN", "batch objects: cannot process batch: not enough memory"),
        ("UNKNOWN", "what nobody has seen yet"),
        (
            "UNAVAILABLE",
            "read-only mode is enabled temporally: write operations are not allowed during this time",
        ),
        ("503", "write-only mode is enabled temporally"),
        ("", "store is read-only due to: manually set by user"),
        ("", "status code: 404, error: request not found"),
        ("RESOURCE_EXHAUSTED", "too busy"),
    ],
)
def test_unknown_error_is_temporary(status: str, text: str) -> None:
    assert meaning(status, text) is None


def test_a_refused_connection_names_host_and_port() -> None:
    from ports import own_port

    port = own_port()
    address = f"weaviate://127.0.0.1:{port}?grpc={own_port()}"
    server = weaviate_buffers.server_of(address, timeout_s=60)("here")
    with pytest.raises(StoreUnavailable, match=rf"127\.0\.0\.1:{port}.*refused"):
        server.ask("counting", lambda client: client)


def test_tls_to_a_plain_port_and_a_shared_port_are_explained() -> None:
    from weaviate_double import WeaviateDouble

    with WeaviateDouble() as double:
        http, grpc = double._ports
        secure = weaviate_buffers.server_of(f"weaviates://localhost:{http}?grpc={grpc}", timeout_s=60)("here")
        with pytest.raises(StoreError, match="this port does not use TLS") as told:
            secure.ask("counting", lambda client: client)
        assert not isinstance(told.value, StoreUnavailable)
        same = weaviate_buffers.server_of(f"weaviate://127.0.0.1:{http}?grpc=localhost:{http}")("here")
        with pytest.raises(StoreError, match="cannot share port"):
            same.ask("counting", lambda client: client)
    assert ssl.OPENSSL_VERSION
