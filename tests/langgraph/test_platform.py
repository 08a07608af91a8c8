"""A graph finds what LangGraph's platform gives it: a runtime context, a store, an assistant's config."""

from pathlib import Path
from typing import Any

from each_row import each_row

import dreamgym_kit
from dreamgym_kit.adapters.langgraph.analysis.loading import open_graph
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Episode, Source, Task, Verdict

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
