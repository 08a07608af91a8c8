"""What is recorded is known to the dream after it; its model is shown the like, and how calls fail.

Within one dream nothing changes while somebody records beside it: siblings with equal histories get equal
answers. The next dream of the same process, on the same open store, mines what was added.
"""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row

import dreamgym_kit
from dreamgym_kit.adapters.langgraph.run.experiences import RecordedAnswers, chained_experience, reasoned_over
from dreamgym_kit.adapters.langgraph.s2r.supervisor import EarlierRecordings
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.interfaces import ExperienceModel, Hit, HybridQuery, Situation, TransitionStore
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.schema import ExperienceSettings, Settings, SimulateSettings, ToolSettings
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, Split, Task, ToolSpec, Transition

READ, WRITE = Effect.READ, Effect.WRITE


def visit(world: int) -> list[Transition]:
    """One recorded episode: a card is looked at and frozen."""
    card, place = f"C{world}", Environment("bank", world)
    return [
        Transition(Call("get_card", {"card": card}), Answer({"card": card}), READ, f"e{world}", 1, place),
        Transition(
            Call("freeze", {"card": card}), Answer({"card": card, "done": True}), WRITE, f"e{world}", 2, place
        ),
    ]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TransitionStore]:
    with closing(MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "b.db")) as store:
        yield store


def frozen(experience: ExperienceModel, card: str = "C99") -> Answer:
    place = Environment("bank", 99)
    read = Transition(Call("get_card", {"card": card}), Answer({"card": card}), READ, "e", 1, place)
    where = Situation(place, "t", "e", (read,), "", ToolSpec("freeze", WRITE))
    return asyncio.run(experience.answer(Call("freeze", {"card": card}), where))


def test_a_dream_keeps_to_what_was_recorded_when_it_began_and_the_next_one_knows_more(store) -> None:
    store.put(visit(0))
    first = chained_experience(store, Settings())
    assert frozen(first).unanswered
    store.put([row for world in range(1, 9) for row in visit(world)])
    assert frozen(first).unanswered
    told = frozen(chained_experience(store, Settings()))
    assert (told.content, told.source) == ({"card": "C99", "done": True}, Source.DERIVED)


def test_record_feeds_the_simulate_that_follows_it_in_one_process(project) -> None:
    graph = project.write()
    settings = Settings(tools={"get_order": ToolSettings(READ), "cancel_order": ToolSettings(WRITE)})
    task = Task("t", {"messages": [{"role": "user", "content": "cancel o1"}]})
    store = MemoryStore()
    before = dreamgym_kit.simulate(graph, [task], buffer=store, settings=settings)
    assert [one.verdict.value for one in RunDirectory.open(before.directory).episodes()] == ["inconclusive"]
    dreamgym_kit.record(graph, [task], buffer=store, settings=settings)
    after = dreamgym_kit.simulate(graph, [task], buffer=store, settings=settings)
    (episode,) = RunDirectory.open(after.directory).episodes()
    assert {step.answer.source for step in episode.transitions} == {Source.RECORDED}


ITEMS = ("lamp", "chair", "desk", "mug", "rug", "clock", "shelf", "bed", "sofa", "stool")


WHERE = Situation(Environment("shop"), "t", "asks.1", (), "", ToolSpec("get_order", Effect.READ))


def recorded(number: int, item: str, *, episode: str = "", split: Split = Split.TRAIN) -> Transition:
    answer = Answer({"order": f"o{number}", "item": item}, Source.REAL)
    call = Call("get_order", {"order_id": f"o{number}", "item": item})
    return Transition(
        call, answer, Effect.READ, episode or f"e{number}.1", 1, split=split, environment=Environment("shop")
    )


@pytest.fixture(params=["memory", "sqlite"])
def recorded_store(request: pytest.FixtureRequest, tmp_path: Path) -> TransitionStore:
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "b.db")
    made.put([recorded(number, ITEMS[number % len(ITEMS)]) for number in range(60)])
    missing = Answer(None, Source.REAL, error="no order o99", error_type="KeyError")
    made.put([Transition(Call("get_order", {"order_id": "o99"}), missing, Effect.READ, "x.1", 1)])
    made.put([recorded(701, "velvet", episode="asks.1"), recorded(702, "velvet", split=Split.HELD_OUT)])
    return made


