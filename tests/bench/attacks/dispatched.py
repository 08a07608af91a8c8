"""How an agent comes to run what it holds: `turn(messages)` gives the messages that one turn of work adds.

`$plain` is the function that it holds and `$get` the tool, `$bound` the model that was told of it, and
`$answer` how the model hears of what came out.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dispatched:
    """One way, as text."""

    source: str
    by_name: bool = True  # the model names what it was told of
    tools: bool = False  # for tools only
    node: bool = False  # for what a ToolNode takes
    owner: bool = False  # for what is an attribute of something
    plain_body: bool = False  # for bodies that are no coroutines


_MODEL = 'model = Scripted(script=[[asks("$name", order="o1")]])\n'
_TURN = "$adef turn(messages):\n    $beside\n    messages, came = list(messages), len(messages)\n"


def _asked(*run: str, tools: bool = False, owner: bool = False, plain_body: bool = False) -> Dispatched:
    """The usual loop by hand; `run` makes `out` of `call`."""
    source = (
        f"{_MODEL}{_TURN}    bound = $bound\n    while True:\n"
        "        said = $await bound.$invoke(messages)\n        messages.append(said)\n"
        "        if not said.tool_calls:\n            return messages[came:]\n"
        "        for call in said.tool_calls:\n"
    )
    lines = [f"            {line}\n" for line in (*run, "messages.append($answer)")]
    return Dispatched(source + "".join(lines), tools=tools, owner=owner, plain_body=plain_body)


def _said(model: str, *run: str) -> Dispatched:
    """The model is asked once, and told of nothing; `run` makes `out` of what it `said`."""
    lines = [f"    {line}\n" for line in ("said = $await model.$invoke(messages)", *run)]
    end = '    return [*messages[came:], HumanMessage(f"Result: {out}"), AIMessage(f"Done: {out}")]\n'
    return Dispatched(f"{model}{_TURN}{''.join(lines)}{end}", by_name=False)


DISPATCHED: Mapping[str, Dispatched] = {
    "ToolNode": Dispatched(
        f"{_MODEL}bound_here = $bound\n"
        "$adef ask(state):\n"
        '    return {"messages": [$await bound_here.$invoke(state["messages"])]}\n'
        "asking = StateGraph(MessagesState)\n"
        'asking.add_node("ask", ask)\nasking.add_node("tools", ToolNode([$get]))\n'
        'asking.add_edge(START, "ask")\nasking.add_edge("tools", "ask")\n'
        'asking.add_conditional_edges("ask", lambda s: "tools" if s["messages"][-1].tool_calls else END)\n'
        "asker = asking.compile()\n"
        f'{_TURN}    ended = $await asker.$invoke({{"messages": messages}})\n'
        '    return ended["messages"][came:]\n',
        node=True,
    ),
    "tool.invoke": _asked("out = ($await $get.$invoke(call)).content", tools=True),
    "a table of names": _asked('out = $hawait {"$name": $plain}[call["name"]](**call["args"])'),
    "getattr": _asked('out = $hawait getattr($owner, call["name"])(**call["args"])', owner=True),
    "match": _asked(
        "match call:",
        '    case {"name": "$name", "args": {"order": order}}:',
        "        out = $hawait $plain(order)",
    ),
    "a thread": _asked('ran = ($plain, *call["args"].values())', "out = $in_thread", plain_body=True),
    "a structured answer": _said(
        'class Action(BaseModel):\n    "What to do."\n    action: str\n    order: str\n'
        'asked = [[asks("Action", action="$name", order="o1")]]\n'
        "model = Scripted(script=asked).with_structured_output(Action)\n",
        'out = $hawait $plain(said.order) if said.action == "$name" else "nothing"',
    ),
    "code of the model": _said(
        "model = Scripted(script=['result = $name(\"o1\")'])\n",
        'space = {"$name": $plain}',
        "exec(said.content, space)",
        'out = $hawait space["result"]',
    ),
    "text that is parsed": _said(
        'model = Scripted(script=["Thought: I see.\\nAction: $name[o1]"])\n',
        'asked = re.search(r"Action: (\\w+)\\[(.*)\\]", said.content)',
        'out = $hawait {"$name": $plain}[asked[1]](asked[2])',
    ),
}
ANSWERS: Mapping[str, str] = {
    "a tool message": 'ToolMessage(str(out), tool_call_id=call["id"], name=call["name"])',
    "a human message": 'HumanMessage(f"Result: {out}")',
}
