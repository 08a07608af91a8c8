"""Worlds that nobody recorded, who may judge in them, and the dream that is put together of both."""

import asyncio
from dataclasses import replace
from functools import cache

import pytest
from dream.checklist_clinic import EFFECTS, Clinic
from dream.checklist_recorded import advances, recorded

from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.checklist.checklist import Checklist, Wrong
from dreamgym_kit.dream.checklist.composing import Shelf, clean_reads, composed, shelf_of
from dreamgym_kit.dream.checklist.distribution import Shapes, compare_shapes, kinds_apart
from dreamgym_kit.dream.checklist.gate import Bounds, gate_of
from dreamgym_kit.dream.checklist.imagined import ImaginedExperience
from dreamgym_kit.dream.checklist.labels import Work
from dreamgym_kit.dream.checklist.learning import lessons_of, tree_marks
from dreamgym_kit.dream.checklist.marks import Marks
from dreamgym_kit.dream.checklist.patterns import Write, write_of
from dreamgym_kit.dream.checklist.things import gather
from dreamgym_kit.dream.checklist.verdict import ChecklistJudge
from dreamgym_kit.dream.checklist.without_goals import GoalFree, without_goals
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.dream.state.history import step_of
from dreamgym_kit.ports import Outcome, Situation
from dreamgym_kit.vocabulary import Answer, Call, Effect, Provenance, Task, ToolSpec, Verdict, World

NEW = "Zara speaking. I cannot come to Dr Abel."


@cache
def shelf() -> Shelf:
    lessons = recorded().lessons
    reads = {}
    for row in recorded().rows:
        reads.setdefault(str(row.world), {}).setdefault(row.episode, []).append(step_of(row))
    clean = {world: clean_reads(episodes.values(), advances) for world, episodes in reads.items()}
    return shelf_of(recorded().works, clean, lessons.wordings, lessons.fields, lessons.looks)


def test_an_imagined_world_holds_what_its_request_names_and_no_id_of_the_recorded_one() -> None:
    steps = composed(shelf(), NEW, seed="1")
    things = gather([steps], advances)
    [patient] = things.keyed["Zara"]
    assert "Abel" in {things.fields[visit]["doctor"] for visit in things.children(patient)}
    for known in recorded().worlds.values():  # the ids may be anybody's, but never together
        assert not (patient in known.kinds and {*things.children(patient)} & known.kinds.keys())
    assert {step.tool for step in steps} == {"find_patient", "list_visits", "get_visit"}
    assert composed(shelf(), NEW, seed="1") == steps
    assert composed(shelf(), NEW, seed="2") != steps
    assert not composed(shelf(), "Nothing that was ever asked", seed="1")


def test_an_imagined_world_agrees_with_itself() -> None:
    for seed in range(20):
        told: dict[tuple[str, str], object] = {}
        things = gather([composed(shelf(), NEW, seed=str(seed))], advances)
        for step in composed(shelf(), NEW, seed=str(seed)):
            rows = step.seen if isinstance(step.seen, list) else [step.seen]
            for row in rows:
                for name, value in row.items():
                    key = str(row.get("visit_id") or row.get("patient_id")), name
                    assert told.setdefault(key, value) == value
        assert things.children(things.keyed["Zara"][0])


def test_what_imagined_worlds_ask_for_is_held_against_recorded_ones() -> None:
    write = frozenset({Write("cancel", ())})
    alike = compare_shapes([("a", write)] * 8, [("a", write)] * 7 + [("a", frozenset())])
    assert alike["a"].apart == pytest.approx(1 / 8)
    empty = compare_shapes([("a", write)] * 8, [("a", frozenset())] * 8)
    assert kinds_apart(empty, 0.35) == {
        "a": "imagined worlds ask for other things than recorded ones (1.00 apart)"
    }
    assert kinds_apart({"b": Shapes()}, 0.35) == {"b": "0 recorded and 0 imagined worlds are too few"}


