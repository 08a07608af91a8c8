"""Cases written by hand: the shapes by which bodies ran when the gate was attacked, in other words.

What else a body can be reached by stands in `written_in_nodes` and `written_called`.
"""

from attacks.project import HEAD, Case
from attacks.written_called import called
from attacks.written_given import given
from attacks.written_in_nodes import in_nodes
from attacks.written_mcp import from_servers
from attacks.written_swept import swept

FUNCTION = '\ndef $name(order: str) -> str:\n    "$doc"\n    return $act\n'
MODEL = 'model = Scripted(script=[[asks("$name", order="o1")]])\n'
LOOP = """
def ask(state):
    return {"messages": [bound.invoke(state["messages"])]}
build = StateGraph(MessagesState)
build.add_node("ask", ask)
build.add_node("act", act)
build.add_edge(START, "ask")
build.add_conditional_edges("ask", lambda state: "act" if state["messages"][-1].tool_calls else END)
build.add_edge("act", "ask")
graph = build.compile()
"""
PURE = '[functions."agent:$name"]\neffect = "pure"\n'
SUB_AGENT = """
def sub_agent(script, one):
    bound = Scripted(script=script).bind_tools([one])
    build = StateGraph(MessagesState)
    build.add_node("ask", lambda state: {"messages": [bound.invoke(state["messages"][came(state):])]})
    build.add_node("act", ToolNode([one]))
    build.add_edge(START, "ask")
    build.add_conditional_edges("ask", lambda state: "act" if state["messages"][-1].tool_calls else END)
    build.add_edge("act", "ask")
    return build.compile()
def came(state):
    return 0
def both(first, second):
    build = StateGraph(MessagesState)
    build.add_node("first", first)
    build.add_node("second", second)
    build.add_edge(START, "first")
    build.add_edge("first", "second")
    return build.compile()
"""


def acts(run: str, *, human: bool = False, bound: str = "model.bind_tools([$name])", before: str = "") -> str:
    """A loop whose node makes `out` of `call` by hand."""
    message = (
        'HumanMessage(f"Result: {out}")'
        if human
        else 'ToolMessage(str(out), tool_call_id=call["id"], name=call["name"])'
    )
    return (
        f"{before}{MODEL}bound = {bound}\ndef act(state):\n    new = []\n"
        f'    for call in state["messages"][-1].tool_calls:\n        {run}\n        new.append({message})\n'
        f'    return {{"messages": new}}\n{LOOP}'
    )


def case(name: str, about: str, text: str, **more: object) -> Case:
    """An agent in one file."""
    return Case(name, {"agent.py": HEAD + text}, about=about, **more)  # type: ignore[arg-type]


def written() -> list[Case]:
    """All of them."""
    return [
        *_ordinary(),
        *_stubs(),
        *_under_tools(),
        *_classes(),
        *_namesakes(),
        *_nodes(),
        *_beside(),
        *in_nodes(),
        *called(),
        *given(),
        *swept(),
        *from_servers(),
    ]


def _ordinary() -> list[Case]:
    tool = '\n$pure\n@tool\ndef $name(order: str) -> str:\n    "$doc"\n    return $act\n'
    agent = 'graph = create_agent(Scripted(script=[[asks("$name", order="o1")]]), [$name])\n'
    return [case("ordinary_tool", "a tool of an agent: what every gate has to hold", tool + agent)]


