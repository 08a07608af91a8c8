"""Graphs from what a person writes, what is wrong with it, and what LangGraph's platform gives them."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row
from langgraph.pregel import Pregel

import dreamgym_kit
from dreamgym_kit.adapters.langgraph.analysis.loading import open_graph
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import UserError
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Episode, Source, Task, Verdict

FORMS = """
from langgraph.graph import StateGraph, MessagesState, START
from contextlib import asynccontextmanager, contextmanager

entered = []

def builder():
    made = StateGraph(MessagesState)
    made.add_node("n", lambda state: {})
    made.add_edge(START, "n")
    return made

state_graph = builder()
compiled = builder().compile()
def factory(): return compiled
def with_config(config): return compiled
async def async_factory(): return compiled
@contextmanager
def managed():
    entered.append("in"); yield compiled; entered.append("out")
@asynccontextmanager
async def async_managed():
    entered.append("in"); yield compiled; entered.append("out")
def needs_runtime(config, runtime): return compiled
def broken(): return {}["missing"]
number = 3
"""


@each_row(
    "attribute",
    [
        "compiled",
        "state_graph",
        "factory",
        "with_config",
        "async_factory",
        "managed",
        "async_managed",
        "builder",
    ],
)
async def test_every_way_to_name_a_graph_gives_a_compiled_one(project: Any, attribute: str) -> None:
    project.write(base=FORMS)
    async with open_graph(f"{project.module}:{attribute}") as graph:
        assert isinstance(graph, Pregel)
    async with open_graph(f"{project.module}.py:{attribute}") as graph:
        assert isinstance(graph, Pregel)


async def test_a_context_manager_stays_entered_while_the_graph_is_used(project: Any) -> None:
    import importlib

    project.write(base=FORMS)
    async with open_graph(f"{project.module}:async_managed"):
        entered = importlib.import_module(project.module).entered
        assert entered == ["in"]
    assert entered == ["in", "out"]


async def test_an_error_of_ours_comes_out_of_a_users_task_group_as_it_is(project: Any) -> None:
    project.write(
        base=FORMS
        + """
import anyio
@asynccontextmanager
async def grouped():
    async with anyio.create_task_group():
        yield compiled
