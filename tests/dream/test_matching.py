"""`[match]`: an argument that does not change an answer need not equal the recording."""

from dataclasses import replace
from pathlib import Path

import pytest

from dreamgym_kit.dream.matching import Match
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.errors import UnknownName
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.settings.load import check_match, parse_settings
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, ToolSpec, Transition, history_digest

LEAVE = ToolSpec(
    "submit_leave", Effect.WRITE, args_schema={"properties": {"days": {}, "reason": {}, "note": {}}}
)
LIST = ToolSpec("list_leaves", Effect.READ, args_schema={"properties": {}})
BY_REASON = Match({"submit_*": ("reason",)})
OURS = Call("submit_leave", {"days": 4, "reason": "family vacation"})
NOW = Call("submit_leave", {"days": 4, "reason": "Family holiday"})


def recorded(call: Call, content: object, step: int, before: tuple[Call, ...] = ()) -> Transition:
    spec = LEAVE if call.tool == "submit_leave" else LIST
    after = history_digest([one.key for one in before])
    return Transition(call, Answer(content), spec.effect, "ben.1", step, after=after)


FIRST = recorded(OURS, {"id": 7, "text": "for: family vacation", "reason": "family vacation", "days": 4}, 1)
LISTED = recorded(Call("list_leaves", {}), ["family vacation, 4 days"], 2, (OURS,))


async def asked(
    call: Call, history: tuple[Transition, ...] = (), match: Match = BY_REASON, spec: ToolSpec = LEAVE
) -> Answer:
    dream = RecordedExperience(lambda world, tenant: [FIRST, LISTED], match)
    after = history_digest([one.call.key for one in history if one.effect.changes_environment])
    return await dream.answer(call, Situation(Environment(), "ben", "ben.2", history, after, spec))


async def test_other_words_in_an_ignored_argument_are_answered_with_the_words_of_now() -> None:
    answer = await asked(NOW)
    assert answer.source is Source.RECORDED
    assert answer.content == {"id": 7, "text": "for: Family holiday", "reason": "Family holiday", "days": 4}
    assert answer.cites == (FIRST.id,)


async def test_without_a_line_and_with_another_argument_nothing_is_guessed() -> None:
    assert (await asked(NOW, match=Match())).unanswered
    assert (await asked(Call("submit_leave", {"days": 5, "reason": "Family holiday"}))).unanswered
    assert (await asked(Call("submit_leave", {"days": 4, "reason": "x", "note": "y"}))).unanswered


async def test_a_read_after_such_a_write_meets_the_recorded_state() -> None:
    done = Transition(NOW, Answer({"id": 7}), Effect.WRITE, "ben.2", 1)
    answer = await asked(Call("list_leaves", {}), (done,), spec=LIST)
    assert answer.content == ["family vacation, 4 days"]
    other = Transition(Call("submit_leave", {"days": 9, "reason": "z"}), Answer({}), Effect.WRITE, "ben.2", 1)
    assert (await asked(Call("list_leaves", {}), (other,), spec=LIST)).unanswered


async def test_the_same_call_again_gets_the_next_recording() -> None:
    look = ToolSpec("look", Effect.READ)
    told = [
        Transition(Call("look", {"why": why}), Answer(why), Effect.READ, "ben.1", step)
        for step, why in enumerate(("one", "two"), start=1)
    ]
    dream = RecordedExperience(lambda world, tenant: told, Match({"look": ("why",)}))
    first = Transition(Call("look", {"why": "now"}), Answer("now"), Effect.READ, "ben.2", 1)
    answer = await dream.answer(
        Call("look", {"why": "then"}), Situation(Environment(), "ben", "ben.2", (first,), "", look)
    )
    assert (answer.content, answer.cites) == ("then", (told[1].id,))


async def test_an_equal_recording_answers_before_others_that_differ_in_ignored_arguments() -> None:
    other = Transition(
        Call("submit_leave", {"days": 4, "reason": "ill"}), Answer({"id": 9}), Effect.WRITE, "ana.1", 1
    )
    dream = RecordedExperience(lambda world, tenant: [other, FIRST], BY_REASON)
    answer = await dream.answer(OURS, Situation(Environment(), "ben", "ben.2", (), "", LEAVE))
    assert answer.cites == (FIRST.id,)
    read = [replace(LISTED, episode=f"{at}.1", answer=Answer([at]), after="") for at in ("x", "y")]
    look = [replace(one, call=Call("list_leaves", {"why": at})) for at, one in zip("xy", read, strict=True)]
    dream = RecordedExperience(lambda world, tenant: look, Match({"list_leaves": ("why",)}))
    asked_now = Situation(Environment(), "ben", "ben.2", (), "", LIST)
    assert (await dream.answer(look[1].call, asked_now)).content == ["y"]
    assert (await dream.answer(Call("list_leaves", {"why": "z"}), asked_now)).unanswered


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('submit_leav = { ignore = ["reason"] }', "tool 'submit_leav' is not in the graph; did you mean"),
        (
            'submit_leave = { ignore = ["reson"] }',
            "argument 'reson' is not in those of submit_leave; did you",
        ),
    ],
)
def test_a_slip_in_a_name_is_refused(toml: str, said: str) -> None:
    settings = parse_settings(f"[match]\n{toml}\n", path=Path("dreamgym.toml"))
    with pytest.raises(UnknownName) as refused:
        check_match(settings, {"submit_leave": LEAVE, "list_leaves": LIST})
    assert str(refused.value).startswith(f"dreamgym.toml:2: {said}")
