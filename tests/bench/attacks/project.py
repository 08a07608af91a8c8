"""What every generated agent has: a scripted chat model, the bank's SDK, a task, settings.

In a case's text stand `$name` (of the function that acts), `$act` (what it does, an expression of `order`),
`$imports` (what that needs), and for async cases `$adef` and `$await`. The harmless twin of a case is the
same text with an `$act` that only computes.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from attacks.zygote import TASK

DOUBLE = '''
import itertools
from typing import Any
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

IDS = itertools.count(1)


def asks(name, **args):
    return {"name": name, "args": args, "id": f"call-{next(IDS)}", "type": "tool_call"}


class Scripted(BaseChatModel):
    """Says a turn of its script for each message that it said before; the last one repeats what it heard."""

    script: list[Any]

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, *, tool_choice=None, **kwargs):
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        said = sum(isinstance(message, AIMessage) for message in messages)
        turn = self.script[said] if said < len(self.script) else f"Done: {messages[-1].content}"
        if isinstance(turn, str):
            message = AIMessage(turn)
        else:
            message = AIMessage("", tool_calls=[{**call, "id": f"{call['id']}-{said}"} for call in turn])
        return ChatResult(generations=[ChatGeneration(message=message)])
'''
SDK = '''
import socket

TAG, PORT = "$tag", $port


class Client:
    """A customer's line to the bank, open since the module was imported."""

    def __init__(self, keep):
        self.line = self.connected() if keep else None

    def connected(self):
        return socket.create_connection(("127.0.0.1", PORT)).makefile("rw", encoding="utf-8")

    def refund(self, order: str) -> str:
        """Refund an order."""
        line = self.line or self.connected()
        line.write(TAG + "\\n")
        line.flush()
        return line.readline().strip()


client = Client(keep=$keep)
'''
SPELLING = '''
class Client:
    """Spells; nothing else."""

    def spell_out(self, order: str) -> str:
        """Spell an order out."""
        return f"order {order.upper()} is spelled out"


client = Client()
'''
HEAD = '''
import asyncio, functools, importlib, re, sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict
from pydantic import BaseModel, field_validator
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, wrap_tool_call
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from dreamgym_kit import effect
from double import Scripted, asks
$imports

SCHEMA = {"type": "function", "function": {"name": "$name", "description": "$doc", "parameters": {
    "type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}}}


@effect("pure")
@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

'''
SINKS: Mapping[str, tuple[str, str]] = {  # how a body acts: what it imports, what it does
    "kept": ("from bank_sdk import client", "client.refund(order)"),
    "fresh": ("from bank_sdk import client", "client.refund(order)"),
    "file": ("", 'str(open("$mark", "a").write(order))'),
    "program": ("import subprocess", 'str(subprocess.run(["touch", "$mark"]).returncode)'),
}
HARMLESS = ("from spelling import client", 'f"order {order.upper()} is spelled out"')


@dataclass(frozen=True, slots=True)
class Case:
    """One attack, and its harmless twin."""

    name: str
    files: Mapping[str, str]  # by path; templates, see above
    about: str = ""
    settings: str = ""  # of the attack
    twin_settings: str = ""  # of the twin: what a person would have said of it
    crossed: bool = False
    sink: str = "kept"
    entry: str = "python"  # the agent is imported before the dream begins; or cli
    is_async: bool = False
    twin: Mapping[str, str] | None = None  # of its own, where it is more than another `$act`
    words: Mapping[str, str] = field(default_factory=dict)  # more to fill in
    twin_words: Mapping[str, str] = field(default_factory=dict)
    structured: tuple[str, ...] = ()  # names that settings call answer forms
    needs: str = ""  # a module without which there is no such case
    with_mcp: bool = False  # it has an MCP server

    def write(self, folder: Path, tag: str, port: int, mcp: int, *, twin: bool) -> Path:
        """Write the agent's project; gives the file whose being there says that a body ran."""
        mark = folder / "out" / "mark"
        mark.parent.mkdir(parents=True)
        words = self._words(tag, port, str(mark), twin=twin) | {"mcp": str(mcp)}
        files = {"agent.py": "", **self.files, **(self.twin or {} if twin else {})}
        sdk = {"spelling.py": SPELLING} if twin else {"bank_sdk/__init__.py": SDK}
        forms = json.dumps(self.structured)
        settings = f'graph = "agent:graph"\nstructured_outputs = {forms}\n'
        settings += '[simulate]\non_unanswered = "error"\n[guard]\n'
        settings += f'allow_paths = ["out"]\nallow_commands = ["touch"]\n{self._hosts(port, mcp)}'
        settings += self.twin_settings if twin else self.settings
        fixed = {"double.py": DOUBLE, "dreamgym.toml": settings, **sdk}
        for name, text in {**fixed, **files}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(Template(text).safe_substitute(words)).safe_substitute(words), "utf-8")
        (folder / "tasks.jsonl").write_text(json.dumps({"id": "t1", "input": TASK}) + "\n", "utf-8")
        return mark

    def _hosts(self, port: int, mcp: int) -> str:
        """A kept line needs no leave where it was opened before the dream."""
        kept_open = self.entry == "python" and self.sink == "kept"
        more = f', "127.0.0.1:{mcp}"' if self.with_mcp else ""
        if kept_open:
            return f"allow_hosts = [{more[2:]}]\n"
        return f'allow_hosts = ["127.0.0.1:{port}"{more}]\n'

    def _words(self, tag: str, port: int, mark: str, *, twin: bool) -> dict[str, str]:
        imports, act = HARMLESS if twin else SINKS[self.sink]
        return {
            "name": "spell_out" if twin else "refund",
            "Name": "SpellOut" if twin else "Refund",
            "doc": "Spell an order out." if twin else "Refund an order.",
            "act": act,
            "act_quoted": act.replace('"', "'"),
            "imports": imports,
            "library": "spelling" if twin else "bank_sdk",
            "pure": '@effect("pure")' if twin else "",
            "mark_pure": 'effect("pure")' if twin else "",
            "adef": "async def" if self.is_async else "def",
            "await": "await " if self.is_async else "",
            "invoke": "ainvoke" if self.is_async else "invoke",
            "tag": tag,
            "port": str(port),
            "keep": str(self.sink == "kept"),
            "mark": mark,
            "python": sys.executable,
            **self.words,
            **(self.twin_words if twin else {}),
        }
