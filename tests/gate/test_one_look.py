"""The steps of a start share one look at all objects: it keeps no litter, and sees what an import added."""

import gc
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import Living
from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS
from dreamgym_kit.adapters.langgraph.intercept.functions import hook, hook_of, hook_twins
from dreamgym_kit.adapters.langgraph.intercept.install import hook_tool_functions
from dreamgym_kit.adapters.langgraph.intercept.object_effects import bearers_of

pytestmark = pytest.mark.usefixtures("gate")
SOURCE = "def act(order):\n    return order\n"


def loaded(name: str, file: Path) -> Any:
    module = types.ModuleType(name)
    exec(compile(SOURCE, str(file), "exec"), module.__dict__)
    return module


def made(number: int) -> Any:
    @tool
    def looked(order: str) -> str:
        """Look."""
        return f"{order} {number}"

    return looked


def other() -> Any:
    @tool
    def looked(order: str) -> str:
        """Look elsewhere."""
        return order * 2

    return looked


def test_what_nobody_else_holds_is_litter() -> None:
    kept, dropped = made(1), made(2)
    dropped.metadata = {"self": dropped}  # the garbage collector alone can free it
    living = Living()
    assert sum(one.name == "looked" for one in living.tools()) == 2
    del dropped
    gc.collect()
    assert [one for one in living.tools() if one.name == "looked"] == [kept]


def test_a_module_that_came_after_the_look_is_looked_at_too(tmp_path: Path) -> None:
    first = loaded("first_of_look", tmp_path / "act.py")
    hook(first.act, "act")
    living = Living()
    second = sys.modules["second_of_look"] = loaded("second_of_look", tmp_path / "act.py")
    try:
        hook_twins(living)
    finally:
        del sys.modules["second_of_look"]
    assert hook_of(second.act) is not None


def test_the_same_code_in_another_file_is_no_twin(tmp_path: Path) -> None:
    first, second, third = (loaded(f"{name}_of_file", tmp_path / f"{name}.py") for name in ("a", "b", "a"))
    hook(first.act, "act")
    hook_twins()
    assert first.act.__code__ is not second.act.__code__
    assert (hook_of(second.act), hook_of(third.act) is not None) == (None, True)


def test_litter_of_a_name_is_collected_unless_all_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[int] = []
    real = gc.collect
    monkeypatch.setattr(gc, "collect", lambda *args: collected.append(1) or real(*args))
    kept, dropped = made(1), other()
    dropped.metadata = {"self": dropped}
    HOLDINGS.scan()
    del dropped
    assert [id(one) for one in bearers_of("looked")] == [id(kept)]
    assert collected == [1]
    second = other()
    hook_tool_functions()
    assert {id(one) for one in bearers_of("looked")} == {id(kept), id(second)}
    assert collected == [1]  # hooks hold both


def test_a_class_that_cannot_be_hashed_hides_nothing() -> None:
    class Unhashable(type):
        def __hash__(cls) -> int:
            raise TypeError("not this one")

    class Odd(metaclass=Unhashable):
        pass

    odd, kept = Odd(), made(3)
    odd.kept = kept
    assert any(one is kept for one in Living().tools())
