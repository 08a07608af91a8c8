"""The learned model in the dream: asked once, its answers written by programs, part of the state after it."""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from deciding_double import DecidingDouble, by_heart
from strict_shop_double import EFFECTS, mined_shop, probed, recordings_of

from dreamgym_kit.dream.calibration import Calibrator, Trial, calibrate
from dreamgym_kit.dream.chain import ChainedExperience, FallbackChain
from dreamgym_kit.dream.learned.experience import LearnedExperience
from dreamgym_kit.dream.learned.training_data import Taught, met, taught
from dreamgym_kit.dream.learned.vocabulary import (
    LEARNED_FILE,
    LearnedCheckpoint,
    learned_to_json,
    read_learned,
)
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, ToolSpec, Transition, history_digest

SEED = 900
WORLD = Environment("shop", SEED)
READS = [row for row in probed(SEED, 0) if row.step <= 5 and row.effect is Effect.READ]
EPISODES = itertools.count()


@cache
def mined_chain() -> ChainedExperience:
    """Mined once: what one episode is told is nothing to another."""
    rows = [*recordings_of(range(14)), *READS]
    recorded = RecordedExperience(lambda world, _: [row for row in rows if row.environment == world])
    return ChainedExperience(recorded, lambda _: rows, threshold=2.0)  # code is never sure enough


@cache
def shop_lessons() -> Taught:
    return taught(list(met(*mined_shop(14))))


class Dreamed:
    """An episode in a world of which only the reads of one probe are known."""

    def __init__(
        self, says: Callable[[str], str], *, threshold: float = 0.5, probability: float = 0.9
    ) -> None:
        self.episode = f"e{next(EPISODES)}"
        self.endpoint = DecidingDouble(says, probability)
        self.programs = mined_chain().programs
        self.learned = LearnedExperience(
            self.endpoint,
            LearnedCheckpoint(shop_lessons().vocabulary),
            programs=self.programs,
            threshold=threshold,
        )
        self.model = FallbackChain(mined_chain(), self.learned)
        self.history: list[Transition] = []
        self.orders = {
            row.answer.content["order_id"]: row.answer.content
            for row in READS
            if row.call.tool == "get_order"
        }

    def situation(self, tool: str) -> Situation:
        done = history_digest([row.call.key for row in self.history if row.effect.changes_environment])
        spec = ToolSpec(tool, EFFECTS[tool])
        return Situation(WORLD, "t", self.episode, tuple(self.history), done, spec)

    async def call(self, tool: str, **args: object) -> Answer:
        call, situation = Call(tool, args), self.situation(tool)
        answer = await self.model.answer(call, situation)
        place = len(self.history) + 1
        self.history.append(
            Transition(call, answer, EFFECTS[tool], self.episode, place, WORLD, after=situation.after)
        )
        return answer


def fixed(words: str) -> Callable[[str], str]:
    return lambda _: words


async def test_a_decision_becomes_an_answer_in_the_tools_own_words_and_cites_its_reason() -> None:
    dream = Dreamed(by_heart(shop_lessons().lessons))
    order = next(name for name, one in dream.orders.items() if one["status"] == "done")
    answer = await dream.call("reship", order_id=order)
    assert answer.source is Source.MODEL
    assert (answer.error, answer.error_type) == (f"{order} is not under way", "ToolException")
    assert answer.why.startswith("learned: refused_1, because ")
    assert "<args.order_id>.status is done" in answer.why
    assert answer.changes == ()


async def test_equal_questions_are_asked_once_whatever_the_ids() -> None:
    dream = Dreamed(fixed("=> refused_1"))
    for order in dream.orders:
        await dream.call("hurry", order_id=order)
        await dream.call("hurry", order_id=order)
    assert len(dream.endpoint.asked) == len(set(dream.endpoint.asked))
    assert dream.learned.questions > dream.learned.requests


async def test_what_the_tools_program_says_is_changed_becomes_part_of_the_state() -> None:
    dream = Dreamed(fixed("=> ok"))
    order, before = next(iter(dream.orders.items()))
    paid = await dream.call("pay", order_id=order, amount=5)
    assert paid.content == {"order_id": order, "paid": 5}
    episode = dream.programs.follow(dream.situation("get_order"))
    told = episode.consider("get_order", {"order_id": order})
    assert told is not None
    assert told.out["owed"] == before["owed"] - 5