"""
    )
    with pytest.raises(UserError, match=r"^ours$"):
        async with open_graph(f"{project.module}:grouped"):
            raise UserError("ours")


async def test_a_langgraph_project_is_read_with_its_environment(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(base=FORMS)
    monkeypatch.delenv("DESK_REGION", raising=False)
    monkeypatch.setenv("DESK_SET", "mine")
    (project.folder / ".env").write_text("DESK_REGION=north\nDESK_SET=theirs\n")
    graphs = {"agent": f"./{project.module}.py:compiled", "other": f"./{project.module}.py:factory"}
    (project.folder / "langgraph.json").write_text(json.dumps({"graphs": graphs, "env": ".env"}))
    async with open_graph("langgraph.json:other") as graph:
        assert isinstance(graph, Pregel)
    assert (os.environ.pop("DESK_REGION"), os.environ["DESK_SET"]) == ("north", "mine")
    with pytest.raises(
        UserError, match=r"has 2 graphs; name one: langgraph.json:agent, langgraph.json:other"
    ):
        async with open_graph("langgraph.json"):
            pass
    with pytest.raises(UserError, match=r"graph 'agnt' is not in its graphs; did you mean 'agent'\?"):
        async with open_graph("langgraph.json:agnt"):
            pass


@each_row(
    ("attribute", "message"),
    [
        ("compild", r"name 'compild' is not in agent_\d+; did you mean 'compiled'\?"),
        ("number", r"is of type int, not a graph"),
        ("needs_runtime", r"is a factory that wants \(config, runtime\)"),
        ("broken", r"building the graph '.*' failed: KeyError: 'missing'\n .*agent_\d+\.py:\d+ in broken"),
    ],
)
async def test_what_is_no_graph_is_named(project: Any, attribute: str, message: str) -> None:
    project.write(base=FORMS)
    with pytest.raises(UserError, match=message):
        async with open_graph(f"{project.module}:{attribute}"):
            pass


async def test_a_module_that_does_not_parse_is_shown_with_its_line(project: Any) -> None:
    project.write(base="x = 1\ndef helper(:\n    pass\n")
    with pytest.raises(UserError) as caught:
        async with open_graph(f"{project.module}:graph"):
            pass
    assert f"importing {project.module} failed: SyntaxError: " in str(caught.value)
    assert f"{project.module}.py:2: def helper(:" in str(caught.value)


async def test_a_misspelt_module_gets_the_nearest_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "support_agent.py").write_text("graph = 1\n")
    (tmp_path / "billing").mkdir()
    (tmp_path / "billing" / "__init__.py").write_text("")
    for wrong, near in (("suport_agent", "support_agent"), ("biling", "billing")):
        with pytest.raises(UserError, match=rf"no module '{wrong}' from .*; did you mean '{near}'\?"):
            async with open_graph(f"{wrong}:graph", folder=tmp_path):
                pass


async def test_a_module_that_fails_shows_only_the_users_own_frames(project: Any) -> None:
    project.write(base="def helper():\n    raise RuntimeError('no database')\n\nhelper()\n")
    with pytest.raises(UserError) as caught:
        async with open_graph(f"{project.module}:graph"):
            pass
    text = str(caught.value)
    assert f"importing {project.module} failed: RuntimeError: no database" in text
    assert f"{project.module}.py:2 in helper: raise RuntimeError" in text
    assert "dreamgym_kit" not in text
    assert "importlib" not in text


@each_row(
    ("spec", "message"),
    [
        ("nowhere:graph", r"no module 'nowhere' from .*; is the name right, and its package installed\?"),
        (":graph", r"graph ':graph': write it as module:attribute"),
        ("..agent:graph", r"graph '\.\.agent:graph': write it as module:attribute"),
        ("nowhere.py:graph", r"nowhere.py: no such file"),
        ("just_a_name", r"write it as module:attribute"),
        ("langgraph.json", r"langgraph.json: no such file"),
    ],
)
async def test_a_spec_that_leads_nowhere_says_so(project: Any, spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        async with open_graph(spec):
            pass


async def test_a_module_that_exits_or_lacks_a_package_is_an_error_and_not_an_exit(project: Any) -> None:
    project.write(base="raise SystemExit(3)\n")
    with pytest.raises(UserError, match="SystemExit: 3"):
        async with open_graph(f"{project.module}:graph"):
            pass
    project.module += "b"
    project.write(base="import surely_not_installed\n")
    with pytest.raises(UserError, match="No module named 'surely_not_installed'"):
        async with open_graph(f"{project.module}:graph"):
            pass


@each_row("text", ["{", "[]", '{"graphs": {}}', '{"graphs": {"a": 3}}'])
async def test_a_damaged_project_file_is_named(project: Any, text: str) -> None:
    (project.folder / "langgraph.json").write_text(text)
    with pytest.raises(UserError, match=r"langgraph\.json: "):
        async with open_graph("langgraph.json"):
            pass


async def test_a_module_may_run_a_loop_of_its_own_while_it_is_imported(tmp_path: Path) -> None:
    """As one does that fetches its MCP tools at the top; ours goes on afterwards."""
    (tmp_path / "fetches.py").write_text(
        f"import asyncio\nseen = asyncio.run(asyncio.sleep(0, 'tools'))\n{FORMS}"
    )
    ours = asyncio.current_task()
    async with open_graph("fetches.py:compiled", folder=tmp_path) as graph:
        assert isinstance(graph, Pregel)
        await asyncio.sleep(0)
        assert asyncio.current_task() is ours
    assert sys.modules["fetches"].seen == "tools"


HELLO = {"messages": [{"role": "user", "content": "hello"}]}


BASE = """
    from dataclasses import dataclass
    from typing import Annotated
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import InjectedToolArg, InjectedToolCallId, tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode, ToolRuntime
    from langgraph.runtime import Runtime
    from langgraph.store.base import BaseStore

    @dataclass(kw_only=True)
    class Context:
        FIELDS

    def say(text):
        return {"messages": [{"role": "assistant", "content": text}]}

    BODY

    made = StateGraph(MessagesState, context_schema=Context)
    made.add_node("speak", speak)
    made.add_edge(START, "speak")
    graph = made.compile()
