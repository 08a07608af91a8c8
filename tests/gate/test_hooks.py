"""A hooked function meets the gate by every reference, and is exactly what it was once unhooked."""

import asyncio
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any

import pytest
from each_row import each_row
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.func import entrypoint, task
from langgraph.prebuilt import InjectedState
from shapes.canary import Canary, touch
from shapes.stage import DREAMT, ScriptedExperienceDouble, dream
from shapes.tools import add_tool

from dreamgym_kit.adapters.langgraph.intercept.functions import NotHookable, hook, unhook_all
from dreamgym_kit.adapters.langgraph.intercept.install import hook_tool_functions
from dreamgym_kit.adapters.langgraph.intercept.patches import reroute
from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.routing.supervision import RunBody
from dreamgym_kit.types import Answer, Source

pytestmark = pytest.mark.usefixtures("gate")
BIAS = 10


def api(order: str, *, amount: int = 1) -> int:
    """Doc."""
    touch("api")
    return amount + BIAS


async def aapi(order: str, amount: int = 1) -> int:
    touch("aapi")
    return amount


def pages(order: str) -> Iterator[int]:
    touch("pages")
    yield 1
    yield 2


def closure_over(extra: int) -> Any:
    def clo(x: int) -> int:
        touch("clo")
        return x + extra

    return clo


class Client:
    def send(self, to: str, *parts: str, **more: Any) -> str:
        touch("send")
        return to

    @classmethod
    def ping(cls, host: str) -> str:
        touch("ping")
        return host


alias = api


def test_a_function_of_a_module_loaded_again_between_sessions_is_hooked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made_again.py").write_text("def send(to):\n    raise SystemExit('it ran')\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("made_again")
    hook(module.send, "send")
    made_again = importlib.reload(module).send
    del sys.modules["made_again"]
    with entered(dream()):
        assert made_again("x") == DREAMT


def facts(function: Any) -> tuple[Any, ...]:
    return (
        function.__code__,
        function.__defaults__,
        function.__kwdefaults__,
        dict(function.__dict__),
        function.__name__,
        function.__doc__,
        dict(function.__annotations__),
        inspect.signature(function),
    )


@each_row("function", [api, aapi, pages, closure_over(1), Client.send], ids=lambda f: f.__name__)
def test_unhooking_leaves_a_function_exactly_as_it_was(function: Any) -> None:
    before = facts(function)
    hook(function, "x")
    assert function.__code__ is not before[0]
    unhook_all()
    assert facts(function) == before


@each_row("function", [api, aapi, pages, closure_over(1), Client.send], ids=lambda f: f.__name__)
def test_a_hooked_function_looks_like_itself(function: Any) -> None:
    before = facts(function)[4:]
    kinds = [inspect.iscoroutinefunction, inspect.isgeneratorfunction]
    was = [kind(function) for kind in kinds]
    hook(function, "x")
    assert facts(function)[4:] == before
    assert [kind(function) for kind in kinds] == was


def test_outside_a_session_a_hooked_function_does_its_work(canary: Canary) -> None:
    clo = closure_over(5)
    for function in (api, aapi, pages, clo, Client.send, Client.ping):
        hook(function, "x")
    assert alias("o", amount=3) == 13
    assert clo(1) == 6
    assert list(pages("o")) == [1, 2]
    assert asyncio.run(aapi("o", 4)) == 4
    assert Client().send("a", "b", c=1) == "a"
    assert Client.ping("h") == "h"
    assert canary.written() == ["api", "clo", "pages", "aapi", "send", "ping"]


def test_every_reference_is_answered_and_the_arguments_are_named(canary: Canary) -> None:
    clo = closure_over(5)
    for function, name in ((api, "api"), (aapi, "aapi"), (clo, "clo"), (Client.send, "send")):
        hook(function, name)
    partial = functools.partial(api, "o2")
    experience = ScriptedExperienceDouble()
    with entered(dream(experience)):
        said = [alias("o"), partial(amount=7), clo(1), Client().send("a", "b", c=1), asyncio.run(aapi("o"))]
    assert said == [DREAMT] * 5
    assert [(call.tool, dict(call.args)) for call in experience.asked] == [
        ("api", {"order": "o", "amount": 1}),
        ("api", {"order": "o2", "amount": 7}),
        ("clo", {"x": 1}),
        ("send", {"to": "a", "parts": ["b"], "c": 1}),
        ("aapi", {"order": "o", "amount": 1}),
    ]
    assert canary.written() == []


def test_a_generator_yields_the_items_of_its_answer(canary: Canary) -> None:
    hook(pages, "pages")
    listed = ScriptedExperienceDouble(lambda call: Answer([7, 8], Source.SCRIPTED))
    with entered(dream(listed)):
        assert list(pages("o")) == [7, 8]
    assert canary.written() == []


SECRET = "sk-planted-abcdefghijklmnop"


