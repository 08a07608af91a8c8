"""What is recorded is known to the dream after it: each dream mines what its buffer holds, as it begins.

Within one dream nothing changes while somebody records beside it: siblings with equal histories get equal
answers. The next dream of the same process, on the same open store, mines what was added.
"""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import dreamgym_kit
from dreamgym_kit.adapters.langgraph.run.experiences import chained_experience
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.interfaces import ExperienceModel, Situation, TransitionStore
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.schema import Settings, ToolSettings
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, Task, ToolSpec, Transition

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