"""


IN_CONTEXT = "def speak(state, runtime: Runtime[Context]): return say(runtime.context.tone)"


IN_CONFIG = 'def speak(state, config: RunnableConfig): return say(config["configurable"]["tone"])'


IN_STORE = """async def speak(state, *, store: BaseStore):
        await store.aput(("notes",), "1", {"text": "kept"})
        return say((await store.aget(("notes",), "1")).value["text"])"""


def said(project: Any, fields: str, body: str, task: Task, **settings: Any) -> tuple[Episode, str]:
    """The episode, and the last message of it."""
    graph = project.write(BASE.replace("FIELDS", fields).replace("BODY", body))
    given = Settings().with_overrides(settings)
    episode = only(dreamgym_kit.simulate(graph, [task], settings=given, buffer=MemoryStore()))
    return episode, str(episode.messages[-1]["content"])


def only(result: Any) -> Episode:
    (episode,) = RunDirectory.open(Path(result.directory)).episodes()
    return episode


PLAIN = Task("t", HELLO)


OF_TASK = Task("t", HELLO, context={"tone": "rude"})


@each_row(
    "row",
    [
        ('tone: str = "kind"', IN_CONTEXT, PLAIN, {}, "kind"),
        ('tone: str = "kind"', IN_CONTEXT, PLAIN, {"context": {"tone": "dry"}}, "dry"),
        ("tone: str", IN_CONTEXT, OF_TASK, {"context": {"tone": "dry"}}, "rude"),
        ('tone: str = ""', IN_CONFIG, PLAIN, {"configurable": {"tone": "formal"}}, "formal"),
        ('tone: str = ""', IN_STORE, PLAIN, {}, "kept"),
    ],
    ids=["default context", "context of the settings", "context of the task", "assistant", "store"],
)
def test_a_graph_finds_what_the_platform_gives_it(project: Any, row: Any) -> None:
    fields, body, task, settings, expected = row
    assert said(project, fields, body, task, **settings)[1] == expected


def test_missing_context_is_an_error_that_names_its_fields(project: Any) -> None:
    episode, _ = said(project, "tone: str", IN_CONTEXT, PLAIN)
    assert episode.verdict is Verdict.ERROR
    assert "[context]" in episode.reason


INJECTED = '''
    from langchain_core.messages import AIMessage

    @tool
    def note(text: str, state: Annotated[dict, InjectedState], store: Annotated[BaseStore, InjectedStore()],
             runtime: ToolRuntime, call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Write a note."""
        return f"{text}, {len(state['messages'])} messages"

    async def plain(text: str, *, owner: Annotated[str, InjectedToolArg],
                    store: Annotated[BaseStore, InjectedToolArg]) -> str:
        """Write a note for an owner."""
        return text

    MODEL = ScriptedModelDouble(turns=[[("note", {"text": "a"}), ("plain", {"text": "b"})], "Done."])
    bound = MODEL.bind_tools([note, plain])
    node = ToolNode([note])

    async def act(state, config: RunnableConfig, *, store: BaseStore):
        first, second = state["messages"][-1].tool_calls
        answer = await plain(**second["args"], owner="ana", store=store)
        noted = await node.ainvoke({"messages": [AIMessage("", tool_calls=[first])]}, config)
        said = {"role": "tool", "content": answer, "tool_call_id": second["id"], "name": "plain"}
        return {"messages": [*noted["messages"], said]}

    made = StateGraph(MessagesState)
    made.add_node("agent", lambda state: {"messages": [bound.invoke(state["messages"])]})
    made.add_node("act", act)
    made.add_edge(START, "agent")
    made.add_conditional_edges("agent", lambda s: "act" if s["messages"][-1].tool_calls else "__end__")
    made.add_edge("act", "agent")
    graph = made.compile()
'''


def test_injected_arguments_are_not_part_of_a_call(project: Any) -> None:
    graph, buffer = project.write(BASE.split("    @dataclass")[0] + INJECTED), MemoryStore()
    real = only(dreamgym_kit.record(graph, [PLAIN], buffer=buffer))
    assert sorted(entry.call.args["text"] for entry in real.transitions) == ["a", "b"]
    assert all(list(entry.call.args) == ["text"] for entry in real.transitions)
    dream = only(dreamgym_kit.simulate(graph, [PLAIN], buffer=buffer))
    assert {entry.answer.source for entry in dream.transitions} == {Source.RECORDED}
    assert dream.messages == real.messages


async def test_a_package_with_a_module_of_its_own_name_is_loaded_from_its_project_file(
    tmp_path: Path, project: Any
) -> None:
    package = tmp_path / "src" / "selfnamed"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "selfnamed.py").write_text("WORD = 'own'\n")
    (package / "agent.py").write_text(
        "from langgraph.graph import START, MessagesState, StateGraph\n"
        "from selfnamed.selfnamed import WORD\n"
        "made = StateGraph(MessagesState)\n"
        "made.add_node('say', lambda _: {'messages': [{'role': 'assistant', 'content': WORD}]})\n"
        "made.add_edge(START, 'say')\n"
        "graph = made.compile()\n"
    )
    file = tmp_path / "langgraph.json"
    file.write_text('{"dependencies": ["./src"], "graphs": {"own": "./src/selfnamed/agent.py:graph"}}')
    async with open_graph(f"{file}:own") as graph:
        assert (await graph.ainvoke(HELLO))["messages"][-1].content == "own"
