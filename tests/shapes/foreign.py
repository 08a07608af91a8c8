"""Other packages' agents: supervisor, swarm, deepagents, MCP. What is not installed is left out."""

import warnings
from importlib.util import find_spec
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from shapes.agents import ADD, invoked, with_create_agent
from shapes.canary import touch
from shapes.models import ScriptedModelDouble, asks
from shapes.stage import HELLO, Catalogue, Runs, tool_messages
from shapes.tools import add_tool

CATALOGUE = Catalogue()


class SupervisorModelDouble(BaseChatModel):
    """Hands over to `math` until its answer is there."""

    @property
    def _llm_type(self) -> str:
        return "supervisor-double"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        done = any("math done" in str(m.content) or getattr(m, "name", "") == "add" for m in messages)
        turn = AIMessage("final") if done else AIMessage("", tool_calls=[asks("transfer_to_math")])
        return ChatResult(generations=[ChatGeneration(message=turn)])


if find_spec("langgraph_supervisor"):

    @CATALOGUE.add("supervisor, hand-off as control", control=("transfer_to_math",))
    def _supervisor() -> Runs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from langgraph_supervisor import create_supervisor

            script = ["never said: the hand-off counts as a turn", [asks("add", ADD)], "math done"]
            worker = with_create_agent([add_tool()], script, name="math")
            graph = create_supervisor([worker], model=SupervisorModelDouble()).compile()
        return invoked(graph, looks=lambda result: result["messages"][-1].content == "final")


if find_spec("langgraph_swarm"):

    @CATALOGUE.add("swarm, hand-off as control", control=("transfer_to_bob",))
    def _swarm() -> Runs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from langgraph_swarm import create_handoff_tool, create_swarm

            alice = with_create_agent(
                [add_tool(), create_handoff_tool(agent_name="Bob")],
                [[asks("transfer_to_bob")], "alice"],
                name="Alice",
            )
            bob = with_create_agent([add_tool()], [[asks("add", ADD)], [asks("add", ADD)], "bob"], name="Bob")
            graph = create_swarm([alice, bob], default_active_agent="Alice").compile()
        return invoked(graph, looks=lambda result: result.get("active_agent") == "Bob")


if find_spec("deepagents"):
    OWN_TOOLS = ("write_todos", "write_file", "read_file", "ls", "edit_file", "glob", "grep", "task")

    def _deep() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from deepagents import create_deep_agent

            script = [
                [asks("write_file", {"file_path": "/a.txt", "content": "hi"})],
                [asks("read_file", {"file_path": "/a.txt"})],
                [asks("add", ADD)],
                [asks("task", {"description": "do", "subagent_type": "sub"})],
                "done",
            ]
            made = add_tool()
            worker = {
                "name": "sub",
                "description": "d",
                "system_prompt": "p",
                "tools": [made],
                "model": ScriptedModelDouble(script=[[asks("add", {"a": 9})], "subagent done"]),
            }
            return create_deep_agent(ScriptedModelDouble(script=script), [made], subagents=[worker])

    @CATALOGUE.add("deepagents, its own tools as control", dreamt=2, control=OWN_TOOLS)
    def _deep_control() -> Runs:
        return invoked(_deep(), looks=lambda r: "subagent done" in str(tool_messages(r)[-1].content))

    @CATALOGUE.add("deepagents, all dreamt", dreamt=4)
    def _deep_dreamt() -> Runs:
        return invoked(_deep())


def mcp_server() -> Any:
    """A server with one tool, in this process."""
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("shapes", log_level="ERROR")

    @server.tool()
    def mul(a: int, b: int) -> int:
        """Multiply."""
        touch("mul")
        return a * b

    return server


async def with_mcp(script: list[Any], use: Any) -> Any:
    """Let `use` run with an agent whose tools live behind memory streams."""
    from langchain_mcp_adapters.tools import load_mcp_tools
    from mcp.shared.memory import create_connected_server_and_client_session

    async with create_connected_server_and_client_session(mcp_server()._mcp_server) as client:
        tools = await load_mcp_tools(client)
        return await use(with_create_agent(tools, script), tools)


if find_spec("langchain_mcp_adapters"):

    @CATALOGUE.add("MCP tool over memory streams")
    def _mcp() -> Runs:
        async def use(graph: Any, _: Any) -> Any:
            return await graph.ainvoke(HELLO)

        def looks(result: Any) -> bool:
            return [_text(message) for message in tool_messages(result)] == ["42"]

        return Runs(anync=lambda: with_mcp([[asks("mul", {"a": 3, "b": 4})], "done"], use), looks=looks)


def _text(message: ToolMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return "".join(str(block.get("text", "")) for block in message.content if isinstance(block, dict))


SHAPES = CATALOGUE.shapes