def test_the_like_of_a_call_comes_first_and_a_failure_last(recorded_store: TransitionStore) -> None:
    call = Call("get_order", {"order_id": "o700", "item": "sofa"})
    shown = RecordedAnswers(recorded_store).examples(call, WHERE)
    assert [row.answer.content["item"] for row in shown[:6]] == ["sofa"] * 6
    assert shown[-1].answer.error == "no order o99"


def test_neither_the_episodes_own_rows_nor_held_out_ones_are_shown(recorded_store: TransitionStore) -> None:
    call = Call("get_order", {"order_id": "o700", "item": "velvet"})
    shown = RecordedAnswers(recorded_store).examples(call, WHERE)
    assert "velvet" not in str([row.answer.content for row in shown])


@pytest.mark.parametrize("examples", [0, 1, 6])
def test_a_model_is_shown_as_many_examples_as_settings_say(
    examples: int, recorded_store: TransitionStore
) -> None:
    endpoint = KeepsPromptDouble()
    settings = Settings(experience=ExperienceSettings(examples=examples))
    call = Call("get_order", {"order_id": "o700", "item": "sofa"})
    asyncio.run(reasoned_over(recorded_store, endpoint, settings).answer(call, WHERE))
    part = endpoint.prompts[0].partition(" examples\n")[2].partition(">>")[0]
    assert len(set(re.findall(r'"order": ?"(o\d+)"', part))) == examples
    recordings = RecordedAnswers(recorded_store, examples=examples)
    assert len(recordings.examples(call, WHERE)) == examples + min(examples // 2, 1)  # and a failure
    assert recordings.schema(call, WHERE) == RecordedAnswers(recorded_store).schema(call, WHERE)


def test_a_prompt_shows_the_tools_and_what_other_episodes_read_in_the_environment(
    recorded_store: TransitionStore,
) -> None:
    endpoint, other = KeepsPromptDouble(), ToolSpec("cancel_order", Effect.WRITE, "Cancel an order.")
    answer = Answer({"order": "o800", "item": "moon"}, Source.REAL)
    call, elsewhere = Call("get_order", {"order_id": "o800"}), Environment("elsewhere")
    recorded_store.put([Transition(call, answer, Effect.READ, "f.1", 1, environment=elsewhere)])
    specs = {spec.name: spec for spec in (WHERE.tool, other)}
    call = Call("get_order", {"order_id": "o3"})
    asyncio.run(reasoned_over(recorded_store, endpoint, Settings(), specs=specs).answer(call, WHERE))
    parts = dict(re.findall(r"<<\w+ (\w+)\n(.*?)\n\w+>>", endpoint.prompts[0], re.DOTALL))
    assert "cancel_order" in parts["tools"]
    assert '"order": "o3", "item": "bed"' not in parts["facts"]  # o3 is a bed nowhere
    assert '"order": "o3", "item": "mug"' in parts["facts"]
    assert "velvet" not in parts["facts"]  # the episode's own and a held-out row
    assert "moon" not in parts["facts"]


async def test_an_answer_that_contradicts_a_recording_of_the_environment_is_refused(
    recorded_store: TransitionStore,
) -> None:
    class SaysDouble:
        async def chat(self, request: ChatRequest) -> ChatReply:
            said = {"reasoning": "", "outcome": "ok", "answer": '{"order": "o3", "item": "rug"}'}
            return ChatReply(json.dumps({**said, "confidence": 1.0}))

    settings = Settings(simulate=SimulateSettings(min_confidence=0.1))
    call = Call("get_order", {"order_id": "o3"})
    mug = Answer({"order": "o3", "item": "mug"}, Source.REAL)
    recorded_store.put([Transition(call, mug, Effect.READ, "f.1", 1, environment=WHERE.environment)])
    answer = await reasoned_over(recorded_store, SaysDouble(), settings).answer(call, WHERE)
    assert answer.unanswered
    assert "'mug'" in answer.why


STEPS = [
    ("list_orders", {"customer": "c1"}, {"orders": ["o5", "o6"]}, Effect.READ),
    ("get_order", {"order_id": "o5"}, {"order_id": "o5", "status": "shipped"}, Effect.READ),
    ("get_order", {"order_id": "o6"}, {"order_id": "o6", "status": "open"}, Effect.READ),
    ("cancel_order", {"order_id": "o5"}, "refused", Effect.WRITE),
    ("get_order", {"order_id": "o5"}, {"order_id": "o5", "status": "late"}, Effect.READ),
]


@pytest.mark.parametrize(
    ("step", "only", "read"),
    [(4, None, 2), (4, {1, 4}, 1), (4, {4}, None), (2, None, None)],
    ids=["the nearest before it", "that may be shown", "none that may", "a read tells all itself"],
)
def test_an_example_comes_after_the_read_that_decides_it(step, only, read, tmp_path: Path) -> None:
    rows = [
        Transition(Call(tool, args), Answer(content, Source.REAL), effect, "past.1", at, Environment("shop"))
        for at, (tool, args, content, effect) in enumerate(STEPS, start=1)
    ]
    other = Transition(
        Call("get_order", {"order_id": "o5"}), rows[4].answer, Effect.READ, "later.1", 1, Environment("shop")
    )
    recorded_store = SqliteStore(tmp_path / "b.db")
    recorded_store.put([*rows, other])
    shown = None if only is None else {rows[at - 1].id for at in only}
    before = RecordedAnswers(recorded_store, shown).deciding(rows[step - 1])
    assert (before.step if before is not None else None) == read
    recorded_store.close()


def test_a_model_on_trial_is_shown_only_what_it_may_see(recorded_store: TransitionStore) -> None:
    allowed = {recorded(number, ITEMS[number % len(ITEMS)]).id for number in (8, 18)}
    shown = RecordedAnswers(recorded_store, allowed).examples(
        Call("get_order", {"order_id": "o28", "item": "sofa"}), WHERE
    )
    assert {row.id for row in shown} <= allowed


class FarStoreDouble(MemoryStore):
    """A server that answers four questions only once it has all four."""

    far = True

    def __init__(self) -> None:
        super().__init__()
        self.scans = 0
        self.all_asked = threading.Barrier(4, timeout=100)

    def scan(self, **asked: Any) -> Iterator[Transition]:
        """The rows, and one more scan."""
        self.scans += 1
        return super().scan(**asked)

    def search(self, query: HybridQuery) -> list[Hit]:
        """What is like it, once the others have asked too."""
        self.all_asked.wait()
        return super().search(query)


class KeepsPromptDouble:
    """A model that cannot tell, and keeps what it was asked."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.prompts.append("\n".join(message.content for message in request.messages))
        return await RefusesDouble().chat(request)


class RefusesDouble:
    """A model that cannot tell."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        said = {"reasoning": "", "outcome": "unknown", "like": None, "leaves": [], "answer": None}
        return ChatReply(json.dumps({**said, "error": "", "set": [], "confidence": 0.0}))


@each_row("wrapped", [False, True])
def test_a_buffer_on_a_server_does_not_hold_up_the_other_episodes(wrapped: bool) -> None:
    far = FarStoreDouble()
    far.put([recorded(number, ITEMS[number % len(ITEMS)]) for number in range(20)])
    recorded_store = EarlierRecordings(far, "own") if wrapped else far
    dream = reasoned_over(recorded_store, RefusesDouble(), Settings())

    async def ask_four() -> list[Answer]:
        calls = [Call("get_order", {"order_id": f"o{number}"}) for number in range(100, 104)]
        return await asyncio.gather(*(dream.answer(call, WHERE) for call in calls))

    answers = asyncio.run(ask_four())
    assert {answer.source for answer in answers} == {Source.UNANSWERED}
    assert not far.all_asked.broken  # all four were asked at once
    assert far.scans == 2  # a tool's rows and an environment's are read once, however many ask for them
