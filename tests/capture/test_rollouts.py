"""Groups collected many times over one open graph, with weights that change in between."""

import asyncio
import functools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from capture.policy_server_double import PolicyServerDouble, calls, said_in, says

from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.training.rollouts import Rollouts, open_rollouts
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.interfaces import Group
from dreamgym_kit.rollout.journal import JournalReader
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.routing.process import PROCESS
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.types import Answer, Call, Effect, Source, Task, Transition, Verdict

AGENT = '''
from pathlib import Path
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

HERE = Path(__file__).parent

@tool
def get_order(order_id: str) -> str:
    """Read an order."""
    with (HERE / "touched").open("a") as file:
        file.write(order_id + " ")
    return "shipped"

graph = create_agent(ChatOpenAI(model="gpt-x", temperature=0.2), [get_order])

def check(outcome):
    return "shipped" in str(outcome.messages[-1]["content"])
'''

SETTINGS = '[tools.get_order]\neffect = "read"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path


def asked_for(
    folder: Path, server: Any, *, name: str, mode: Mode = Mode.DREAM, more: str = "", tasks: int = 2
) -> RunRequest:
    (folder / f"{name}.py").write_text(AGENT)
    told = [{"role": "user", "content": "what of o1?"}]
    return RunRequest(
        graph=f"{name}:graph",
        tasks=[Task(f"t{number}", {"messages": told}, checker=f"{name}:check") for number in range(tasks)],
        settings=parse_settings(SETTINGS + more, path=folder / "dreamgym.toml"),
        mode=mode,
        store=store() if mode is Mode.DREAM else None,
        policy=server,
        directory=folder / "rollouts",
    )


def store() -> MemoryStore:
    made = MemoryStore()
    answer = Answer("shipped", Source.REAL)
    made.put([Transition(Call("get_order", {"order_id": "o1"}), answer, Effect.READ, "e.1", 1)])
    return made


def looks_and_tells(request: ChatRequest) -> ChatReply:
    """Looks the order up, then says so; what it says depends on the seed."""
    if len(request.messages) == 1:
        return calls(("get_order", '{"order_id": "o1"}'))
    return says(f"It is {'shipped' if request.seed % 2 else 'lost'}.")


async def collecting(request: RunRequest, work: Callable[[Rollouts], Any]) -> Any:
    async with open_rollouts(request) as rollouts:
        return await work(rollouts)


def collected(request: RunRequest, n: int, *, seed: int = 7) -> list[Group]:
    """The groups of one step."""
    work = functools.partial(Rollouts.collect, tasks=request.tasks, n=n, step=1, seed=seed)
    return asyncio.run(collecting(request, work))


def words(groups: list[Group]) -> list[list[list[str]]]:
    return [[[said_in(turn.ids) for turn in one.turns] for one in group.rollouts] for group in groups]


def test_groups_come_with_their_episodes_and_turns_and_no_real_tool_runs(folder: Path) -> None:
    server = PolicyServerDouble(looks_and_tells)
    request = asked_for(folder, server, name="agent_groups")

    groups = collected(request, 3)
    assert [group.task for group in groups] == ["t0", "t1"]
    assert [[one.episode.id for one in group.rollouts] for group in groups] == [
        ["t0.1", "t0.2", "t0.3"], ["t1.1", "t1.2", "t1.3"]
    ]  # fmt: skip
    for group in groups:
        for one in group.rollouts:
            assert [turn.episode for turn in one.turns] == [one.episode.id] * 2
            told = said_in(one.turns[1].ids)
            assert one.episode.verdict is (Verdict.PASSED if "shipped" in told else Verdict.FAILED)
            assert one.episode.tokens == sum(len(turn.prompt_ids) + len(turn.ids) for turn in one.turns)
    assert not (folder / "touched").exists()
    assert server.live == []


def test_the_server_knows_of_all_episodes_before_the_first_asks_and_of_none_after(folder: Path) -> None:
    known: list[int] = []

    def answer(request: ChatRequest) -> ChatReply:
        known.append(len(server.live))
        assert request.affinity in server.live
        return looks_and_tells(request)

    server = PolicyServerDouble(answer)
    request = asked_for(folder, server, name="agent_live")

    collected(request, 4)
    assert known[0] == 8
    assert server.live == []


