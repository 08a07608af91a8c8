"""The model that plays users fails: the episodes of that user are inconclusive, the others go on."""

import json

from bench.faulty_endpoint_double import FaultyEndpointDouble, serving
from each_row import each_row

from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.run import run
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.settings.schema import ExperienceSettings, Settings, SimulateSettings
from dreamgym_kit.types import Task, Verdict

ASKING = """
    from langgraph.graph import StateGraph, MessagesState, START
    from langgraph.types import interrupt

    def agent(state):
        return {"messages": [("ai", f"Heard: {interrupt('Really?')}")]}

    def heard(outcome):
        return "yes" in str(outcome.messages[-1]["content"])

    made = StateGraph(MessagesState)
    made.add_node("agent", agent)
    made.add_edge(START, "agent")
    graph = made.compile()
"""


def tasks(checker: str) -> list[Task]:
    """Of three users the second is one whom the endpoint never plays."""
    return [
        Task(
            name,
            {"messages": [{"role": "user", "content": name}]},
            checker=checker,
            meta={"user": {"goal": f"goal of {name}"}},
        )
        for name in ("one", "two", "three")
    ]


def say(body: dict) -> str:
    asked = json.dumps(body["messages"])
    if "You play the user" not in asked:
        return "ready"
    text = "" if "Heard" in asked else "yes"
    return json.dumps({"reasoning": "", "action": "reply" if text else "done", "text": text})


def refused(body: dict) -> str | None:
    return "this user is not played" if "goal of two" in json.dumps(body["messages"]) else None


def mute(body: dict) -> str:
    """No object for the second user, whatever is asked."""
    return "I would rather not." if "goal of two" in json.dumps(body["messages"]) else say(body)


@each_row("how", [{"refuse": refused, "content": say}, {"content": mute}], ids=["400", "text"])
async def test_an_interrupt_whose_user_fails_leaves_its_episodes_inconclusive_and_no_other(
    project, how
) -> None:
    spec = project.write(ASKING)
    with serving(FaultyEndpointDouble(**how)) as server:
        settings = Settings(
            simulate=SimulateSettings(repeats=2, concurrency=3),
            experience=ExperienceSettings(urls=(server.url,), model="m", max_attempts=1, judge=False),
        )
        request = RunRequest(graph=spec, tasks=tasks(f"{spec.partition(':')[0]}:heard"), settings=settings)
        result = await run(request, events=NoEvents())
    lines = {line.id: (line.verdict, line.reason) for line in result.summary.episodes}
    assert len(lines) == 6
    for name, (verdict, reason) in lines.items():
        if name.startswith("two."):
            assert verdict is Verdict.ERROR
            assert reason.startswith(
                "the simulated user failed: the model that plays the user gave no answer"
            )
        else:
            assert verdict is Verdict.PASSED, reason
    assert (result.summary.errors, result.summary.failed) == (2, 0)
