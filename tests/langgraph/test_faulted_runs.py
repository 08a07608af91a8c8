"""A dry run under a fault plan: the agent meets failures, and the report says whose they were."""

from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.run import run
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.rollout.events import FanOut
from dreamgym_kit.settings.schema import FaultSettings, Settings, SimulateSettings, ToolSettings
from dreamgym_kit.types import Answer, Call, Effect, Source, Task, Verdict

EFFECTS = {"get_order": ToolSettings(Effect.READ), "cancel_order": ToolSettings(Effect.WRITE)}
TASK = Task("t", {"messages": [{"role": "user", "content": "cancel o1"}]})


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