def test_nobody_is_paid_for_what_the_policy_said(folder: Path) -> None:
    more = "[model]\nusd_per_million_input = 1000.0\n"
    request = asked_for(folder, PolicyServerDouble(looks_and_tells), name="agent_paid", more=more)

    episodes = [one.episode for group in collected(request, 1) for one in group.rollouts]
    assert [(one.model_calls, one.cost_usd) for one in episodes] == [(2, 0.0)] * 2
    assert all(one.tokens > 0 for one in episodes)


def test_weights_that_changed_between_two_collections_stand_in_the_turns(folder: Path) -> None:
    server = PolicyServerDouble(looks_and_tells)
    request = asked_for(folder, server, name="agent_weights")

    async def work(rollouts: Rollouts) -> set[str]:
        versions = []
        for step in (1, 2):
            await server.load(folder, f"w{step}")
            (folder / f"checkpoint-{step}").write_text("between steps, a trainer writes where it likes")
            groups = await rollouts.collect(request.tasks, 1, step=step, seed=0)
            versions += [{turn.version for turn in one.turns} for group in groups for one in group.rollouts]
        return versions

    assert asyncio.run(collecting(request, work)) == [{"w1"}] * 2 + [{"w2"}] * 2


def test_each_steps_episodes_are_kept_in_a_directory_of_their_own(folder: Path) -> None:
    request = asked_for(folder, PolicyServerDouble(looks_and_tells), name="agent_kept")

    async def work(rollouts: Rollouts) -> None:
        for _ in range(2):  # the second time as after a kill in the midst of the first
            await rollouts.collect(request.tasks, 2, step=3, seed=0)

    asyncio.run(collecting(request, work))
    (step,) = (folder / "rollouts").glob("step-000003-*")
    lines = [json.loads(line) for line in (step / "episodes.jsonl").read_text().splitlines()]
    assert len(lines) == 4
    assert "no-key-the-policy-answers" not in "".join(
        file.read_text() for file in (folder / "rollouts").rglob("*") if file.is_file()
    )


def test_in_record_mode_the_tools_are_real(folder: Path) -> None:
    request = asked_for(folder, PolicyServerDouble(looks_and_tells), name="agent_real", mode=Mode.RECORD)

    groups = collected(request, 1)
    assert (folder / "touched").read_text() == "o1 o1 "
    assert all(len(one.turns) == 2 for group in groups for one in group.rollouts)
    assert groups[0].rollouts[0].episode.transitions[0].answer.source is Source.REAL


WORLD = """
class Orders:
    def configurable(self, world, episode):
        return {}

    async def reset(self, world, episode):
        get_order.invoke({"order_id": "reset"})

    async def close(self, episode):
        pass
"""


def test_real_tools_run_between_two_dreams_and_what_puts_the_world_back_may_use_them(folder: Path) -> None:
    server = PolicyServerDouble(looks_and_tells)
    more = '[environments.default]\nref = "agent_between:Orders"\n'
    dreamt = asked_for(folder, server, name="agent_between", more=more)
    real = replace(dreamt, mode=Mode.RECORD, store=None, directory=folder / "real", must_reset=True)
    (folder / "agent_between.py").write_text(AGENT + WORLD)

    async def both() -> list[list[Group]]:
        async with open_rollouts(dreamt) as dreams, open_rollouts(real) as examined:
            return [
                await one.collect(real.tasks, 1, step=step, seed=0)
                for step, one in enumerate((dreams, examined, dreams))
            ]

    before, measured, after = asyncio.run(both())
    assert sorted((folder / "touched").read_text().split()) == ["o1", "o1", "reset", "reset"]
    assert words(before) != words(after)
    assert {one.episode.stop for group in (*before, *measured, *after) for one in group.rollouts} == {
        "finished"
    }
    assert not PROCESS.open_dreams


def test_a_server_that_is_gone_is_no_verdict(folder: Path) -> None:
    def down(_: ChatRequest) -> ChatReply:
        raise EndpointError("connection", "nobody there", retryable=True)

    request = asked_for(folder, PolicyServerDouble(down), name="agent_gone")

    with pytest.raises(EndpointError, match="nobody there"):
        collected(request, 1, seed=0)