def single(order: str) -> str:
    """Look an order up."""
    return touch("single")


async def double(order: str) -> str:
    """Look an order up."""
    return touch("double")


@each_row(
    "call",
    [
        lambda: tool(single).invoke({"order": SECRET}),
        lambda: asyncio.run(tool(double).ainvoke({"order": SECRET})),
        lambda: api(SECRET),
        lambda: asyncio.run(aapi(order=SECRET)),
        lambda: list(pages(SECRET)),
    ],
    ids=["tool", "async tool", "function", "coroutine", "generator"],
)
def test_no_way_into_a_dream_tells_it_a_secret(call: Any, canary: Canary) -> None:
    for function in (api, aapi, pages):
        hook(function, function.__name__)
    experience = ScriptedExperienceDouble()
    session = dream(experience)
    with entered(session):
        call()
    (asked,), (kept,) = experience.asked, session.ledger.transitions()
    assert asked.args["order"] == kept.call.args["order"] == "<masked>"
    assert canary.written() == []


def test_a_wrong_call_fails_as_the_function_itself_would() -> None:
    hook(api, "api")
    with entered(dream()), pytest.raises(TypeError, match="missing a required argument: 'order'"):
        api()


def test_a_task_body_is_answered(canary: Canary) -> None:
    @task
    def pay(order: str) -> str:
        touch("pay")
        return order

    @entrypoint()
    def flow(order: str) -> str:
        return pay(order).result()

    hook(pay.func, "pay")
    with entered(dream()):
        assert flow.invoke("o1") == DREAMT
    assert canary.written() == []


def test_a_control_function_runs_once_and_is_kept(canary: Canary) -> None:
    hook(api, "api")
    session = dream(control=("api",))
    with entered(session):
        assert api("o") == 11
    assert canary.written() == ["api"]
    assert [(e.call.tool, e.answer.content) for e in session.ledger.transitions()] == [("api", 11)]


def test_a_tool_over_a_hooked_function_is_one_call_not_two(canary: Canary) -> None:
    made = add_tool()
    body = made.__dict__["func"]
    hook_tool_functions()
    session = Session(CallRouter(Mode.RECORD))
    with entered(session):
        assert made.invoke({"a": 1}) == 6
        assert body(1, 1) == 2
    assert [entry.call.tool for entry in session.ledger.transitions()] == ["add", "add"]
    assert canary.written() == ["add", "add"]


def test_a_captured_function_does_not_tell_the_dream_what_was_injected(canary: Canary) -> None:
    @tool
    def inj(
        a: int, state: Annotated[dict, InjectedState], call_id: Annotated[str, InjectedToolCallId]
    ) -> str:
        """Injected."""
        touch("inj")
        return "real"

    body = inj.__dict__["func"]
    hook_tool_functions()
    experience = ScriptedExperienceDouble()
    with entered(dream(experience)):
        body(a=1, state={"secret": 1}, call_id="c")
    assert [dict(call.args) for call in experience.asked] == [{"a": 1}]


def _one() -> Any:
    yield 1


async def _async_pages() -> Any:
    yield 1


class CallableObject:
    def __call__(self, x: int) -> int:
        return x


@each_row(
    "target",
    [len, functools.partial(api, "o"), CallableObject(), _async_pages],
    ids=["builtin", "partial", "callable object", "async generator"],
)
def test_what_has_no_code_of_its_own_is_refused_by_name(target: Any) -> None:
    with pytest.raises(NotHookable):
        hook(target, "x")


def test_hooking_twice_is_hooking_once(canary: Canary) -> None:
    assert hook(api, "api") is hook(alias, "other name")
    unhook_all()
    assert api("o") == 11


def test_what_answers_is_registered_before_a_call_can_arrive() -> None:
    """Another thread may be about to call the function while it is rerouted."""

    def add(first: int, second: int) -> int:
        return first + second

    own, found = add.__code__, list[bool]()

    def register(real: FunctionType, put_back: Callable[[], None]) -> None:
        found.append(add.__code__ is own and real(1, 2) == 3)
        undo.append(put_back)

    undo: list[Callable[[], None]] = []
    reroute(add, f"{__name__}:_arrived", 7, register)
    assert found == [True]
    assert add(1, 2) == (7, (1, 2))
    undo[0]()
    assert add(1, 2) == 3


def _arrived(number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return number, args


class InterruptedFlowDouble:
    """A flow whose driver gets a Ctrl-C between two steps."""

    closed = False

    def __next__(self) -> RunBody:
        return RunBody(lambda: "paid")

    def send(self, reply: object) -> RunBody:
        raise KeyboardInterrupt

    def close(self) -> None:
        self.closed = True


def test_a_flow_that_is_left_between_two_steps_is_closed() -> None:
    flow = InterruptedFlowDouble()
    with pytest.raises(KeyboardInterrupt):
        Session.drive(None, flow)  # type: ignore[arg-type]
    assert flow.closed
