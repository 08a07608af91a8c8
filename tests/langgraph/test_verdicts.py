"""Verdicts of odd ends: what checkers give, time-outs, groups of exceptions, and resumed runs."""

import json
import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from each_row import each_row
from langchain_core.tools import tool

import dreamgym_kit
from dreamgym_kit import Task, Verdict
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.run import run
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import EpisodeStop
from dreamgym_kit.rollout.event_loop import run_to_end
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.journal import JournalReader
from dreamgym_kit.rollout.rundir import EPISODES, REPORT
from dreamgym_kit.settings.load import load_settings, parse_settings
from dreamgym_kit.types import Episode

NODE = """
import asyncio
from langgraph.graph import StateGraph, MessagesState, START
from dreamgym_kit.interfaces import Judgement
from dreamgym_kit.types import Verdict

class Odd(Exception):
    def __str__(self): raise RuntimeError("no text")

async def node(state):
    BODY

def checks(outcome):
    CHECK

lazy = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
"""


def ran(project: Any, body: str = "return {}", check: str = "return True") -> tuple[Any, Episode]:
    graph = project.write(NODE.replace("BODY", body).replace("CHECK", check))
    task = Task("t", {"messages": [{"role": "user", "content": "hi"}]}, checker=f"{project.module}:checks")
    done = dreamgym_kit.simulate(graph.replace(":graph", ":lazy"), [task], buffer=MemoryStore())
    (episode,) = JournalReader(done.directory / EPISODES)
    return done, episode


@each_row("body", ["raise TimeoutError()", "await asyncio.wait_for(asyncio.sleep(60), 0.01)"])
def test_a_time_out_of_the_agents_own_code_is_its_failure(project: Any, body: str) -> None:
    _, episode = ran(project, body)
    assert (episode.verdict, episode.stop) == (Verdict.FAILED, "error")
    assert episode.reason.startswith("the graph raised TimeoutError")


def test_an_episode_whose_own_time_is_over_is_inconclusive(project: Any) -> None:
    graph = project.write(NODE.replace("BODY", "await asyncio.sleep(60)").replace("CHECK", "return True"))
    settings = parse_settings("[limits]\nmax_seconds = 0.2\n")
    task = Task("t", {"messages": [{"role": "user", "content": "hi"}]}, checker=f"{project.module}:checks")
    spec = graph.replace(":graph", ":lazy")
    done = dreamgym_kit.simulate(spec, [task], settings=settings, buffer=MemoryStore())
    assert done.verdict is Verdict.INCONCLUSIVE
    assert [line.reason for line in done.summary.episodes] == ["the episode's time limit was reached"]


def test_a_group_of_exceptions_keeps_the_agents_line(project: Any) -> None:
    _, episode = ran(project, 'raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])')
    assert episode.verdict is Verdict.FAILED
    assert "in node" in episode.traceback[-1]


