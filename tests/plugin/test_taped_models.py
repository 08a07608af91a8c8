"""The agent's chat model on tape: what it said is said again, and nobody asks it."""

import pytest

TEST = """
    import pytest
    from agent import graph, made
    from agent import TOUCHED

    @pytest.mark.dream(models="{models}")
    {mark}
    {begin}def test_cancels(dream):
        episode = {run}(graph, "Please cancel order o1.")
        episode.exactly("get_order", "cancel_order")
        assert episode.answer == "o1 is cancelled."
"""

STREAMING = """
    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        import json
        from langchain_core.messages import AIMessageChunk
        from langchain_core.outputs import ChatGenerationChunk
        said = self._generate(messages).generations[0].message
        for index, call in enumerate(said.tool_calls):
            text = json.dumps(call["args"])
            first = {"name": call["name"], "args": text[:3], "id": call["id"], "index": index}
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[first]))
            rest = {"name": None, "args": text[3:], "id": None, "index": index}
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[rest]))
        for word in said.text.split(" "):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word + " " * (word != "cancelled.")))
"""

LOOP = """

from typing import Annotated, TypedDict
from langgraph.graph import StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition


class State(TypedDict):
    messages: Annotated[list, add_messages]


def agent(state):
    heard = None
    for part in made().stream(state["messages"]):
        heard = part if heard is None else heard + part
    return {"messages": [heard]}


builder = StateGraph(State)
builder.add_node("agent", agent)
builder.add_node("tools", ToolNode([get_order, cancel_order]))
builder.set_entry_point("agent")
builder.add_conditional_edges("agent", tools_condition)
builder.add_edge("tools", "agent")
graph = builder.compile()
"""


def write(
    project, *, models="recorded", run="dream.run", begin="", mark="", more="", streaming=False
) -> None:
    agent = project.path / "agent.py"
    text = agent.read_text()
    if streaming:
        text = text.replace(
            "    def bind_tools", STREAMING.replace("\n", "\n", 1) + "\n    def bind_tools", 1
        )
    text += "\n\ndef made():\n    return ScriptedModelDouble().bind_tools([get_order, cancel_order])\n" + more
    agent.write_text(text)
    project.makepyfile(test_orders=TEST.format(models=models, run=run, begin=begin, mark=mark))


def silence(project) -> None:
    """From now on the model must not be asked."""
    agent = project.path / "agent.py"
    agent.write_text(
        agent.read_text().replace(
            "        told = sum", '        raise RuntimeError("asked")\n        told = sum'
        )
    )


ASYNC = {"run": "await dream.arun", "begin": "async ", "mark": "@pytest.mark.asyncio"}


@pytest.mark.parametrize("form", [{}, pytest.param(ASYNC, marks=pytest.mark.slow)], ids=["sync", "async"])
def test_a_recorded_model_is_not_asked_again(project, run, form) -> None:
    write(project, **form)
    loops = ("-p", "pytest_asyncio.plugin") if form else ()
    run(*loops, "--dream-record=once").assert_outcomes(passed=1)
    silence(project)
    run(*loops).assert_outcomes(passed=1)


def test_a_stream_is_kept_whole_and_played(project, run) -> None:
    write(project, streaming=True, more=LOOP)
    run("--dream-record=once").assert_outcomes(passed=1)
    turns = (project.path / "cassettes/test_orders/test_cancels.models.jsonl").read_text().splitlines()
    assert len(turns) == 3
    silence(project)
    run().assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_fake_of_the_projects_own_answers_for_itself(project, run) -> None:
    write(project, models="auto")
    run("--dream-record=once").assert_outcomes(passed=1)
    assert not (project.path / "cassettes/test_orders/test_cancels.models.jsonl").exists()
    silence(project)
    run().assert_outcomes(failed=1)


@pytest.mark.slow
def test_a_prompt_that_changed_says_which_message_and_how(project, run) -> None:
    write(project)
    run("--dream-record=once").assert_outcomes(passed=1)
    agent, test = project.path / "agent.py", project.path / "test_orders.py"
    before = test.read_text()
    test.write_text(before.replace("Please cancel", "Kindly cancel"))
    said = run()
    said.assert_outcomes(failed=1)
    said.stdout.fnmatch_lines(
        [
            "the agent's model (ScriptedModelDouble) got a request that is not in the cassette",
            "  nearest: turn 1 of test_orders.test_cancels",
            "    message 1 (user) content: recorded 'Please cancel order o1.', now 'Kindly cancel order o1.'",
        ]
    )
    test.write_text(before)
    cassette = project.path / "cassettes/test_orders/test_cancels.jsonl"
    cassette.write_text(cassette.read_text().replace('"status": "open"', '"status": "sent"'))
    said = run()
    said.assert_outcomes(failed=1)
    said.stdout.fnmatch_lines(["  nearest: turn 2 *", "    message 3 (tool) content: *open*sent*"])
    assert agent.exists()


@pytest.mark.slow
def test_a_test_recorded_with_its_model_live_says_so_when_it_is_to_be_played(project, run) -> None:
    write(project, models="live")
    run("--dream-record=once").assert_outcomes(passed=1)
    write_again = (project.path / "test_orders.py").read_text().replace('"live"', '"recorded"')
    (project.path / "test_orders.py").write_text(write_again)
    said = run()
    said.assert_outcomes(failed=1)
    said.stdout.fnmatch_lines(
        ["  no model reply was recorded for this test; record it, or set models='live'"]
    )


def test_a_providers_model_is_recorded_and_replayed_without_key_or_network(project, run) -> None:
    pytest.importorskip("langchain_openai")
    agent = project.path / "agent.py"
    agent.write_text(
        agent.read_text().replace("graph = create_agent(Scripted", PROVIDED + "graph = create_agent(Scripted")
    )
    agent.write_text(
        agent.read_text().replace("create_agent(ScriptedModelDouble()", "create_agent(provided()")
    )
    write(project, models="auto")
    run("--dream-record=once").assert_outcomes(passed=1)
    assert (project.path / "asked").read_text() == "xxx"
    lines = (project.path / "cassettes/test_orders/test_cancels.models.jsonl").read_text()
    assert '"usage_metadata"' in lines
    run().assert_outcomes(passed=1)
    assert (project.path / "asked").read_text() == "xxx"


PROVIDED = '''
def provided():
    """A real provider's client; what it would send over the network is answered here."""
    import json
    import httpx
    from langchain_openai import ChatOpenAI

    def answered(request):
        with TOUCHED.with_name("asked").open("a") as file:
            file.write("x")
        told = sum(one["role"] == "assistant" for one in json.loads(request.content)["messages"])
        calls = [("get_order", {"order_id": "o1"}), ("cancel_order", {"order_id": "o1", "reason": "asked"})]
        said = {"role": "assistant", "content": "o1 is cancelled."}
        if told < len(calls):
            name, args = calls[told]
            function = {"name": name, "arguments": json.dumps(args)}
            said = {"role": "assistant", "content": None,
                    "tool_calls": [{"id": f"call_{told}", "type": "function", "function": function}]}
        return httpx.Response(200, json={
            "id": "x", "object": "chat.completion", "created": 1, "model": "gpt-test",
            "choices": [{"index": 0, "message": said, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})

    transport = httpx.MockTransport(answered)
    return ChatOpenAI(model="gpt-test", api_key="dummy", http_client=httpx.Client(transport=transport),
                      http_async_client=httpx.AsyncClient(transport=transport))


'''
