"""Runs under a fault plan: of real tools a call is not reached or its answer spoiled; a dream fails it."""

import pytest
from each_row import each_row

from dreamgym_kit.adapters.langgraph.run.evaluation import aevaluate
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.run import RunResult, run
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.rollout.events import FanOut
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.settings.schema import FaultSettings, Settings, SimulateSettings, ToolSettings
from dreamgym_kit.types import Answer, Call, Effect, Episode, Source, Task, Verdict

EFFECTS = {"get_order": ToolSettings(Effect.READ), "cancel_order": ToolSettings(Effect.WRITE)}
TASK = Task("t", {"messages": [{"role": "user", "content": "cancel o1"}]})


TOLERANT = """
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool


class SixReadsDouble(BaseChatModel):
    @property
    def _llm_type(self): return "six-reads-double"

    def bind_tools(self, tools, **kwargs): return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        said = sum(isinstance(message, AIMessage) for message in messages)
        call = {"name": "get_order", "args": {"order_id": "o1"}, "id": f"c{said}", "type": "tool_call"}
        message = AIMessage("", tool_calls=[call]) if said < 6 else AIMessage("Done.")
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def get_order(order_id: str) -> str:
    'Read an order.'
    return "open"


@wrap_tool_call
async def told(request, handler):
    try:
        return await handler(request)
    except Exception as error:
        return ToolMessage(str(error), tool_call_id=request.tool_call["id"])


graph = create_agent(SixReadsDouble(), [get_order], middleware=[told])
"""


async def real_run(
    spec: str, tool: str, kind: str, *, asked: bool = True, n: int = 1, rate: float = 1.0, label: str = "x"
) -> RunResult:
    faults = {tool: FaultSettings(rate, (kind,), wait_s=0.01)}
    settings = Settings(tools=EFFECTS, faults=faults, simulate=SimulateSettings(repeats=n))
    request = RunRequest(
        graph=spec, tasks=[TASK], settings=settings, mode=Mode.RECORD, real_faults=asked, label=label
    )
    return await run(request, events=FanOut([]))


def episode_of(result: RunResult) -> Episode:
    (episode,) = RunDirectory.open(result.directory).episodes()
    return episode


@each_row("kind", ["error", "timeout", "rate_limit", "outage"])
async def test_a_call_that_fails_by_plan_does_not_reach_its_tool(project, kind: str) -> None:
    result = await real_run(project.write(), "get_order", kind)
    episode = episode_of(result)
    assert project.touched() == []
    assert episode.verdict is Verdict.FAILED
    assert episode.reason.endswith("(with 1 injected fault)")
    assert [entry.answer.source for entry in episode.transitions] == [Source.FAULT]
    assert result.summary.real_calls == 0


async def test_a_timeout_after_the_fact_was_done_and_counts_as_a_real_call(project) -> None:
    result = await real_run(project.write(), "cancel_order", "timeout_applied")
    assert project.touched() == ["get_order", "cancel_order"]
    assert [entry.answer.error_type for entry in episode_of(result).transitions] == [None, "TimeoutError"]
    assert result.summary.real_calls == 2


async def test_a_spoiled_answer_reaches_the_agent_spoiled(project) -> None:
    result = await real_run(project.write(), "get_order", "malformed")
    first = episode_of(result).transitions[0].answer
    assert first.source is Source.FAULT
    assert '{"order_id": "o1", "status": "open"}'.startswith(str(first.content))
    assert project.touched() == ["get_order", "cancel_order", "get_order"]


@each_row("kind", ["slow", "stale_read"])
async def test_a_slow_answer_is_the_real_one_and_no_real_read_is_stale(project, kind: str) -> None:
    result = await real_run(project.write(), "get_order", kind)
    told = [entry.answer.content for entry in episode_of(result).transitions]
    assert told[0] == {"order_id": "o1", "status": "open"}
    assert told[2] == {"order_id": "o1", "status": "cancelled"}
    assert result.summary.real_calls == 3


async def test_faults_of_the_settings_do_not_befall_real_calls_unless_it_was_asked_for(project) -> None:
    result = await real_run(project.write(), "get_order", "error", asked=False)
    assert project.touched() == ["get_order", "cancel_order", "get_order"]
    assert result.summary.faults == 0


async def test_two_runs_of_a_seed_meet_the_same_faults_whatever_they_are_called(project) -> None:
    spec, found = project.write(base=TOLERANT), []
    for label in ("first", "second"):
        result = await real_run(spec, "get_*", "error", n=4, rate=0.5, label=label)
        episodes = RunDirectory.open(result.directory).episodes()
        found.append({one.id: [entry.answer.error for entry in one.transitions] for one in episodes})
    assert found[0] == found[1]
    errors = [error for one in found[0].values() for error in one]
    assert len(errors) == 24
    assert 4 < sum(error is not None for error in errors) < 20


async def test_a_share_that_is_none_is_refused_before_anything_runs(project) -> None:
    with pytest.raises(
        UserError, match=r"faults: 1\.5 is no share of the calls; give a number from 0 to 1\."
    ):
        await aevaluate(project.write(), [TASK], real=True, faults=1.5)
    assert project.touched() == []


class OpenOrderDouble:
    waits = False

    async def answer(self, call: Call, situation: Situation) -> Answer:
        return Answer('{"status": "open"}', Source.RECORDED)


async def dry_run(spec: str, kind: str, *, n: int = 1):
    faults = {"get_order": FaultSettings(1.0, (kind,))}
    settings = Settings(tools=EFFECTS, faults=faults, simulate=SimulateSettings(repeats=n))
    request = RunRequest(graph=spec, tasks=[TASK], settings=settings, experience=OpenOrderDouble())
    return await run(request, events=FanOut([]))


async def test_a_fault_that_ends_the_episode_is_told_apart_in_every_place(project) -> None:
    result = await dry_run(project.write(), "timeout")
    (line,) = result.summary.episodes
    assert line.verdict is Verdict.FAILED
    assert line.reason.endswith("get_order: timed out, no answer (with 1 injected fault)")
    (tool,) = result.summary.tools
    assert (tool.sources, tool.errors) == ({"fault": 1}, 0)
    assert result.summary.counts["fault_timeout"] == 1
    assert project.touched() == []


async def test_an_outage_of_a_tool_is_not_put_down_to_the_agents_model(project) -> None:
    result = await dry_run(project.write(), "outage")
    (line,) = result.summary.episodes
    said = "the graph raised ConnectionError: get_order: 503 Service Unavailable (with 1 injected fault)"
    assert (line.verdict, line.reason) == (Verdict.FAILED, said)


async def test_a_recorded_timeout_without_words_is_no_time_limit_of_the_episode(project) -> None:
    class SilentTimeoutDouble:
        waits = False

        async def answer(self, call: Call, situation: Situation) -> Answer:
            return Answer(source=Source.RECORDED, error="", error_type="TimeoutError")

    settings = Settings(tools=EFFECTS)
    request = RunRequest(
        graph=project.write(), tasks=[TASK], settings=settings, experience=SilentTimeoutDouble()
    )
    (line,) = (await run(request, events=FanOut([]))).summary.episodes
    assert line.verdict is Verdict.FAILED
    assert line.reason.startswith("the graph raised TimeoutError")


async def test_a_malformed_answer_reaches_the_agent_and_the_episode_goes_on(project) -> None:
    result = await dry_run(project.write(), "malformed")
    by_name = {tool.name: tool for tool in result.summary.tools}
    assert by_name["get_order"].sources == {"fault": 2}
    assert by_name["cancel_order"].sources == {"recorded": 1}
