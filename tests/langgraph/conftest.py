"""Projects as users have them: a folder with an agent module, tasks and perhaps settings."""

import io
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from dreamgym_kit.adapters.langgraph.analysis.inspection import GraphInspection
from dreamgym_kit.adapters.langgraph.episode.runner import Run
from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.adapters.langgraph.run.experiences import AnswerSources
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.findings.detectors import BUILT_IN, OPTIONAL, Detectors
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import ToolSpec

_NUMBERS = itertools.count()

AGENT = '''
from typing import Any
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langchain.agents import create_agent
from pathlib import Path

TOUCHED = Path(__file__).parent / "touched"
STATUS = {"o1": "open"}


class ScriptedModelDouble(BaseChatModel):
    """Says its turns in order; a turn is a text or a list of (tool, args)."""

    turns: list[Any]
    call_id: str = ""

    @property
    def _llm_type(self): return "scripted-double"

    def bind_tools(self, tools, **kwargs): return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        said = sum(isinstance(message, AIMessage) for message in messages)
        turn = self.turns[min(said, len(self.turns) - 1)]
        calls = [] if isinstance(turn, str) else [
            {"name": name, "args": args, "id": self.call_id or f"call{said}-{number}", "type": "tool_call"}
            for number, (name, args) in enumerate(turn)
        ]
        usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
        message = AIMessage(turn if isinstance(turn, str) else "", tool_calls=calls, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


def touch(name):
    with TOUCHED.open("a") as file:
        file.write(name + " ")


@tool
def get_order(order_id: str) -> dict:
    """Read an order."""
    touch("get_order")
    return {"order_id": order_id, "status": STATUS.get(order_id, "unknown")}


@tool
async def cancel_order(order_id: str) -> str:
    """Cancel an order."""
    touch("cancel_order")
    STATUS[order_id] = "cancelled"
    return "ok"


TURNS = [[("get_order", {"order_id": "o1"})], [("cancel_order", {"order_id": "o1"})],
         [("get_order", {"order_id": "o1"})], "Cancelled."]
graph = create_agent(ScriptedModelDouble(turns=TURNS), [get_order, cancel_order])


def check(outcome):
    return any(entry.call.tool == "cancel_order" for entry in outcome.transitions)
'''


class Project:
    """A user's folder; `module` is unlike any other test's, for what hooks still hold of theirs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch, self._rows = (
            folder,
            monkeypatch,
            (folder / str(row) for row in range(10_000)),
        )
        self.enter()

    def enter(self) -> None:
        """What is written from here on is a module of its own."""
        self.module = f"agent_{next(_NUMBERS)}"
        self._patch.chdir(self.folder)
        self._patch.syspath_prepend(str(self.folder))

    def new_row(self) -> None:
        """The row of a table has a folder of its own: its `tmp_path`."""
        self.folder = next(self._rows)
        self.folder.mkdir(exist_ok=True)
        self.enter()

    def write(self, more: str = "", *, base: str = AGENT) -> str:
        """Write the agent module; gives the spec of its graph."""
        (self.folder / f"{self.module}.py").write_text(base + dedent(more))
        return f"{self.module}:graph"

    def touched(self) -> list[str]:
        """Real tool bodies that ran."""
        file = self.folder / "touched"
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    yield Project(tmp_path, monkeypatch)
    # a start reads every function that lives: those of earlier tests make each next one slower
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(tmp_path):
            for value in vars(sys.modules.pop(name)).values():
                if issubclass(type(value), io.IOBase):  # not isinstance: some raise when asked
                    value.close()


@pytest.fixture(scope="module", autouse=True)
def gate() -> Iterator[None]:
    install()
    yield
    uninstall()


@pytest.fixture
def run_of() -> Callable[..., Run]:
    """A run of a live graph, as `setup.prepared` makes it, with what a test gives in place of a part."""

    def made(
        graph: Any, specs: Sequence[ToolSpec] = (), settings: Settings | None = None, **parts: Any
    ) -> Run:
        known = {name.name for name in fields(AnswerSources)} & parts.keys()
        return Run(
            request=RunRequest(graph=graph, tasks=(), settings=settings or Settings()),
            graph=graph,
            facts=GraphInspection(tools=list(specs)),
            router=CallRouter(Mode.DREAM, {spec.name: spec for spec in specs}),
            detectors=Detectors({name: BUILT_IN[name] for name in BUILT_IN.keys() - OPTIONAL}),
            budget=RunBudget(None, None),
            sources=AnswerSources(**{name: parts.pop(name) for name in known}),
            **parts,
        )

    return made
