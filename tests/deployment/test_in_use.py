"""`deployed`: the block around the agent's work, recorded while that is asked for."""

from contextlib import closing
from pathlib import Path

import pytest
from deployment.evaluated_runs import model_double
from langchain_core.tools import tool

import dreamgym_kit
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.schema import Settings


@tool
def look_up(order_id: str) -> str:
    """Look up an order."""
    return f"{order_id} is paid"


def test_calls_are_kept_only_while_that_is_asked_for(tmp_path: Path) -> None:
    shelf, model = tmp_path / "deployed", model_double(tmp_path / "model", "weights")
    told = {"into": shelf, "force": "the first", "settings": Settings(), "tasks": None}
    dreamgym_kit.deploy(model, **told)
    with dreamgym_kit.deployed(shelf, settings=Settings()) as version:
        assert look_up.invoke({"order_id": "o1"}) == "o1 is paid"
    assert version == "v001"
    kept = tmp_path / "calls.db"
    assert dreamgym_kit.deploy(model, **told, record=kept).already
    with dreamgym_kit.deployed(shelf, settings=Settings()):
        assert look_up.invoke({"order_id": "o2"}) == "o2 is paid"
    with closing(SqliteStore(kept, read_only=True)) as store:
        (row,) = store.scan()
    assert (row.call.tool, row.answer.content) == ("look_up", "o2 is paid")
    assert row.episode.startswith("agent-v001-")
    dreamgym_kit.deploy(model, **told, record="")
    with dreamgym_kit.deployed(shelf, settings=Settings()):
        look_up.invoke({"order_id": "o3"})
    with closing(SqliteStore(kept, read_only=True)) as store:
        assert store.count() == 1


def test_where_nothing_is_deployed_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing is deployed there"), dreamgym_kit.deployed(tmp_path):
        pass
