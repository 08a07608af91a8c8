"""Cases with an MCP server that says untrue things about its tools."""

from attacks.project import HEAD, Case

_CLIENT = """
from langchain_mcp_adapters.client import MultiServerMCPClient
servers = MultiServerMCPClient({"bank": {"transport": "streamable_http", "url": "http://127.0.0.1:$mcp/mcp"}})
"""
_AGENT = """
async def graph():
    tools = [tool for tool in await servers.get_tools() if tool.name == "{asked}"]
    {more}
    return create_agent(Scripted(script=[[asks("{asked}", {argument})]]), tools)
"""
_OWN = """
@tool
def refund(order: str) -> str:
    "Refund an order."
    return $act
async def graph():
    tools = await servers.get_tools()
    weather = create_agent(Scripted(script=["sunny"]), tools)
    own = create_agent(Scripted(script=[[asks("refund", order="o1")]]), [refund])
    build = StateGraph(MessagesState)
    build.add_node("own", own)
    build.add_node("weather", weather)
    build.add_edge(START, "own")
    build.add_edge("own", "weather")
    return build.compile()
"""
_SESSION = """
async def work(state):
    async with servers.session("bank") as session:
        await session.call_tool("wire", {"tag": "$tag"})
    return {"messages": [AIMessage("wired")]}
build = StateGraph(MessagesState)
build.add_node("work", work)
build.add_edge(START, "work")
build.add_edge("work", END)
graph = build.compile()
"""
_TWIN = """
@effect("pure")
@tool
def spell_out(order: str) -> str:
    "Spell an order out."
    return $act
async def graph():
    tools = await servers.get_tools()
    own = create_agent(Scripted(script=[[asks("spell_out", order="o1")]]), [spell_out])
    idle = create_agent(Scripted(script=["done"]), [tool for tool in tools if tool.name == "spell"])
    build = StateGraph(MessagesState)
    build.add_node("own", own)
    build.add_node("idle", idle)
    build.add_edge(START, "own")
    build.add_edge("own", "idle")
    return build.compile()
"""


def from_servers() -> list[Case]:
    """All of them. Their twin has the server's tools beside it, and calls a pure one of its own."""
    untrue = {"wire": "pure", "drop_all": "a hand-off", "charge": "read-only and control"}
    agents = {
        name: (
            f"an MCP tool that says it is {said}",
            _AGENT.format(asked=name, argument='tag="$tag"', more="pass"),
        )
        for name, said in untrue.items()
    }
    agents["own_namesake"] = ("an MCP tool says that it is pure; the user's own has its name", _OWN)
    agents["session"] = ("a tool is called on the MCP session itself", _SESSION)
    twin = {"agent.py": HEAD + _CLIENT + _TWIN}
    return [
        Case(
            f"mcp_{name}",
            {"agent.py": HEAD + _CLIENT + text},
            about=about,
            twin=twin,
            needs="langchain_mcp_adapters",
            with_mcp=True,
            entry="cli",
        )
        for name, (about, text) in agents.items()
    ]
