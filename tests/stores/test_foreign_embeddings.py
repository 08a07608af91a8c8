"""`buffer search` over somebody's embeddings endpoint that fails, is slow or gives other vectors.

Each is named in one line with code 2; the rows stay, and are found by vectors once the endpoint is well.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from embedding_server_double import EmbeddingServerDouble, embedding_server
from typer.testing import CliRunner

from dreamgym_kit.adapters.embedders import models
from dreamgym_kit.adapters.embedders.models import EndpointEmbedder
from dreamgym_kit.adapters.stores.factory import opened_to_add
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.cli.main import app
from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.types import Answer, Call, Effect, Transition


@pytest.fixture
def server() -> Iterator[EmbeddingServerDouble]:
    with embedding_server() as server:
        yield server


ROWS = 70  # more than one request takes


@pytest.fixture
def project(tmp_path: Path, server: EmbeddingServerDouble, monkeypatch: pytest.MonkeyPatch) -> Path:
    class Quick(EndpointEmbedder):
        def __init__(self, *args: object, **more: object) -> None:
            patience_s = 0.3 if server.way == "slow" else 60  # what is to be answered may take its time
            super().__init__(*args, **{**more, "timeout_s": patience_s})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "EndpointEmbedder", Quick)
    (tmp_path / "dreamgym.toml").write_text(
        f'[replay]\nembedder = "{server.url}"\nembedder_model = "small"\nembedder_dimension = 3\n'
    )
    rows = [
        Transition(Call("get", {"id": step}), Answer(f"a lamp {'a' * step}"), Effect.READ, "t.1", step)
        for step in range(1, ROWS + 1)
    ]
    with opened_to_add(tmp_path / "dreamgym.db", load_settings(environ={})) as store:
        store.put(rows)
    return tmp_path


def search(*more: str):
    return CliRunner().invoke(app, ["buffer", "search", "lamp", "--json", *more])


@pytest.mark.parametrize(
    "after", [0, 1, None], ids=["from the start", "in the middle of the vectors", "once all had been made"]
)
@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("fails", "answered HTTP 500"),
        ("slow", "cannot be reached"),
        ("page", "answered no JSON"),
        ("other", "gave vectors of shape ("),
    ],
)
def test_an_endpoint_that_goes_wrong_is_named_and_nothing_is_lost(
    project: Path, server: EmbeddingServerDouble, way: str, said: str, after: int | None
) -> None:
    if after is None:
        assert search().exit_code == 0
        after = server.asked
    server.way, server.after = way, after
    done = search()
    assert isinstance(done.exception, UserError)
    assert f"{server.url}/embeddings: {said}" in str(done.exception)
    assert "check the endpoint, its model 'small' and the dimension" in str(done.exception)
    with closing(SqliteStore(project / "dreamgym.db", read_only=True)) as store:
        assert store.count() == ROWS
    server.way = ""
    server.hurried.set()
    found = json.loads(search().stdout)["hits"]
    assert {place for hit in found for place in hit["places"]} == {"words", "vectors"}