def test_one_answer_that_fails_makes_its_episode_an_error_and_leaves_the_others_alone(folder: Path) -> None:
    def sometimes(request: ChatRequest) -> ChatReply:
        if request.affinity.endswith("t0.1"):
            raise EndpointError("rejected", "the prompt is too long")
        return looks_and_tells(request)

    request = asked_for(folder, PolicyServerDouble(sometimes), name="agent_long")

    groups = collected(request, 2, seed=0)
    verdicts = [one.episode.verdict for group in groups for one in group.rollouts]
    assert verdicts[0] is Verdict.ERROR
    assert all(verdict.conclusive for verdict in verdicts[1:])
    assert "the policy did not answer: the prompt is too long" in groups[0].rollouts[0].episode.reason


LASTS_S = 601.0  # of an episode; no other limit here is as long


def ended_by_hand(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What this gives ends an episode's time: however slow the machine is, its first turn comes before."""
    running, made = [], asyncio.timeout

    def kept(delay: float | None) -> asyncio.Timeout:
        if delay == LASTS_S:
            running.append((asyncio.get_running_loop(), made(delay)))
            return running[-1][1]
        return made(delay)

    def end() -> None:
        ((loop, limit),) = running
        loop.call_soon_threadsafe(limit.reschedule, loop.time())

    monkeypatch.setattr(asyncio, "timeout", kept)
    return end


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        ("max_tool_calls = 3", Verdict.FAILED),
        ("recursion_limit = 8", Verdict.FAILED),
        (f"max_seconds = {LASTS_S}", Verdict.INCONCLUSIVE),
    ],
)
def test_a_policy_that_goes_in_circles_has_failed_and_one_that_ran_out_of_time_has_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch, limits: str, verdict: Verdict
) -> None:
    time_is_up = ended_by_hand(monkeypatch)

    def circles(request: ChatRequest) -> ChatReply:
        return calls(("get_order", '{"order_id": "o1"}'))

    def slow(request: ChatRequest) -> float:
        if len(request.messages) <= 2 or "seconds" not in limits:
            return 0.0
        time_is_up()
        return 10 * LASTS_S

    name = f"agent_circles_{limits.split()[0]}"
    request = asked_for(
        folder, PolicyServerDouble(circles, wait_s=slow), name=name, more=f"[limits]\n{limits}\n", tasks=1
    )

    (group,) = collected(request, 1, seed=0)
    episode = group.rollouts[0].episode
    assert (episode.stop, episode.verdict) == ("limit", verdict)
    assert episode.reward == (0.0 if verdict is Verdict.FAILED else None)
    assert group.rollouts[0].turns


def test_a_task_that_was_not_opened_is_named(folder: Path) -> None:
    request = asked_for(folder, PolicyServerDouble(looks_and_tells), name="agent_task")

    async def work(rollouts: Rollouts) -> None:
        await rollouts.collect([replace(request.tasks[0], id="t7")], 1, step=1, seed=0)

    with pytest.raises(UserError, match="task 't7' is not in the opened tasks; known: t0, t1"):
        asyncio.run(collecting(request, work))


def test_a_node_that_the_graph_lacks_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "mine")  # models of other nodes would be asked
    request = asked_for(
        folder,
        PolicyServerDouble(looks_and_tells),
        name="agent_node",
        more='[policy]\nonly_nodes = ["modell"]\n',
    )

    async def work(rollouts: Rollouts) -> None:
        raise AssertionError

    with pytest.raises(UserError, match="node 'modell' is not in the graph; did you mean 'model'"):
        asyncio.run(collecting(request, work))


def test_what_a_graphs_model_was_set_to_is_told_once(folder: Path) -> None:
    request = asked_for(folder, PolicyServerDouble(looks_and_tells), name="agent_told")

    async def work(rollouts: Rollouts) -> tuple[str, ...]:
        await rollouts.collect(request.tasks, 1, step=1, seed=0)
        await rollouts.collect(request.tasks, 1, step=2, seed=0)
        return rollouts.notes

    assert asyncio.run(collecting(request, work)) == (
        "gpt-x is set to temperature 0.2; the policy that stands in for it samples at 1",
    )


