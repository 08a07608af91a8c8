"""`replay.embedder`: which embedder a buffer is searched with, and what is refused."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dreamgym_kit import errors
from dreamgym_kit.adapters.embedders.choosing import embedder_of
from dreamgym_kit.adapters.embedders.models import EndpointEmbedder, HashedEmbedder, SentenceEmbedder
from dreamgym_kit.adapters.stores.factory import open_to_search, opened_to_add
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import MissingExtra, StoreError, UserError
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Answer, Call, Effect, Transition

ENDPOINT = '[replay]\nembedder = "http://localhost:9/v1"\nembedder_model = "small"\nembedder_dimension = 3\n'


class OtherEmbedderDouble:
    """Stands for a model of the user's: vectors of 4 numbers."""

    name = "other"
    dimension = 4
    local = True

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return HashedEmbedder().embed(texts)[:, :4]


def settings(text: str, folder: Path) -> Settings:
    return parse_settings(text, path=folder / "dreamgym.toml")


def row(step: int) -> Transition:
    return Transition(Call("get", {"id": step}), Answer("a lamp"), Effect.READ, "t.1", step)


def test_nothing_said_leaves_it_to_the_buffer(tmp_path: Path) -> None:
    assert embedder_of(settings("", tmp_path)) is None


def test_the_hashed_one_by_its_name(tmp_path: Path) -> None:
    assert isinstance(embedder_of(settings('[replay]\nembedder = "hashed"', tmp_path)), HashedEmbedder)


def test_an_endpoint_by_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDDING_KEY", "sk-very-secret")
    embedder = embedder_of(settings(f'{ENDPOINT}embedder_key_env = "EMBEDDING_KEY"\n', tmp_path))
    assert isinstance(embedder, EndpointEmbedder)
    assert (embedder.name, embedder.dimension) == ("endpoint:small", 3)
    assert "secret" not in repr(vars(embedder))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'embedder = "http://localhost:9/v1"',
            "replay.embedder is an endpoint, but there is no replay.embedder_model.",
        ),
        (
            'embedder = "http://localhost:9/v1"\nembedder_model = "small"',
            "replay.embedder is an endpoint, but there is no replay.embedder_dimension.",
        ),
        (
            'embedder = "minilm"',
            (
                "replay.embedder 'minilm' is no embedder; write \"hashed\", the URL of an endpoint "
                '("http://localhost:8000/v1") or the folder of a sentence-transformers model.'
            ),
        ),
    ],
)
def test_what_is_missing_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        embedder_of(settings(f"[replay]\n{text}\n", tmp_path))
    assert str(caught.value) == f"dreamgym.toml:2: {said}"


def test_a_key_that_is_not_set_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EMBEDDING_KEY", raising=False)
    with pytest.raises(
        UserError, match=r"^dreamgym.toml:5: the environment variable EMBEDDING_KEY is not set"
    ):
        embedder_of(settings(f'{ENDPOINT}embedder_key_env = "EMBEDDING_KEY"\n', tmp_path))


def test_a_folder_is_looked_for_beside_the_settings_and_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "minilm").mkdir()
    wanted = settings('[replay]\nembedder = "minilm"\n', tmp_path)
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="embeddings"):
        embedder_of(wanted)
    monkeypatch.setattr(errors, "find_spec", lambda name: object())
    embedder = embedder_of(wanted)
    assert isinstance(embedder, SentenceEmbedder)
    assert embedder.name == "sentences:minilm"
    path = tmp_path / "b.db"
    with opened_to_add(path, wanted) as store:
        assert store.put([row(1)]) == 1
    with closing(SqliteStore(path, embedder=OtherEmbedderDouble())) as store:
        assert store.foreign_embedder is None


def test_a_buffer_of_another_embedder_is_refused_by_name_when_settings_name_one(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    with closing(SqliteStore(path, embedder=OtherEmbedderDouble())) as store:
        store.put([row(1)])
    wanted = settings('[replay]\nembedder = "hashed"\n', tmp_path)
    said = (
        f"{path}: its vectors are of embedder 'other' (4 numbers), not 'hashed-256-v1'; open it with "
        "that one (setting replay.embedder), or export it and import the rows into a new buffer"
    )
    for attempt in (lambda: open_to_search(path, wanted), lambda: opened_to_add(path, wanted).__enter__()):
        with pytest.raises(StoreError) as caught:
            attempt()
        assert str(caught.value) == said
    with closing(SqliteStore(path)) as store:
        assert store.count() == 1
