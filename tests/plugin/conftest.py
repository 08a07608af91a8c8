"""A project of a user's own, in a folder of its own: an agent, its tools that leave a trace, and tests."""

from collections.abc import Callable
from pathlib import Path

import langchain.agents  # noqa: F401  imported here, once: pytester forgets what a run of its own imports
import pytest

import dreamgym_kit.adapters.pytest_plugin.dream  # noqa: F401
from dreamgym_kit.adapters.pytest_plugin import fixture_scope

PLUGIN = ("-p", "dreamgym_kit.adapters.pytest_plugin.plugin")

AGENT = '''
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

TOUCHED = Path(__file__).with_name("touched")


class ScriptedModelDouble(BaseChatModel):
    """Looks the order up, cancels it, and says so; the order is the last word of what the user says."""

    @property
    def _llm_type(self): return "scripted-double"

    def bind_tools(self, tools, **kwargs): return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        order = next(one for one in messages if one.type == "human").text.split()[-1].strip(".")
        told = sum(isinstance(one, AIMessage) for one in messages)
        calls = [("get_order", {"order_id": order}), ("cancel_order", {"order_id": order, "reason": "asked"})]
        if told < len(calls):
            name, args = calls[told]
            call = {"name": name, "args": args, "id": f"c{told}", "type": "tool_call"}
            said = AIMessage("", tool_calls=[call])
        else:
            said = AIMessage(f"{order} is cancelled.")
        return ChatResult(generations=[ChatGeneration(message=said)])


def touch(what):
    with TOUCHED.open("a") as file:
        file.write(what + "\\n")


@tool
def get_order(order_id: str) -> dict:
    """Get an order."""
    touch(f"get {order_id}")
    return {"id": order_id, "status": "open", "customer": {"name": "J\\u00f6rg"}}


@tool
def cancel_order(order_id: str, reason: str) -> str:
    """Cancel an order."""
    touch(f"cancel {order_id}")
    return "ok"


@tool
def delete_account(user: str) -> str:
    """Delete an account."""
    touch(f"delete {user}")
    return "gone"


graph = create_agent(ScriptedModelDouble(), [get_order, cancel_order, delete_account])
'''

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with the agent in it; no CI system."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # hypothesis alone would be imported each time
    pytester.makepyfile(agent=AGENT)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.syspathinsert()
    return pytester


@pytest.fixture
def run(project: pytest.Pytester) -> Run:
    """Run the project's tests in this process."""
    return lambda *args: project.runpytest_inprocess(*PLUGIN, "-p", "no:cacheprovider", "-q", *args)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread may end as late as it likes; a test that leaves one says `held._SETTLE_S = 0`."""
    monkeypatch.setattr(fixture_scope, "_SETTLE_S", 3600.0)


@pytest.fixture
def touched(project: pytest.Pytester) -> Callable[[], list[str]]:
    """What the real tools did so far."""
    path: Path = project.path / "touched"
    return lambda: path.read_text().split("\n")[:-1] if path.exists() else []