def _stubs() -> list[Case]:
    stub = (
        '\n$pure\n@tool\ndef $name(order: str) -> str:\n    "$doc"\n'
        '    raise NotImplementedError(f"{order} is for the dispatcher")\n'
        "class Service:\n    def carry_out(self, order):\n        return $act\n"
        'handlers = {"$name": Service().carry_out}\n'
    )
    in_table = 'out = table[call["name"]](**call["args"])'
    run = 'out = handlers[call["name"]](**call["args"])'
    pure = '[functions."agent:Service.carry_out"]\neffect = "pure"\nname = "$name"\n'
    empty = (
        f'{FUNCTION}form = StructuredTool(name="$name", description="$doc", args_schema={{"type": "object", '
        '"properties": {"order": {"type": "string"}}})\ntable = {"$name": $name}\n'
    )
    client = """
class Model:
    def create(self, messages, tools):
        if len(messages) > 1:
            return {"role": "assistant", "content": f"Done: {messages[-1]['content']}"}
        asked = {"id": "1", "name": tools[0]["function"]["name"], "arguments": {"order": "o1"}}
        return {"role": "assistant", "content": "", "calls": [asked]}
class State(TypedDict):
    messages: list
table = {"$name": $name}
def work(state):
    messages = [{"role": "user", "content": "please"}]
    while True:
        said = Model().create(messages, [SCHEMA])
        messages.append(said)
        if not said.get("calls"):
            return {"messages": [AIMessage(said["content"])]}
        for call in said["calls"]:
            messages.append({"role": "tool", "content": table[call["name"]](**call["arguments"])})
build = StateGraph(State)
build.add_node("work", work)
build.add_edge(START, "work")
build.add_edge("work", END)
graph = build.compile()
"""
    return [
        case("stub_and_handler", "a tool for its schema, a table of methods", acts(run, before=stub),
             twin_settings=pure),
        case("stub_and_handler_human", "the same, told as a human message",
             acts(run, before=stub, human=True), twin_settings=pure),
        case("form_of_that_name", "a tool without a body, a function of its name",
             acts(in_table, before=empty, bound="model.bind_tools([form])"),
             twin_settings=PURE),
        case("plain_client", "a model's plain client, dict messages", FUNCTION + client),
    ]  # fmt: skip


def _under_tools() -> list[Case]:
    """Functions under a tool's body, called directly; a twin's tool and functions are pure."""
    by_hand = 'out = body(**call["args"])'
    made = (
        'schema = {"type": "object", "properties": {"order": {"type": "string"}}}\n'
        'made = StructuredTool(name="$name", description="$doc", func=$held, args_schema=schema)\n'
        "$mark_pure(made)\n"
    )
    plain = '\ndef body(order: str) -> str:\n    "$doc"\n    return $act\n'
    decorated = (
        "\ndef logged(inner):\n    @functools.wraps(inner)\n    def outer(*args, **kwargs):\n"
        "        return inner(*args, **kwargs)\n    return outer\n@logged"
    )
    factory = (
        '\ndef tools_of(user):\n    $pure\n    @tool\n    def $name(order: str) -> str:\n        "$doc"\n'
        "        return $act\n    return {$name.name: $name}\n"
    )
    form = """
class $Name(BaseModel):
    "$doc"
    order: str
    def carry_out(self):
        order = self.order
        return $act
chosen = Scripted(script=[[asks("$Name", order="o1")]]).with_structured_output($Name)
def plan(state):
    return {"messages": [AIMessage(str(chosen.invoke(state["messages"]).carry_out()))]}
build = StateGraph(MessagesState)
build.add_node("plan", plan)
build.add_edge(START, "plan")
build.add_edge("plan", END)
graph = build.compile()
"""

    def held(as_field: str, run: str, before: str = plain) -> str:
        return acts(run, before=before + made.replace("$held", as_field), bound="model.bind_tools([made])")

    pure = '[functions."agent:$Name.carry_out"]\neffect = "pure"\nname = "$Name"\n'
    partial = "\nbody = functools.partial(given, 3)\n"
    given = '\ndef given(till: int, order: str) -> str:\n    "$doc"\n    return $act\n'
    return [
        case("under_a_partial", "the partial under a tool", held("body", by_hand, given + partial)),
        case("under_a_decorator", "what a tool's function was decorated around",
             held("body", 'out = body.__wrapped__(**call["args"])', decorated + plain)),
        case("tool_factory", "a factory of tools, called for each request",
             acts('out = tools_of("u1")[call["name"]].func(**call["args"])', before=factory,
                  bound='model.bind_tools(list(tools_of("u1").values()))'), entry="cli"),
        case("form_with_a_method", "a method of what an answer is made into", form, twin_settings=pure),
    ]  # fmt: skip