class MarksBlindToFeesDouble:
    """A judge that never asks for a fee."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    def mark(self, scene, candidates):
        marks = self._marks.mark(scene, candidates)
        return [
            0.0 if one.write.tool == "charge_fee" else mark
            for one, mark in zip(candidates, marks, strict=True)
        ]


def learned(works, worlds, *, blind: bool = False) -> Checklist:
    checklist = lessons_of(works, worlds, advances).checklist(tree_marks)
    return replace(checklist, marks=MarksBlindToFeesDouble(checklist.marks)) if blind else checklist


@pytest.mark.slow
def test_a_judge_that_is_blind_to_one_error_is_refused_and_a_seeing_one_is_not() -> None:
    works, worlds = recorded().works, recorded().worlds
    seeing = gate_of(works, worlds, advances, learned)
    [kind] = seeing.kinds
    assert seeing.refuses(kind, ["cancel_visit", "charge_fee"]) == ""  # a dozen worlds show when there is one
    assert seeing.tools["charge_fee"].decided >= 8
    assert seeing.total.share > 0.98
    blind = gate_of(works, worlds, advances, lambda some, there: learned(some, there, blind=True))
    assert "failures for successes" in blind.refuses(kind, [])
    assert blind.errors[kind, Wrong.MISSING].false_positive_rate > 0.5
    assert seeing.refuses(None, []) == "no recorded request is like this one"
    strict = replace(seeing, bounds=Bounds(least=10_000))
    assert "fewer than 10000" in strict.refuses(kind, [])


@pytest.mark.slow
def test_a_dream_without_goals_answers_and_judges_in_worlds_that_nobody_recorded() -> None:
    made, tasks = dream()
    clinic = Clinic(5000)
    task = next(one for one in tasks if one.world == clinic.world)
    assert task in made.tasks
    chain = ChainedExperience(RecordedExperience(lambda *_: []), lambda _: recorded().rows)
    experience = ImaginedExperience(chain, made.imagined)
    found = ask(experience, task, "find_patient", {"name": clinic.name})
    assert found.provenance is Provenance.ANALOGOUS
    assert found.content["name"] == clinic.name
    visits = ask(experience, task, "list_visits", {"patient_id": found.content["patient_id"]}).content
    assert clinic.text.split(" Dr ")[1].rstrip(".") in {visit["doctor"] for visit in visits}
    sheet = made.judge.sheet(task.world, clinic.text)
    rows = clinic.rows("e", [(write.tool, dict(write.args)) for write in sheet.expected])
    assert judged(made, task, rows).verdict is Verdict.PASSED
    extra = clinic.rows(
        "e", [*((row.call.tool, row.call.args) for row in rows), ("cancel_visit", {"visit_id": "x"})]
    )
    assert judged(made, task, extra).reason.startswith("extra: cancel_visit(visit_id x)")


def dream() -> tuple[GoalFree, list[Task]]:
    clinics = [Clinic(seed) for seed in range(5000, 5010)]
    tasks = [Task(f"new-{one.world.seed}", {"messages": one.text}, one.world) for one in clinics]
    return without_goals(recorded().works, recorded().rows, tasks, advances), tasks


def ask(experience: ImaginedExperience, task: Task, tool: str, args: dict[str, str]) -> Answer:
    spec = ToolSpec(tool, EFFECTS[tool])
    situation = Situation(task.world, task.id, "e", (), "", spec, spoken=(str(task.input["messages"]),))
    return asyncio.run(experience.answer(Call(tool, args), situation))


def judged(made: GoalFree, task: Task, rows):
    return made.judge(Outcome(task, rows, [], None, real=False))


def test_siblings_are_judged_by_one_sheet_and_never_by_their_own_transcript() -> None:
    clinic, asked = Clinic(2000), []
    things = gather([[step_of(row) for row in clinic.crawled()]], advances)

    def bases(world: World, text: str):
        asked.append((world, text))
        return things if world == clinic.world else None

    judge = ChecklistJudge(recorded().checklist, bases, advances)
    task = Task("t", {"messages": [{"role": "user", "content": clinic.text}]}, clinic.world)
    good = clinic.rows("e", [(write.tool, dict(write.args)) for write in map(spell, clinic.right())])
    assert judge(Outcome(task, good, [], None, real=False)).verdict is Verdict.PASSED
    lying = [replace(row, effect=Effect.READ) for row in good]
    assert judge(Outcome(task, lying, [], None, real=False)).verdict is Verdict.FAILED
    assert asked == [(clinic.world, clinic.text)]
    elsewhere = replace(task, world=World("clinic", 9))
    assert (
        judge(Outcome(elsewhere, good, [], None, real=False)).reason == "nothing is known of world clinic:9"
    )


def spell(write: tuple[str, dict[str, str]]) -> Write:
    return write_of(*write)


def test_works_of_other_tasks_are_no_work() -> None:
    assert Work("t", "text", "w", (), success=True).steps == []
