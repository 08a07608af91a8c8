"""Who answers: recordings first, and of a doubtful write the surer of rules and learned model."""

from each_row import each_row

from dreamgym_kit.dream.chain import FallbackChain
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, ToolSpec

ABSTAINED = Answer(source=Source.UNANSWERED, confidence=0.0, why="cannot tell")


class AnswerDouble:
    """Implements `interfaces.ExperienceModel`: always says the same."""

    waits = False

    def __init__(self, answer: Answer) -> None:
        self.answered, self._answer = 0, answer

    async def answer(self, call: Call, situation: Situation) -> Answer:
        self.answered += 1
        return self._answer


def said(provenance: Source, support: float) -> Answer:
    return Answer(content=provenance.value, source=provenance, confidence=support)


async def asked(first: Answer, last: Answer, effect: Effect = Effect.WRITE) -> tuple[Answer, int]:
    chain, learned = AnswerDouble(first), AnswerDouble(last)
    situation = Situation(Environment(), "t", "e", (), "", ToolSpec("pay", effect))
    return await FallbackChain(chain, learned, second_opinion=True).answer(
        Call("pay", {}), situation
    ), learned.answered


LEARNED = said(Source.MODEL, 0.8)


@each_row(
    ("first", "effect", "wins"),
    [
        (ABSTAINED, Effect.WRITE, True),
        (ABSTAINED, Effect.READ, True),
        (said(Source.DERIVED, 0.7), Effect.WRITE, True),
        (said(Source.ANALOGOUS, 0.7), Effect.DESTRUCTIVE, True),
        (said(Source.DERIVED, 0.85), Effect.WRITE, False),  # the surer of the two
        (said(Source.DERIVED, 0.7), Effect.READ, False),  # what reads say is known to code
        (said(Source.RECORDED, 0.7), Effect.WRITE, False),
    ],
)
async def test_who_answers(first: Answer, effect: Effect, wins: bool) -> None:
    answer, _ = await asked(first, LEARNED, effect)
    assert answer == (LEARNED if wins else first)


async def test_a_write_that_rules_are_nearly_sure_of_is_not_asked_about() -> None:
    assert (await asked(said(Source.DERIVED, 0.9), said(Source.MODEL, 1.0)))[1] == 0


async def test_where_nobody_can_tell_both_say_why() -> None:
    answer, _ = await asked(ABSTAINED, Answer(source=Source.UNANSWERED, confidence=0.0, why="not sure"))
    assert answer.unanswered
    assert answer.why == "cannot tell; not sure"


async def test_a_doubtful_answer_stands_where_the_model_cannot_tell() -> None:
    doubtful = said(Source.DERIVED, 0.6)
    assert (await asked(doubtful, ABSTAINED))[0] == doubtful