def _classes() -> list[Case]:
    kind = (
        '\nclass $Name(BaseModel):\n    "$doc"\n    order: str\n    def run(self):\n'
        "        order = self.order\n        return $act\n"
    )
    run, bound = 'out = $Name(**call["args"]).run()', "model.bind_tools([$Name])"
    named = MODEL.replace('"$name"', '"$Name"')
    other = (
        'other = StructuredTool.from_function(lambda order: "x", name="$Name", description="another\'s")\n'
        "$mark_pure(other)\n"
    )
    form = 'extract = Scripted(script=["x"]).with_structured_output($Name)\n'
    pure = '[functions."agent:$Name.run"]\neffect = "pure"\nname = "$Name"\n'

    def made(before: str, *, human: bool) -> str:
        return acts(run, before=kind + before, human=human, bound=bound).replace(MODEL, named)

    return [
        case("class_and_namesake", "a class with run(), a tool of its name elsewhere",
             made(other, human=True), twin_settings=pure),
        case("class_and_form", "a class with run() that shapes an answer elsewhere", made(form, human=True),
             twin_settings=pure),
        case("class_and_form_told", "the same, told as a tool message", made(form, human=False),
             twin_settings=pure),
    ]  # fmt: skip


def _namesakes() -> list[Case]:
    pay = (
        "\ndef payer():\n    $pure\n    @tool\n    def $name(order: str) -> str:\n"
        '        "$doc"\n        return $act\n    return $name\n'
    )
    formula = (
        "{0}\ndef maths():\n    {1}\n    @tool\n"
        '    def $name(formula: str) -> str:\n        "Apply a formula."\n'
        '        return "4"\n    return $name\n'
    ).format
    asked = '[[asks("$name", order="o1")]]'
    graph = f'graph = both(sub_agent({asked}, payer()), sub_agent(["done"], maths()))\n'
    todos = (
        "from langchain.agents.middleware import TodoListMiddleware\n"
        '$pure\n@tool\ndef write_todos(order: str) -> str:\n    "Creates tickets."\n    return $act\n'
        'listing = create_agent(Scripted(script=["done"]), [], middleware=[TodoListMiddleware()])\n'
        'graph = both(sub_agent([[asks("write_todos", order="o1")]], write_todos), listing)\n'
    )
    # Two tools of one name that differ are a question to the user; the answer stands in a twin's code.
    return [
        case("namesake_by_decorator", "two sub-agents, the other's tool of that name is pure",
             SUB_AGENT + pay + formula("", '@effect("pure")') + graph),
        case("namesake_by_settings", "the same, settings call the name pure",
             SUB_AGENT + pay + formula("", "$other_pure") + graph,
             settings='[tools.$name]\neffect = "pure"\n',
             words={"other_pure": ""}, twin_words={"other_pure": '@effect("pure")'}),
        case("namesake_of_framework", "a tool named as LangChain's to-do list", SUB_AGENT + todos,
             twin_words={"pure": '@effect("control")'}),
    ]  # fmt: skip