PAY = ("pay", {"amount": 5})


@pytest.mark.parametrize(
    ("words", "probability", "asked", "why"),
    [
        ("order.status done => wonderful", 0.9, PAY, "'wonderful' is no outcome of pay"),
        ("I would say that it works", 0.9, PAY, "no decision: a decision has '=>' once"),
        ("=> ok set order.owed 3", 0.9, PAY, "after '=>' stands one outcome"),
        # that a read goes well is not what it says of a thing that nobody has seen
        (
            "=> ok",
            0.9,
            ("get_order", {"order_id": "O555"}),
            "no recording shows how get_order says that outcome",
        ),
        ("=> ok", 0.4, ("hurry", {}), "; the learned model: confidence 0.40, required 0.50"),
    ],
)
async def test_what_cannot_be_used_is_told_and_nobody_answers(
    words: str, probability: float, asked: tuple[str, dict[str, object]], why: str
) -> None:
    dream = Dreamed(fixed(words), probability=probability)
    answer = await dream.call(asked[0], **{"order_id": next(iter(dream.orders)), **asked[1]})
    assert answer.unanswered
    assert why in answer.why


async def test_what_the_task_named_is_not_denied() -> None:
    words = shop_lessons().vocabulary.tools["reship"]
    unknown = next(form for form in words.refusals if "there is no order" in form)
    dream = Dreamed(fixed(f"=> {words.outcome(unknown)}"))
    call, situation = Call("reship", {"order_id": "O5"}), dream.situation("reship")
    assert (await dream.learned.answer(call, situation)).error == "there is no order O5"
    named = await dream.learned.answer(call, replace(situation, spoken=("Send O5 again, please.",)))
    assert named.unanswered
    assert named.why == "learned: somebody spoke of O5: it is there"


async def test_its_support_is_what_it_was_worth_on_held_out_calls() -> None:
    dream = Dreamed(fixed("=> ok"), probability=0.9, threshold=0.0)
    trials = [Trial("hurry", "learned ok", 0.9, number % 2 == 0) for number in range(40)]
    dream.learned._learned = replace(dream.learned._learned, calibration=calibrate(trials))
    answer = await dream.call("hurry", order_id=next(iter(dream.orders)))
    assert 0.4 < answer.confidence < 0.65


async def test_a_server_that_is_down_is_an_abstention_and_is_asked_again() -> None:
    def down(_: str) -> str:
        raise EndpointError("connection", "nobody answers")

    dream = Dreamed(down)
    order = next(iter(dream.orders))
    first = await dream.call("hurry", order_id=order)
    assert first.unanswered
    assert "nobody answers" in first.why
    dream.history.clear()
    dream.endpoint._says = fixed("=> ok")
    assert not (await dream.call("hurry", order_id=order)).unanswered


async def test_a_tool_that_it_never_learned_is_left_to_others() -> None:
    dream = Dreamed(fixed("=> ok"))
    situation = Situation(Environment("shop", 1), "t", "e", (), "", ToolSpec("burn", Effect.DESTRUCTIVE))
    answer = await dream.learned.answer(Call("burn", {}), situation)
    assert (answer.unanswered, answer.why) == (True, "the learned model knows nothing of burn")
    assert dream.endpoint.asked == []


def test_what_lies_beside_the_weights_is_read_back(tmp_path: Path) -> None:
    calibration = Calibrator({("pay", "learned ok"): (3.0, 4.0)}, (0.2, 0.8), (0.1, 0.9))
    learned = LearnedCheckpoint(shop_lessons().vocabulary, calibration, {"seed": 3})
    (tmp_path / LEARNED_FILE).write_text(json.dumps(learned_to_json(learned)))
    assert read_learned(tmp_path) == learned


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (None, r"learned.json: cannot be read \(No such file"),
        ("{", r"learned.json: is no JSON"),
        ('{"form": 1}', r"trained on facts of an older form.* distil it again: python -m"),
        ('{"form": 2, "vocabulary": {}, "calibration": {"tools": [1]}}', r"teach it anew"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, text: str | None, wrong: str) -> None:
    if text is not None:
        (tmp_path / LEARNED_FILE).write_text(text)
    with pytest.raises(UserError, match=wrong):
        read_learned(tmp_path)
