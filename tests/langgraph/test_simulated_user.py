"""An episode with a simulated user: answers questions and interrupts; its errors are not the agent's."""

import json

import pytest
from bench.faulty_endpoint_double import FaultyEndpointDouble, serving
from deciding_double import ScriptedChatDouble
from each_row import each_row
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.run import run
from dreamgym_kit.dream.judge import ModelJudge
from dreamgym_kit.dream.user import PersonaUser, UserFailed
from dreamgym_kit.errors import EndpointError
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.report.episode import render_episode
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.journal import episode_from_record, episode_to_record
from dreamgym_kit.settings.schema import ExperienceSettings, Settings, SimulateSettings
from dreamgym_kit.types import Answer, Call, Effect, Source, Task, ToolSpec, UserTurn, Verdict


def says(action: str, text: str = "") -> dict[str, str]:
    return {"reasoning": "", "action": action, "text": text}


def asking(state: MessagesState) -> dict[str, object]:
    """Ask for the order until it is told."""
    said = str(state["messages"][-1].content)
    return {"messages": [AIMessage(f"Done with {said}." if said.startswith("o") else "Which order?")]}


def waiting(state: MessagesState) -> dict[str, object]:
    return {"messages": [AIMessage(f"Heard: {interrupt('Really?')}")]}


def graph(node):
    return StateGraph(MessagesState).add_node("agent", node).add_edge(START, "agent").compile()


@pytest.fixture
def episode(run_of):
    """One episode of a node, its user and its checker."""

    async def run(node, described, **sources):
        checkers = {"c": lambda outcome: "o7" in str(outcome.messages[-1]["content"])}
        said = {"messages": [{"role": "user", "content": "refund"}]}
        task = Task("t", said, checker="c", meta={"user": described})
        return await run_of(graph(node), checkers=checkers, **sources).run(task, repeat=1, attempt=1)

    return run


async def test_a_script_answers_questions_in_order(episode) -> None:
    told = await episode(asking, {"script": ["the last one", "o7"]})
    assert [message["content"] for message in told.messages] == [
        *("refund", "Which order?", "the last one", "Which order?", "o7", "Done with o7."),
    ]
    assert told.verdict is Verdict.PASSED


async def test_a_script_answers_an_interrupt(episode) -> None:
    told = await episode(waiting, {"script": ["o7"]})
    assert (told.messages[-1]["content"], told.verdict) == ("Heard: o7", Verdict.PASSED)


async def test_what_stands_in_for_a_user_is_kept_in_the_episode(episode) -> None:
    told = await episode(asking, {"script": ["o7"]})
    assert told.user_turns == (UserTurn("reply", "script", 2, 0),)
    assert told.messages[2]["content"] == "o7"
    told = await episode(waiting, {"script": ["o7"]})
    assert told.user_turns == (UserTurn("interrupt", "script", 1, 0, "Really?", "o7"),)
    unanswered = await episode(waiting, {"script": []})
    assert unanswered.user_turns == (UserTurn("interrupt", "nobody", 1, 0, "Really?"),)
    assert episode_from_record(episode_to_record(told)) == told


async def test_an_interrupt_that_the_task_answers_or_leaves_open_is_kept(run_of) -> None:
    runner = run_of(graph(waiting))
    ask = {"messages": [{"role": "user", "content": "refund"}]}
    told = await runner.run(Task("t", ask, replies=("yes",)), repeat=1, attempt=1)
    assert told.user_turns == (UserTurn("interrupt", "task", 1, 0, "Really?", "yes"),)
    text = render_episode(told)
    assert '      waits for: "Really?"\n      told: "yes"  [task]\n      agent: "Heard: yes"' in text
    left = await runner.run(Task("t", ask), repeat=1, attempt=1)
    assert (left.stop, left.user_turns) == (
        "interrupted",
        (UserTurn("interrupt", "nobody", 1, 0, "Really?"),),
    )
    assert "told: nothing, nobody answers" in render_episode(left)


async def test_a_secret_in_an_interrupt_is_masked(episode) -> None:
    def asking_key(state: MessagesState) -> dict[str, object]:
        interrupt({"use": "sk-abcdefghijklmnopqrstuvwxyz0123456789abcd"})
        return {}

    told = await episode(asking_key, {"script": ["ok, sk-abcdefghijklmnopqrstuvwxyz0123456789abcd"]})
    assert "abcdefghijklmnop" not in json.dumps(episode_to_record(told))


async def test_a_persona_tells_what_it_knows_and_ends(episode) -> None:
    chat = ScriptedChatDouble(says("reply", "o7"), says("done"))
    told = await episode(asking, {"goal": "a refund", "knows": {"order": "o7"}}, user=chat)
    assert (told.messages[-1]["content"], told.verdict) == ("Done with o7.", Verdict.PASSED)
    assert '"knows": {"order": "o7"}' in chat.requests[0].messages[1].content