def _nodes() -> list[Case]:
    one = 'build.add_edge(START, "decide")\nbuild.add_node("decide", decide)\n'
    decide = (
        '\nmodel = Scripted(script=["$name o1"])\ndef decide(state):\n'
        '    return {"messages": [model.invoke(state["messages"])]}\n'
    )
    service = (
        "from services import desk\ndef carry_out(state):\n"
        '    return {"messages": [AIMessage(desk.$name("o1"))]}\n'
    )
    chosen = (
        f'build = StateGraph(MessagesState)\n{one}build.add_node("carry_out", carry_out)\n'
        'def chosen(state):\n    return "carry_out" if "$name" in state["messages"][-1].content else END\n'
        'build.add_conditional_edges("decide", chosen)\n'
        "graph = build.compile()\n"
    )
    goes = (
        "from langgraph.types import Command\n"
        f'{FUNCTION}model = Scripted(script=["carry_out"])\n'
        'def decide(state) -> Command:\n    said = model.invoke(state["messages"])\n'
        '    return Command(goto=said.content, update={"messages": [said]})\n'
        'def carry_out(state):\n    return {"messages": [AIMessage($name("o1"))]}\n'
        f"build = StateGraph(MessagesState)\n"
        f'{one}build.add_node("carry_out", carry_out)\ngraph = build.compile()\n'
    )
    tasks = (
        '@task\ndef $name(order: str) -> str:\n    "$doc"\n'
        '    return $act\nmodel = Scripted(script=["yes"])\n'
        '@entrypoint()\ndef graph(given):\n    said = model.invoke("shall I?")\n'
        '    out = $name("o1").result() if said.content == "yes" else "no"\n'
        '    return {"messages": [HumanMessage("please"), AIMessage(out)]}\n'
    )
    node = (
        "class FastNode(ToolNode):\n    def __init__(self, functions):\n        super().__init__(functions)\n"
        "        self.table = {one.__name__: one for one in functions}\n"
        "    def invoke(self, state, config=None, **more):\n"
        '        return {"messages": [ToolMessage(self.table[c["name"]](**c["args"]), tool_call_id=c["id"], '
        'name=c["name"]) for c in state["messages"][-1].tool_calls]}\n'
        "    async def ainvoke(self, state, config=None, **more):\n        return self.invoke(state)\n"
    )
    answers = (
        'AIMessage(f"Done: {ms[-1].content}") if len(ms) > 1 '
        'else AIMessage("", tool_calls=[asks("$name", order="o1")])'
    )
    service_file = {"services/__init__.py": "", "services/desk.py": f"$imports\n{FUNCTION}"}
    return [
        Case("node_of_service", {"agent.py": HEAD + decide + service + chosen, **service_file},
             about="a node calls another package"),
        case("node_by_command", "the model's text names the node", goes),
        case("task_body", "the body of a @task", tasks),
        case("own_tool_node", "a ToolNode with a table of its own; the model is a RunnableLambda",
             f"{FUNCTION}{node}bound = RunnableLambda(lambda ms: {answers})\nact = FastNode([$name])\n{LOOP}",
             twin_settings=f'{PURE}[tools.$name]\neffect = "pure"\n'),
    ]  # fmt: skip


def _beside() -> list[Case]:
    undescribed = '\n$pure\n@tool\ndef change(order: str) -> str:\n    "Change an order."\n    return order\n'
    agent = (
        'graph = create_agent(Scripted(script=[[asks("change", order="o1")]]), [change], middleware=[{0}])\n'
    )
    answers = (
        "@wrap_tool_call\ndef carry_out(request, handler):\n"
        '    out = $name(**request.tool_call["args"])\n'
        '    return ToolMessage(out, tool_call_id=request.tool_call["id"], name="change")\n'
    )
    first = (
        "@wrap_tool_call\ndef carry_out(request, handler):\n"
        '    $name(**request.tool_call["args"])\n    return handler(request)\n'
    )
    later = first.replace("    $name", "    answer = handler(request)\n    $name").replace(
        "return handler(request)", "return answer"
    )
    hand_off = (
        '\nheld = StructuredTool.from_function($name, name="transfer_to_human", description="Escalate.", '
        'metadata={"__handoff_destination": "human"})\n$mark_pure(held)\n'
        'bound = Scripted(script=[[asks("transfer_to_human", order="o1")]]).bind_tools([held])\n'
        f"act = ToolNode([held])\n{LOOP}"
    )
    return [
        case("middleware_answers", "middleware answers by itself",
             FUNCTION + undescribed + answers + agent.format("carry_out"),
             twin_settings=PURE + 'name = "change"\n'),  # whose calls it answers, a person has to say
        case("middleware_acts_first", "middleware acts, then passes on",
             FUNCTION + undescribed + first + agent.format("carry_out")),
        case("middleware_acts_later", "middleware passes on, then acts",
             FUNCTION + undescribed + later + agent.format("carry_out")),
        case("hand_off_key", "an author's own hand-off key", FUNCTION + hand_off),
    ]  # fmt: skip