@each_row("key", ["order", "messages", "other"])
def test_a_field_of_the_state_that_the_task_does_not_give_is_named(
    key: str, project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wider = NODE.replace("StateGraph(MessagesState)", "StateGraph(State)")
    wider = wider.replace("async def node", "class State(MessagesState): order: str\nasync def node")
    monkeypatch.setitem(globals(), "NODE", wider)
    hint = "; the state has a field of that name, which the task's input does not give"
    _, episode = ran(project, f"raise KeyError({key!r})")
    assert episode.reason == f"the graph raised KeyError: '{key}'{hint if key == 'order' else ''}"


CONTEXT = """
import asyncio
from dataclasses import dataclass
from langgraph.graph import StateGraph, MessagesState, START
from langgraph.runtime import Runtime

@dataclass
class Who:
    user: str

async def node(state, runtime: Runtime[Who]):
    BODY

made = StateGraph(MessagesState, context_schema=Who)
made.add_node("node", node)
made.add_edge(START, "node")
lazy = made.compile()
"""


BODIES = {
    "return {'messages': [runtime.context.user]}": Verdict.ERROR,
    "who = runtime.context\n    return {'messages': [who.user]}": Verdict.ERROR,
    "assert runtime.context": Verdict.ERROR,
    "if runtime.context is None: raise ValueError('no context given')": Verdict.ERROR,
    "who = runtime.context\n    if who is None:\n        raise ValueError('no user')": Verdict.ERROR,
    "return {'messages': [None.user]}": Verdict.ERROR,  # not known to have another cause
    "return {}": Verdict.PASSED,
}


def test_a_context_that_nobody_gives_is_the_set_ups_fault(project: Any) -> None:
    nodes = "".join(
        f"\nasync def node{number}(state, runtime: Runtime[Who]):\n    {body}\nmade.add_node(node{number})\n"
        for number, body in enumerate(BODIES)
    )
    way = "made.add_conditional_edges(START, lambda state: state['messages'][0].content)\n"
    text = CONTEXT.replace("BODY", "return {}").replace('made.add_edge(START, "node")\n', nodes + way)
    tasks = [
        Task(body, {"messages": [{"role": "user", "content": f"node{number}"}]}, expect={"max": {}})
        for number, body in enumerate(BODIES)
    ]
    spec = project.write(text).replace(":graph", ":lazy")
    done = dreamgym_kit.simulate(spec, tasks, buffer=MemoryStore())
    episodes = list(JournalReader(done.directory / EPISODES))
    assert {one.task: one.verdict for one in episodes} == BODIES, [one.reason for one in episodes]


def test_a_node_that_is_cancelled_keeps_the_agents_line(project: Any) -> None:
    _, episode = ran(project, "raise asyncio.CancelledError")
    assert episode.verdict is Verdict.FAILED, episode
    assert "in node" in episode.traceback[-1]


def test_a_signal_that_finds_every_episode_run_changes_no_exit_code(project: Any) -> None:
    done, _ = ran(project)
    assert (done.exit_code, replace(done, stopped_by=2).exit_code) == (0, 0)
    cut = replace(done.summary, manifest={**done.summary.manifest, "not_run": 1, "stopped": "SIGINT"})
    assert replace(done, summary=cut, stopped_by=2).exit_code == 130


def test_an_exception_without_a_text_is_the_agents_failure(project: Any) -> None:
    _, episode = ran(project, "raise Odd")
    assert episode.verdict is Verdict.FAILED
    assert episode.reason.startswith("the graph raised Odd")


CHECKS = (
    'return Judgement("passed", "ok")',
    "return Judgement(Verdict.PASSED, None)",
    "return Judgement(Verdict.PASSED, 'ok', 7.0)",
    f"return Judgement(Verdict.PASSED, 'ok', float({str(math.nan)!r}))",
    "raise SystemExit",
    "import pytest; pytest.fail('no')",
    "import pytest; pytest.skip('no')",
    "raise asyncio.CancelledError",
)


def test_what_a_checker_must_not_give_is_an_error_that_names_it(project: Any) -> None:
    more = "".join(f"\ndef check{number}(outcome):\n    {check}\n" for number, check in enumerate(CHECKS))
    spec = project.write(NODE.replace("BODY", "return {}").replace("CHECK", "return True") + more)
    tasks = [
        Task(
            check,
            {"messages": [{"role": "user", "content": "hi"}]},
            checker=f"{project.module}:check{number}",
        )
        for number, check in enumerate(CHECKS)
    ]
    done = dreamgym_kit.simulate(spec.replace(":graph", ":lazy"), tasks, buffer=MemoryStore())
    said = {one.task: (one.verdict, one.reason[:19]) for one in JournalReader(done.directory / EPISODES)}
    assert said == dict.fromkeys(CHECKS, (Verdict.ERROR, "the checker raised "))
    assert done.exit_code == 4


def test_a_checker_without_a_reason_has_one_in_the_report(project: Any) -> None:
    _, episode = ran(project, check="return Judgement(Verdict.INCONCLUSIVE, '')")
    assert episode.reason == "the checker gives no reason"


def test_a_run_without_a_conclusive_episode_never_passes(project: Any) -> None:
    graph = project.write(NODE.replace("BODY", "return {}").replace("CHECK", "return True"))
    settings = parse_settings("[gate]\nmin_pass_rate = 0\nmax_inconclusive = 1\n")
    task = Task("t", {"messages": [{"role": "user", "content": "hi"}]})
    spec = graph.replace(":graph", ":lazy")
    done = dreamgym_kit.simulate(spec, [task], settings=settings, buffer=MemoryStore())
    assert (done.verdict, done.exit_code) == (Verdict.INCONCLUSIVE, 3)


def test_what_was_blocked_in_an_earlier_leg_fails_the_resumed_run(project: Any) -> None:
    graph = project.write(NODE.replace("BODY", "return {}").replace("CHECK", "return True"))
    task = Task("t", {"messages": [{"role": "user", "content": "hi"}]}, checker=f"{project.module}:checks")
    spec = graph.replace(":graph", ":lazy")
    done = dreamgym_kit.simulate(spec, [task], buffer=MemoryStore())
    assert done.passed
    report = json.loads((done.directory / REPORT).read_text())
    report["manifest"]["strays"] = ["pay was called outside of any episode; it did not run"]
    (done.directory / REPORT).write_text(json.dumps(report))
    again = RunRequest(
        graph=spec,
        tasks=[task],
        settings=load_settings(environ={}),
        store=MemoryStore(),
        directory=done.directory,
        resume=True,
    )
    assert run_to_end(run(again, events=NoEvents())).verdict is Verdict.FAILED


class CallsAToolDouble:
    """A sink that calls a real tool outside of any episode."""

    def emit(self, kind: str, /, **facts: Any) -> None:
        @tool
        def pay_the_sink(amount: int) -> str:
            """Pay."""
            raise AssertionError("it ran")

        if kind == "episode_started":
            with suppress(EpisodeStop):
                pay_the_sink.invoke({"amount": 1})


def test_what_was_blocked_outside_of_episodes_is_known_after_a_kill(project: Any) -> None:
    graph = project.write(NODE.replace("BODY", "return {}").replace("CHECK", "return True"))
    task = Task("t", {"messages": [{"role": "user", "content": "hi"}]}, checker=f"{project.module}:checks")
    request = RunRequest(
        graph=graph.replace(":graph", ":lazy"),
        tasks=[task],
        settings=load_settings(environ={}),
        store=MemoryStore(),
        directory=project.folder / "run",
    )
    first = run_to_end(run(request, events=CallsAToolDouble()))
    assert (first.verdict, len(first.strays)) == (Verdict.FAILED, 1)
    (first.directory / REPORT).unlink()  # a killed process has not written it
    again = run_to_end(run(replace(request, resume=True), events=NoEvents()))
    assert again.verdict is Verdict.FAILED
    assert again.summary.fact("strays") == list(first.strays)


MODEL = """
from typing import Any
import httpx
import openai
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langgraph.graph import StateGraph, MessagesState, START
from langgraph.types import Command, interrupt

class AgentsOwn(Exception): pass

made = StateGraph(MessagesState)
made.add_conditional_edges(START, lambda state: state["messages"][0].content)
"""
ANSWERER = """
class AwayN(ScriptedModelDouble):
    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        FAILS

def nodeN(state):
    model, backup = AwayN(turns=["Done."]), ScriptedModelDouble(turns=["Done."])
    BODY

made.add_node(nodeN)
"""


def answered(
    project: Any, rows: Iterable[tuple[str, str]], more: str = "", settings: str = ""
) -> list[Episode]:
    """An episode each of nodes whose model fails, and which do something about it, in one run."""
    nodes = [
        re.sub(r"\b(Away|node)N\b", rf"\g<1>{number}", ANSWERER).replace("FAILS", fails).replace("BODY", body)
        for number, (fails, body) in enumerate(rows)
    ]
    spec = project.write("".join([MODEL, more, *nodes, "\nlazy = made.compile()\n"])).replace(
        ":graph", ":lazy"
    )
    tasks = [
        Task(f"t{number}", {"messages": [{"role": "user", "content": f"node{number}"}]}, expect={"max": {}})
        for number in range(len(nodes))
    ]
    done = dreamgym_kit.simulate(spec, tasks, buffer=MemoryStore(), settings=parse_settings(settings))
    episodes = {one.task: one for one in JournalReader(done.directory / EPISODES)}
    return [episodes[task.id] for task in tasks]


UNAUTHORIZED = (
    'raise openai.AuthenticationError("bad key", body=None, '
    'response=httpx.Response(401, request=httpx.Request("POST", "http://m")))'
)
OWN_CLIENT = "getattr(__import__('ht' + 'tpx'), 'get')('http://127.0.0.1:1/orders')"  # cannot be read


ENDPOINTS = [
    (UNAUTHORIZED, 'model.invoke("hi")', Verdict.ERROR, "did not answer: AuthenticationError"),
    (
        UNAUTHORIZED,
        "try: model.invoke('hi')\n    except Exception as error: raise AgentsOwn('no model') from error",
        Verdict.ERROR,
        "did not answer: AgentsOwn: no model",
    ),
    (
        UNAUTHORIZED,
        "try: model.invoke('hi')\n    except Exception: raise AgentsOwn('no model') from None",
        Verdict.ERROR,
        "did not answer: AgentsOwn: no model",
    ),
    (
        UNAUTHORIZED,
        "try: model.invoke('hi')\n    except Exception: return {'messages': [AIMessage('Sorry.')]}",
        Verdict.ERROR,
        "did not answer: AuthenticationError: bad key; the agent caught it",
    ),
    (
        UNAUTHORIZED,
        "try: model.invoke('hi')\n    except Exception: return {'messages': [backup.invoke('hi')]}",
        Verdict.PASSED,
        "",
    ),
    (
        "raise ValueError('odd')",
        "try: model.invoke('hi')\n    except ValueError: return {'messages': [AIMessage('Sorry.')]}",
        Verdict.PASSED,
        "",
    ),
    ("raise ValueError('odd')", 'model.invoke("hi")', Verdict.FAILED, "the graph raised ValueError: odd"),
    ("pass", OWN_CLIENT, Verdict.FAILED, "the graph raised "),
    ("pass", "raise openai.OpenAIError('mine')", Verdict.FAILED, "the graph raised OpenAIError: mine"),
    ("pass", "openai.OpenAI(api_key=None)", Verdict.ERROR, "did not answer: OpenAIError"),
]


def test_a_models_endpoint_is_told_from_the_agents_own_requests(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    settings = '[guard]\nallow_hosts = ["127.0.0.1"]\n'
    episodes = answered(project, [row[:2] for row in ENDPOINTS], settings=settings)
    for episode, (fails, body, verdict, why) in zip(episodes, ENDPOINTS, strict=True):
        row = (fails, body, episode.reason)
        assert (episode.verdict, why in episode.reason) == (verdict, True), row
        assert bool(episode.traceback) is (verdict is Verdict.FAILED), row


CAUGHT = "try: model.invoke('hi')\n    except Exception: pass\n    "
AFTER_A_CAUGHT_401 = {
    "its own crash on what is missing": (f"{CAUGHT}return [][0]", Verdict.ERROR),
    "going in circles": (f"{CAUGHT}return Command(goto='node1')", Verdict.ERROR),
    "a question": (f"{CAUGHT}interrupt('the model is down')", Verdict.ERROR),
    "a stream that is not read to its end": (
        f"{CAUGHT}for part in streamed.stream('hi'): break\n    return {{}}",
        Verdict.PASSED,
    ),
    "another that answered meanwhile": (
        (
            "hedged = Hedged(turns=['Done.'], other=backup)\n    try: hedged.invoke('hi')\n"
            "    except Exception: return {}"
        ),
        Verdict.PASSED,
    ),
    "a crash of the handler that had an answer": (
        "try: model.invoke('hi')\n    except Exception:\n        backup.invoke('hi')\n        return [][0]",
        Verdict.FAILED,
    ),
}


def test_an_episode_whose_model_never_answered_again_is_an_error(project: Any) -> None:
    more = f"""
class Streamed(ScriptedModelDouble):
    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        for word in ("One", "two"):
            yield ChatGenerationChunk(message=AIMessageChunk(word))

class Hedged(ScriptedModelDouble):
    other: Any
    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.other.invoke("hi")
        {UNAUTHORIZED}

streamed = Streamed(turns=["Done."])
"""
    rows = [(UNAUTHORIZED, body) for body, _ in AFTER_A_CAUGHT_401.values()]
    got = dict(zip(AFTER_A_CAUGHT_401, answered(project, rows, more), strict=True))
    expected = {how: verdict for how, (_, verdict) in AFTER_A_CAUGHT_401.items()}
    assert {how: one.verdict for how, one in got.items()} == expected, [one.reason for one in got.values()]


def test_a_subgraph_without_its_context_is_the_set_ups_fault_and_keeps_the_agents_lines(project: Any) -> None:
    inner = CONTEXT.replace("BODY", "return {'messages': [runtime.context.user]}").replace(
        "class Who", "class Who2"
    )
    outer = """
outermost = StateGraph(MessagesState).add_node("inner", lazy).add_edge(START, "inner").compile()
"""
    graph = project.write(
        inner.replace("[Who]", "[Who2]").replace("schema=Who", "schema=Who2 | dict") + outer
    )
    task = Task("t", {"messages": [{"role": "user", "content": "hi"}]}, expect={"max": {}})
    done = dreamgym_kit.simulate(graph.replace(":graph", ":outermost"), [task], buffer=MemoryStore())
    (episode,) = JournalReader(done.directory / EPISODES)
    assert (episode.verdict, bool(episode.traceback)) == (Verdict.ERROR, True), episode.reason


INTERRUPTS = {
    "in a node": "raise KeyboardInterrupt",
    "in a task of the agent's own": "await asyncio.create_task(interrupts())",
}


@each_row("how", INTERRUPTS)
def test_a_keyboard_interrupt_of_the_agent_ends_the_run_like_ctrl_c(project: Any, how: str) -> None:
    body = f'if "two" in state["messages"][0].content:\n        {INTERRUPTS[how]}\n    return {{}}'
    text = NODE.replace("BODY", body).replace("CHECK", "return True")
    graph = project.write(f"{text}\n\nasync def interrupts():\n    raise KeyboardInterrupt\n")
    tasks = [
        Task(name, {"messages": [{"role": "user", "content": name}]}, checker=f"{project.module}:checks")
        for name in ("one", "two", "three")
    ]
    settings = parse_settings("[simulate]\nconcurrency = 1\n")
    spec = graph.replace(":graph", ":lazy")
    done = dreamgym_kit.simulate(spec, tasks, settings=settings, buffer=MemoryStore())
    assert (done.verdict, done.exit_code, done.summary.exit_code) == (Verdict.INCONCLUSIVE, 130, 130)
    assert done.summary.headline.startswith("INCONCLUSIVE (interrupted)  1 passed, 0 failed, 0 inconclusive")
    found = dreamgym_kit.evaluate(spec, tasks, settings=settings, buffer=MemoryStore())
    assert (found.verdict, found.exit_code) == (Verdict.INCONCLUSIVE, 130)
    assert (done.directory / REPORT).is_file(), "it cannot be resumed"
