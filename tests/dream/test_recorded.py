"""A recording answers the same call in the same world after the same writes, and nothing else."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from each_row import each_row

from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, ToolSpec, Transition, history_digest

DESK = Environment("desk", 1)
GET = Call("get_order", {"id": "o1"})
PAY = Call("refund", {"id": "o1"})
AFTER_PAY = history_digest([PAY.key])


def seen(call: Call, content: str, *, after: str = "", episode: str = "e1", **answer: object) -> Transition:
    said = Answer(content, **{"source": Source.REAL, **answer})  # type: ignore[arg-type]
    return Transition(call, said, Effect.READ, episode, 1, environment=DESK, after=after)


def ask(
    recorded: Sequence[Transition],
    call: Call = GET,
    *,
    world: Environment = DESK,
    after: str = "",
    n: int = 0,
    task: str = "t",
    history: Sequence[Transition] = (),
):
    dream = RecordedExperience(lambda wanted, _: [entry for entry in recorded if entry.environment == wanted])
    spec = ToolSpec(call.tool, Effect.READ)
    situation = Situation(world, task, "e", history, after, spec, seen=n)
    return asyncio.run(dream.answer(call, situation))


def test_the_same_call_in_the_same_state_gets_the_recorded_answer_and_cites_it() -> None:
    recorded = seen(GET, "paid")
    said = ask([recorded])
    assert (said.content, said.source, said.confidence) == ("paid", Source.RECORDED, 1.0)
    assert said.cites == (recorded.id,)


@each_row(
    ("call", "world", "after", "why"),
    [
        (Call("get_order", {"id": "o2"}), DESK, "", "only `id` differs from a recording"),
        (Call("get_order", {"id": "o2"}), DESK, AFTER_PAY, "only `id` differs from a recording made after"),
        (
            Call("get_order", {"id": "o1", "a": 1, "b": 2, "c": 3, "d": 4}),
            DESK,
            "",
            "only `a`, `b`, `c` and 1 more",
        ),
        (GET, DESK, AFTER_PAY, "recorded only after other writes"),
        (GET, Environment("desk", 2), "", "get_order was never recorded in environment desk:2"),
        (PAY, DESK, "", "refund was never recorded in environment desk:1"),
        (PAY, Environment(), "", "refund was never recorded"),
    ],
)
def test_anything_else_abstains_and_says_why(call: Call, world: Environment, after: str, why: str) -> None:
    said = ask([seen(GET, "paid")], call, world=world, after=after)
    assert said.unanswered
    assert said.content is None
    assert why in said.why


REFUNDED = [seen(GET, "paid"), seen(GET, "refunded", after=AFTER_PAY)]
POLL = [seen(GET, "waiting"), seen(GET, "done")]
ALIKE = [seen(GET, "a", episode="e1"), seen(GET, "a", episode="e2"), seen(GET, "b", episode="e2")]
APART = [seen(GET, "open", episode="e1"), seen(GET, "cancelled", episode="e2")]
WRITES = [replace(seen(PAY, name, episode=name), effect=Effect.DESTRUCTIVE) for name in ("r1", "r2")]


@each_row(
    ("recorded", "asked", "answers"),
    [
        (REFUNDED, [{}, {"after": AFTER_PAY}], ["paid", "refunded"]),
        (POLL, [{"n": times} for times in range(4)], ["waiting", "done", "done", "done"]),
        (ALIKE, [{"n": 0}, {"n": 1}], ["a", "b"]),
        (APART, [{}], [None]),  # two episodes in one world that nobody reset between them
        (WRITES, [{"call": PAY}], ["r1"]),  # of a write any one will do
        *(([seen(GET, "x", source=kind)], [{}], [None]) for kind in Source if kind is not Source.REAL),
    ],
)
def test_what_was_recorded_in_this_state_is_said_again(recorded: list, asked: list, answers: list) -> None:
    assert [ask(recorded, **where).content for where in asked] == answers


def test_failures_updates_and_artifacts_come_back_whole() -> None:
    recorded = seen(GET, "", error="no such order", error_type="ToolException", artifact={"k": 1})
    said = ask([recorded])
    assert (said.error, said.error_type, said.artifact) == ("no such order", "ToolException", {"k": 1})


def test_a_world_is_read_once() -> None:
    asked: list[Environment] = []

    def recordings(world: Environment, tenant: str) -> list[Transition]:
        asked.append(world)
        return [seen(GET, "paid")]

    dream = RecordedExperience(recordings)
    situation = Situation(DESK, "t", "e", (), "", ToolSpec("get_order", Effect.READ))
    for _ in range(3):
        asyncio.run(dream.answer(GET, situation))
    assert asked == [DESK]


def test_a_disagreement_is_settled_by_the_task_and_by_what_this_dream_was_told_before() -> None:
    first, other = Call("find", {}), [seen(GET, "open", episode="e1"), seen(GET, "cancelled", episode="e2")]
    mine = replace(seen(GET, "open", episode="e1"), task="t")
    assert ask([mine, other[1]], GET, task="t").content == "open"
    led = seen(first, "here", episode="e2")
    history = [Transition(first, Answer("here", cites=(led.id,)), Effect.READ, "dream", 1, environment=DESK)]
    assert ask([*other, led], GET, history=history).content == "cancelled"
