"""Taking the gate out leaves every class as it was, entry by entry."""

from typing import Any

import pytest
from each_row import each_row
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.pregel import Pregel
from shapes.canary import Canary
from shapes.everything import run_dreamt
from shapes.models import ScriptedModelDouble
from shapes.nested import SHAPES, plain_refund
from shapes.stage import dream
from shapes.tools import KINDS, ClassTool, add_tool

from dreamgym_kit.adapters.langgraph.intercept.functions import hooked_names
from dreamgym_kit.adapters.langgraph.intercept.install import (
    hook_tool_functions,
    install,
    installed,
    uninstall,
)
from dreamgym_kit.adapters.langgraph.intercept.patches import subclasses
from dreamgym_kit.routing.process import entered, holding

ROOTS = (BaseTool, BaseChatModel, Pregel)


def entries() -> dict[tuple[type, str], Any]:
    """Every entry of every class that the gate may touch."""
    owners = [owner for root in ROOTS for owner in subclasses(root)]
    return {(owner, name): value for owner in owners for name, value in owner.__dict__.items()}


def changed(before: dict[tuple[type, str], Any]) -> list[str]:
    """Entries that are not what they were; classes made since do not count."""
    now = entries()
    owners = {owner for owner, _ in before}
    names = [key for key in before if now.get(key) is not before[key]]
    names += [key for key in now if key[0] in owners and key not in before]
    caches = ("__abstractmethods__", "_abc_impl", "__signature__", "__pydantic_")
    return [f"{owner.__name__}.{name}" for owner, name in names if not name.startswith(caches)]


@pytest.fixture(autouse=True)
def without_gate() -> None:
    """What an earlier test started may have left the gate in."""
    uninstall()


@pytest.mark.filterwarnings("ignore")
def test_uninstalling_restores_every_class_entry(canary: Canary) -> None:
    for maker, _ in KINDS.values():
        maker()
    before = entries()
    install()
    assert any(name == "BaseTool.run" for name in changed(before))
    for shape in SHAPES[:3]:
        run_dreamt(shape, "sync")
    uninstall()
    assert changed(before) == []


def test_installing_twice_is_installing_once() -> None:
    before = entries()
    install()
    install()
    assert installed()
    uninstall()
    uninstall()
    assert changed(before) == []
    assert not installed()


def test_classes_made_while_installed_are_left_as_they_were_written() -> None:
    install()

    class Late(BaseTool):
        name: str = "late"
        description: str = "d"

        def _run(self, a: int) -> int:
            return a

    written = Late._run.__wrapped__  # type: ignore[attr-defined]
    uninstall()
    assert Late.__dict__["_run"] is written


def test_what_others_set_in_the_meantime_stays() -> None:
    class Mine(ClassTool):
        def _run(self, a: int) -> str:
            return "mine"

    def other(self: Any, a: int) -> str:
        return "other"

    install()
    Mine._run = other  # type: ignore[method-assign]
    hook_tool_functions()
    assert Mine._run is not other
    uninstall()
    assert Mine.__dict__["_run"] is other


def test_hooked_functions_are_restored() -> None:
    refund, tool = plain_refund(), add_tool()
    before = refund.__code__, tool.__dict__["func"].__code__
    install()
    ScriptedModelDouble(script=["x"]).bind_tools([refund])
    hook_tool_functions()
    assert {"refund", "add"} <= hooked_names()
    uninstall()
    assert (refund.__code__, tool.__dict__["func"].__code__) == before
    assert hooked_names() == set()


def test_the_gate_cannot_be_taken_out_under_a_dream() -> None:
    install()
    with entered(dream()), pytest.raises(RuntimeError, match="session is open"):
        uninstall()
    with holding(), pytest.raises(RuntimeError, match="a dream begins"):
        uninstall()
    uninstall()


@each_row("kind", KINDS)
def test_a_tool_shows_the_framework_the_same_schema_with_the_gate(kind: str) -> None:
    maker, _ = KINDS[kind]
    bare = maker()
    without = bare.tool_call_schema, bare.args, bare.get_input_jsonschema()
    install()
    try:
        gated = maker()
        with entered(dream()):
            within = gated.args, gated.get_input_jsonschema()
        assert within == without[1:]
    finally:
        uninstall()
