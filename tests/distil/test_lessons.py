"""A lesson is the very prompt of a dream and a decision that code makes the recorded answer of."""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

from deciding_double import ScriptedChatDouble
from distil.shop_recordings import SPECS, WHOLE, episode, noted, shop, taught
from each_row import each_row

from dreamgym_kit.dream.decision import read_decision
from dreamgym_kit.dream.held_out import situation_of
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.dream.prompt import shown_tools
from dreamgym_kit.training.annotation import Annotation
from dreamgym_kit.training.lessons import (
    PARTS,
    CallLesson,
    Leaving,
    TargetDecision,
    balanced,
    query_for,
    spelled,
)
from dreamgym_kit.types import Answer, Source, Transition


def dreamt(lesson: CallLesson, made) -> tuple[Answer, str]:
    """What a dream answers where its model says what the lesson teaches, and what that model was asked."""
    row = made.rows[lesson.row]
    before = [one for one in made.rows.values() if one.episode == row.episode and one.step < row.step]
    chat = ScriptedChatDouble(lesson.answer)
    model = ReasonedExperience(
        chat,
        retrieve=lambda call, situation: [made.rows[one] for one in lesson.examples],
        schemas=made.sight.schemas,
        programs=made.sight.programs,
        facts=made.sight.facts,
        tools=shown_tools(SPECS),
    )
    situation = situation_of(row, sorted(before, key=lambda one: one.step), SPECS[row.call.tool])
    answer = asyncio.run(model.answer(row.call, situation))
    return answer, chat.requests[0].messages[1].content if chat.requests else ""


def marks_out(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{16}\b", "MARK", text)


def test_a_dream_that_says_what_a_lesson_teaches_answers_as_recorded(tmp_path: Path) -> None:
    found, counts, made = taught(tmp_path, shop())
    assert counts.lessons.total() == len(found) == 9
    for lesson in found:
        answer, _ = dreamt(lesson, made)
        row = made.rows[lesson.row]
        assert (answer.content, answer.error) == (row.answer.content, row.answer.error)
        assert answer.source is Source.MODEL


def test_a_lesson_asks_what_a_dream_asks(tmp_path: Path) -> None:
    found, _, made = taught(tmp_path, shop())
    for lesson in found:
        _, asked = dreamt(lesson, made)
        assert not asked or marks_out(lesson.messages[1].content) == marks_out(asked)
    assert len({re.findall(r"[0-9a-f]{16}", one.messages[1].content)[0] for one in found}) == len(found)


def test_no_lesson_shows_its_own_call_episode_or_world(tmp_path: Path) -> None:
    rows = shop()
    twin = [
        Transition(row.call, row.answer, row.effect, "twin", row.step, row.environment)
        for row in episode(4, 0)
    ]
    found, _, made = taught(tmp_path, [*rows, *twin])
    assert any(lesson.examples for lesson in found)
    for lesson in found:
        shown = [made.rows[one] for one in lesson.examples]
        assert lesson.row not in lesson.examples
        assert {one.episode for one in shown}.isdisjoint({made.rows[lesson.row].episode})
        assert all(str(one.environment) != made.last for one in shown)


def test_parts_are_left_out_as_often_as_was_said(tmp_path: Path) -> None:
    rows = shop(4, 5)
    everything, _, _ = taught(tmp_path, rows, Leaving(0, 0, 0))
    nothing, _, _ = taught(tmp_path, rows, Leaving(1, 1, 1))
    assert all(not lesson.left_out for lesson in everything)
    for lesson in nothing:
        told = lesson.messages[1].content
        assert lesson.left_out == ("history", "examples", "state")
        assert lesson.examples == ()
        assert all(f" {part}\n" not in told for part in PARTS)
    half, _, _ = taught(tmp_path, rows, Leaving(0.5, 0.5, 0.5))
    again, _, _ = taught(tmp_path, rows, Leaving(0.5, 0.5, 0.5))
    assert half == again  # the same recordings give the same lessons
    for part in PARTS:
        assert 3 < sum(part in lesson.left_out for lesson in half) < 13


def test_what_stood_in_a_part_that_is_left_out_is_no_reason(tmp_path: Path) -> None:
    def told(one) -> Annotation:
        notes = noted(one).notes
        status = str(one.steps[0].answer.content["status"])
        return Annotation(one.key, "x", tuple(type(note)(note.step, f"It is {status}.") for note in notes))

    shown, _, _ = taught(tmp_path, shop(), WHOLE, annotate=told)
    hidden, _, _ = taught(tmp_path, shop(), Leaving(1, 0, 1), annotate=told)
    writes = [json.loads(one.answer) for one in shown if one.tool == "cancel_order"]
    assert all(said["reasoning"].startswith("It is ") for said in writes)
    writes = [json.loads(one.answer) for one in hidden if one.tool == "cancel_order"]
    assert {said["reasoning"] for said in writes} == {"What decides it is not shown."}
    assert {said["confidence"] for said in writes} == {0.3}


def test_a_model_without_reasons_is_taught_none(tmp_path: Path) -> None:
    found, _, _ = taught(tmp_path, shop(), Leaving(0, 0, 0, reasoning=False))
    assert {json.loads(one.answer)["reasoning"] for one in found} == {""}


def test_changes_that_nobody_knows_are_given_and_not_learned(tmp_path: Path) -> None:
    rows = [*shop(), *episode(5, 0), *episode(5, 1, again=False), *episode(5, 2)]
    found, _, made = taught(tmp_path, rows)
    writes = {made.rows[one.row].episode: one for one in found if one.tool == "cancel_order"}
    known, unknown = (
        writes["e5-0" if made.rows[writes["e5-0"].row].answer.error is None else "e5-2"],
        writes["e5-1"],
    )
    assert json.loads(known.answer)["set"] == [{"entity": ANY, "field": "status", "value": "cancelled"}]
    assert known.unlearned == ()
    ((start, end),) = unknown.unlearned
    assert (unknown.answer[:start].endswith('"set": '), unknown.answer[start:end]) == (True, "[]")


class _Any:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, str)


