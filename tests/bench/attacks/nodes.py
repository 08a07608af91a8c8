"""In which kind of node it happens: each text makes `graph` of `turn`.

`$new` is what of the new messages stays in the state.
"""

from collections.abc import Mapping

_ONE_NODE = """
build = StateGraph(MessagesState)
build.add_node("work", {node})
build.add_edge(START, "work")
build.add_edge("work", END)
graph = build.compile()
"""
_NODE = """
$adef work(state):
    return {"messages": $new}
"""
_NOTE = """
$adef note(text: str) -> str:
    "Take a note."
    return text
"""
_NOTED = """
writer = Scripted(script=[[asks("note", text="about o1")]])
bound_note = writer.bind_tools([noted])
$adef write(state):
    return {"messages": [$await bound_note.$invoke(state["messages"])]}
build = StateGraph(MessagesState)
build.add_node("write", write)
build.add_node("tools", ToolNode([noted]))
build.add_edge(START, "write")
build.add_conditional_edges("write", lambda state: "tools" if state["messages"][-1].tool_calls else END)
build.add_edge("tools", "write")
graph = build.compile()
"""
_NOTE_TOOL = (
    'noted = effect("pure")(StructuredTool.from_function(${{by_turn}}note, name="note", '
    'description="Take a note."{more}))\n'
)

NODES: Mapping[str, str] = {
    "a function": _NODE + _ONE_NODE.format(node="work"),
    "a class": (
        'class Work:\n    $adef __call__(self, state):\n        return {"messages": $new}\n'
        + _ONE_NODE.format(node="Work()")
    ),
    "a RunnableLambda": _NODE + _ONE_NODE.format(node="$runnable"),
    "a subgraph": (
        _NODE + _ONE_NODE.format(node="work") + "inner = graph\n" + _ONE_NODE.format(node="inner")
    ),
    "a task": (
        "@task\n$adef work(messages):\n    return $new_of_messages\n"
        "@entrypoint()\n$adef graph(given):\n"
        '    asked = convert_to_messages(given["messages"])\n'
        '    return {"messages": [*asked, *$await_task]}\n'
    ),
    "middleware": (
        "class Works(AgentMiddleware):\n"
        '    $adef $before_model(self, state, runtime):\n        return {"messages": $new}\n'
        "graph = create_agent(Scripted(script=[]), [], middleware=[Works()])\n"
    ),
    "a conditional edge": (
        "$adef route(state):\n    new = $new\n    return END if new else END\n"
        'build = StateGraph(MessagesState)\nbuild.add_node("idle", lambda state: {"messages": []})\n'
        'build.add_edge(START, "idle")\n'
        'build.add_conditional_edges("idle", route, [END])\ngraph = build.compile()\n'
    ),
    "a validator": (
        _NOTE + 'class Note(BaseModel):\n    text: str\n    @field_validator("text")\n    @classmethod\n'
        '    def see(cls, text):\n        state = {"messages": [HumanMessage(text)]}\n'
        "        $new\n        return text\n" + _NOTE_TOOL.format(more=", args_schema=Note") + _NOTED
    ),
    "a callback": (
        _NOTE + "class Sees(BaseCallbackHandler):\n    raise_error = True\n    run_inline = True\n"
        "    def on_tool_start(self, serialized, text, **more):\n"
        '        state = {"messages": [HumanMessage(text)]}\n'
        "        $new\n" + _NOTE_TOOL.format(more=", callbacks=[Sees()]") + _NOTED
    ),
}
SYNC_ONLY = ("a validator", "a callback")  # the framework calls them without awaiting