@each_row(
    ("user", "chat", "said"),
    [
        ({"script": []}, None, "the script has no line left for: 'Really?'"),
        ({"goal": "g"}, None, "the user of task t is a persona, and no endpoint is set to play it"),
        ({"gaol": "g"}, None, "meta.user of task t wants a script, or a goal, persona and knows"),
        (
            {"goal": "g"},
            ScriptedChatDouble(EndpointError("server", "down")),
            "the model that plays the user gave no answer: down",
        ),
    ],
)
async def test_a_user_that_fails_makes_an_error_and_a_silent_one_does_not(episode, user, chat, said) -> None:
    told = await episode(waiting, user, user=chat)
    silent = "script" in user  # the task has no more to say; else its set-up failed
    expected = (Verdict.INCONCLUSIVE, "interrupted") if silent else (Verdict.ERROR, "error")
    assert (told.verdict, told.stop) == expected
    assert told.reason == f"the simulated user failed: {said}"


async def test_a_user_that_never_ends_is_ended(episode) -> None:
    told = await episode(asking, {"goal": "g"}, user=ScriptedChatDouble(says("reply", "hm")))
    assert told.reason.endswith("the conversation did not end within 12 turns of the user")


async def test_an_approval_is_given_in_the_middlewares_form() -> None:
    user = PersonaUser(ScriptedChatDouble(says("approve"), says("reject", "not that")), {"goal": "g"})
    asked = {"action_requests": [{"name": "pay"}, {"name": "mail"}]}
    assert await user.resume(asked, []) == {"decisions": [{"type": "approve"}] * 2}
    assert (await user.resume(asked, []))["decisions"][0] == {"type": "reject", "message": "not that"}


async def test_two_judges_that_differ_are_told_in_the_episode(episode) -> None:
    second = ModelJudge(ScriptedChatDouble({"reasoning": "no refund", "verdict": "failure"}))
    told = await episode(waiting, {"script": ["o7"]}, second=second)
    assert (told.verdict, told.counts["judges_disagree"]) == (Verdict.PASSED, 1)
    assert [found.kind for found in told.findings] == ["judges_disagree"]


class HearingDouble:
    """An experience that keeps what had been spoken when it was asked."""

    waits = False

    def __init__(self) -> None:
        self.spoken: list[tuple[str, ...]] = []

    async def answer(self, call: Call, situation: Situation) -> Answer:
        self.spoken.append(situation.spoken)
        return Answer("seen", source=Source.RECORDED)


async def test_the_dream_hears_what_the_task_says_and_what_its_user_answers(run_of) -> None:
    @tool
    def look(order: str) -> str:
        """Look an order up."""
        raise AssertionError("the real tool ran")

    def looking(state: MessagesState) -> dict[str, object]:
        look.invoke({"order": "o7"})
        if len(state["messages"]) == 1:
            return {"messages": [AIMessage(f"Heard: {interrupt('Which?')}")]}
        return {"messages": [AIMessage("Done.")]}

    hearing = HearingDouble()
    runner = run_of(graph(looking), [ToolSpec("look", Effect.READ)], model=hearing)
    said = {"messages": [{"role": "user", "content": "refund o7"}], "count": 3}
    await runner.run(
        Task("t", said, replies=("the last one",), meta={"user": {"script": ["and o9"]}}),
        repeat=1,
        attempt=1,
    )
    assert hearing.spoken[0] == ("user", "refund o7", "3")
    assert hearing.spoken[-1][3:] == ("the last one", "and o9")


@each_row("action", ["reply", "done"])
async def test_an_approval_that_is_neither_given_nor_refused_is_the_users_failure(action: str) -> None:
    user = PersonaUser(ScriptedChatDouble(says(action, "Yes, go on.")), {"goal": "g"})
    with pytest.raises(UserFailed, match="neither approved nor rejected"):
        await user.resume({"action_requests": [{"name": "pay"}]}, [])


async def test_a_graph_that_fails_without_a_word_is_told_with_what_stood_behind_it(episode) -> None:
    def silent(state: MessagesState) -> dict[str, object]:
        try:
            raise LookupError("no such row")
        except LookupError as error:
            raise RuntimeError from error

    told = await episode(silent, {"script": []})
    assert told.reason == "the graph raised RuntimeError, from LookupError"


ASKING = """
    from langgraph.graph import StateGraph, MessagesState, START
    from langgraph.types import interrupt

    def agent(state):
        return {"messages": [("ai", f"Heard: {interrupt('Really?')}")]}

    def heard(outcome):
        return "yes" in str(outcome.messages[-1]["content"])

    graph = StateGraph(MessagesState).add_node("agent", agent).add_edge(START, "agent").compile()
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