ANY = _Any()


def test_an_annotators_own_changes_go_before_what_was_read_again(tmp_path: Path) -> None:
    found, _, _ = taught(tmp_path, shop(), annotate=lambda one: noted(one, changes=()))
    done = [json.loads(one.answer) for one in found if one.tool == "cancel_order"]
    assert all(said["set"] == [] for said in done)
    assert all(one.unlearned == () for one in found)


def test_an_annotation_of_other_steps_teaches_nothing(tmp_path: Path) -> None:
    found, counts, _ = taught(
        tmp_path, shop(), annotate=lambda one: Annotation(one.key, "x", noted(one).notes[:-1])
    )
    assert (found, counts.unannotated) == ([], 3)


def test_an_answer_that_no_decision_makes_is_counted_and_not_taught(tmp_path: Path) -> None:
    row = Transition(
        episode(4, 0)[0].call,
        Answer(update={"x": 1}),
        episode(4, 0)[0].effect,
        "odd",
        1,
        episode(4, 0)[0].environment,
    )
    found, counts, _ = taught(tmp_path, [*shop(), row])
    assert counts.unsayable == {"get_order": 1}
    assert row.id not in {one.row for one in found}


def test_an_answer_that_the_decision_does_not_give_again_is_not_taught(tmp_path: Path) -> None:
    first = episode(4, 0)[0]
    row = replace(first, answer=replace(first.answer, artifact={"etag": "x"}), episode="odd")
    found, counts, _ = taught(tmp_path, [*shop(), row])
    assert counts.unsayable == {"get_order": 1}
    assert row.id not in {one.row for one in found}


def test_whatever_is_found_a_call_is_not_shown_itself_nor_its_episode(tmp_path: Path) -> None:
    _, _, made = taught(tmp_path, shop())
    own, other = episode(4, 0), episode(2, 1)
    sight = made.sight._replace(retrieve=lambda call, situation: [*own, *other])
    assert query_for(own[2], own[:2], sight, SPECS["get_order"]).examples == tuple(other)


def test_rare_classes_come_more_often() -> None:
    common = [CallLesson(str(number), "a", "ok", (), "") for number in range(100)]
    rare = [CallLesson("rare", "a", "error", (), "")]
    drawn = balanced([*common, *rare])
    assert len([one for one in drawn if one.row == "rare"]) == 10
    assert len(drawn) == 110


@each_row("known", [True, False])
def test_a_decision_is_spelled_as_a_grammar_spells_it(known: bool) -> None:
    said = {"reasoning": 'quote " and é', "outcome": "ok", "like": 1, "leaves": [{"path": "a.b", "value": 1}]}
    whole = {**said, "answer": None, "error": "", "set": [], "confidence": 0.95}
    text, unlearned = spelled(TargetDecision(whole, known, True))
    assert text == json.dumps(whole, ensure_ascii=False)
    assert read_decision(text).leaves == {"a.b": 1}
    assert [text[start:end] for start, end in unlearned] == ([] if known else ["[]"])