def test_a_task_that_is_admitted_later_is_collected_from_and_judged_as_any_other(folder: Path) -> None:
    async def work(rollouts: Rollouts) -> list[Group]:
        made = replace(rollouts_request.tasks[0], id="t0~2.1", checker="judges")
        with pytest.raises(UserError, match=r"t0~2\.1"):
            await rollouts.collect([made], 2, step=2, seed=0)
        with pytest.raises(UserError, match="checker"):
            rollouts.admit([made])
        rollouts.admit([made], {"judges": lambda outcome: "lost" in str(outcome.messages[-1]["content"])})
        return await rollouts.collect([made, *rollouts_request.tasks[:1]], 4, step=2, seed=0)

    rollouts_request = asked_for(folder, PolicyServerDouble(looks_and_tells), name="admitting")
    made, given = asyncio.run(collecting(rollouts_request, work))
    assert (made.task, given.task) == ("t0~2.1", "t0")
    for group, good in ((made, "lost"), (given, "shipped")):
        for rollout in group.rollouts:
            said = str(rollout.episode.messages[-1]["content"])
            assert (rollout.episode.verdict is Verdict.PASSED) == (good in said)


def test_a_task_that_the_graph_cannot_take_is_not_admitted(folder: Path) -> None:
    async def work(rollouts: Rollouts) -> None:
        odd = Task("odd", {"question": "what of o1?"})
        with pytest.raises(UserError, match="question"):
            rollouts.admit([odd])
        with pytest.raises(UserError, match="odd"):
            await rollouts.collect([odd], 2, step=2, seed=0)

    asyncio.run(collecting(asked_for(folder, PolicyServerDouble(looks_and_tells), name="refusing"), work))


@pytest.mark.parametrize(
    ("said", "before", "stop", "verdict"),
    [
        ("a call", 3, "limit", Verdict.FAILED),
        ("words", 3, "limit", Verdict.FAILED),
        ("words", 0, "error", Verdict.ERROR),
    ],
)
def test_a_policy_that_talks_until_its_context_is_full_has_failed_unless_it_had_not_said_anything(
    folder: Path, said: str, before: int, stop: str, verdict: Verdict
) -> None:
    def talks(request: ChatRequest) -> ChatReply:
        if sum(message.role == "assistant" for message in request.messages) >= before:
            raise EndpointError("context", "the prompt has 2050 tokens")
        return calls(("get_order", '{"order_id": "o1"}')) if said == "a call" else says("on and on")

    name = f"agent_talks_{said.replace(' ', '_')}_{before}"
    request = asked_for(folder, PolicyServerDouble(talks), name=name, tasks=1)
    request = replace(request, tasks=[replace(request.tasks[0], meta={"user": {"script": ["go on"] * 9}})])

    (group,) = collected(request, 1, seed=0)
    episode = group.rollouts[0].episode
    assert (episode.stop, episode.verdict, len(group.rollouts[0].turns)) == (stop, verdict, before)
    assert "the prompt has 2050 tokens" in episode.reason


LEAKING = """
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import ToolMessage

LEDGER = []  # its `append` is a method of a C type


@wrap_tool_call
async def by_itself(request, handler):
    LEDGER.append(request.tool_call["args"])
    return ToolMessage("shipped", tool_call_id=request.tool_call["id"], name=request.tool_call["name"])


graph = create_agent(ChatOpenAI(model="gpt-x"), [get_order], middleware=[by_itself])
"""


def test_a_real_call_in_a_collection_ends_it_and_stays_told_of(folder: Path) -> None:
    switch = StopSwitch()
    request = asked_for(folder, PolicyServerDouble(looks_and_tells), name="agent_leaks", tasks=3)
    (folder / "agent_leaks.py").write_text(AGENT + LEAKING)

    async def work() -> list[Group]:
        async with open_rollouts(request, stop=switch) as rollouts:
            first = await rollouts.collect(request.tasks, 2, step=1, seed=7)
            again = await rollouts.collect(request.tasks, 2, step=1, seed=7)
            assert not any(one.turns for group in again for one in group.rollouts)
            return first

    told = [one.episode for group in asyncio.run(work()) for one in group.rollouts]
    ran = [one for one in told if one.executed]
    assert ran
    assert {one.stop for one in told} <= {"executed", "cancelled"}
    assert (switch.code, switch.reason) == (6, ran[0].reason)
    assert ran[0].reason.startswith("1 real call executed: get_order(order_id='o1')")
    (kept,) = (folder / "rollouts").glob("step-000001-*-executed-*/episodes.jsonl")
    assert sorted(one.id for one in JournalReader(kept)) == sorted(one.id for one in ran)
