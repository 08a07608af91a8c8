"""What every `Embedder` promises, whatever makes its vectors."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from each_row import each_row
from embedding_server_double import EmbeddingServerDouble, embedding_server
from ports import own_port

from dreamgym_kit.adapters.embedders.models import EndpointEmbedder, HashedEmbedder, SentenceEmbedder
from dreamgym_kit.errors import MissingExtra, UserError
from dreamgym_kit.interfaces import Embedder


@pytest.fixture
def server() -> Iterator[EmbeddingServerDouble]:
    with embedding_server() as server:
        yield server


def of_endpoint(server: EmbeddingServerDouble) -> EndpointEmbedder:
    return EndpointEmbedder(server.url, "small", dimension=3, api_key="sk-secret", timeout_s=120)


@pytest.fixture(params=["hashed", "endpoint"])
def embedder(request: pytest.FixtureRequest, server: EmbeddingServerDouble) -> Embedder:
    return HashedEmbedder() if request.param == "hashed" else of_endpoint(server)


PINNED = [-0.4039, 0.4039, -0.4039, 0.2827]  # a change makes every stored vector wrong: it needs a new name
TEXTS = [
    "refund order ORD-7",
    "",
    "refund order ORD-7",
    "weather in Paris",
    "é \ud800 \x00",
    "x" * 9000,
    "  ",
]


def test_each_text_gets_a_row_of_length_one_and_nothing_for_nothing(embedder: Embedder) -> None:
    vectors = embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.dimension)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 0, 1, 1, 1, 1, 0], abs=1e-5)


def test_equal_texts_get_equal_rows_whatever_stands_beside_them(embedder: Embedder) -> None:
    together = embedder.embed(TEXTS)
    alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
    assert (together == alone).all()


def test_no_text_gives_no_row(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, embedder.dimension)


def test_many_texts_come_back_in_their_order(embedder: Embedder) -> None:
    texts = [f"order {number} {'a' * (number % 9)}" for number in range(150)]
    assert (embedder.embed(texts)[[3, 70, 149]] == embedder.embed([texts[3], texts[70], texts[149]])).all()


def test_hashed_vectors_are_the_same_on_every_machine() -> None:
    vector = HashedEmbedder().embed(["Refund order ORD-7"])[0]
    assert [round(float(vector[place]), 4) for place in (48, 198, 206, 208)] == PINNED
    assert (vector == HashedEmbedder().embed(["refund ORDER ord-7"])[0]).all()


def test_hashed_likeness_follows_shared_words_and_letters() -> None:
    asked, near, typo, far = HashedEmbedder().embed(
        ["refund the damaged lamp", "the damaged lamp: refund", "refnd the damagd lamp", "weather in Paris"]
    )
    assert asked @ near > asked @ typo > 0.3 > abs(asked @ far)


def test_an_endpoint_that_is_busy_is_asked_again(server: EmbeddingServerDouble) -> None:
    server.failing = [503, 429]
    assert of_endpoint(server).embed(["a"]).shape == (1, 3)
    assert server.seen == [("/v1/embeddings", "Bearer sk-secret", 1)] * 3


@each_row(
    ("failing", "said"),
    [
        ([401], "answered HTTP 401"),
        ([302], "answered HTTP 302"),
        ([500, 500, 500], "answered HTTP 500"),
        ([b"{oops"], "answered no JSON"),
        ([b"[]"], "answered no embeddings (TypeError)"),
        ([b'{"data": []}'], "gave vectors of shape"),
        ([b'{"data": [{"index": 0, "embedding": [1, 2]}]}'], "gave vectors of shape (1, 2), not (1, 3)"),
    ],
)
def test_an_endpoint_that_fails_is_named_without_its_key(
    server: EmbeddingServerDouble, failing: list[int | bytes], said: str
) -> None:
    server.failing = failing
    with pytest.raises(UserError) as caught:
        of_endpoint(server).embed(["a"])
    assert str(caught.value).startswith(f"{server.url}/embeddings: {said}")
    assert "sk-secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@each_row(
    "url",
    [
        *("file:///etc/passwd", "ftp://host/", "http://", "https://me:key@host/v1"),
        *(
            "http://169.254.169.254/v1",
            "http://[::ffff:169.254.169.254]/v1",
            "http://metadata.google.internal",
        ),
    ],
)
def test_only_plain_web_addresses_are_endpoints(url: str) -> None:
    with pytest.raises(UserError, match=r"^embeddings: ") as refused:
        EndpointEmbedder(url, "small", dimension=3)
    assert "me:key" not in str(refused.value)


def test_a_proxy_of_the_environment_gets_no_texts(
    server: EmbeddingServerDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{own_port()}")
    assert of_endpoint(server).embed(["a"]).shape == (1, 3)


def test_a_model_folder_is_asked_for_and_its_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="is no folder with a sentence-transformers model"):
        SentenceEmbedder(tmp_path / "no")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'dreamgym-kit\[embeddings\]'"):
        SentenceEmbedder(tmp_path)
