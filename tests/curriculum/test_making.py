"""Tasks that are made: which are varied, which are taken, and that they are the same after a kill."""

import json
from pathlib import Path

from curriculum.making_doubles import MakerDouble, asking, bounds, workshop
from each_row import each_row

from dreamgym_kit.adapters.embedders.models import HashedEmbedder
from dreamgym_kit.curriculum.making import patterns_of, rejection_reason
from dreamgym_kit.curriculum.task_sampler import Estimate, Standing
from dreamgym_kit.interfaces import Pattern
from dreamgym_kit.types import Environment, Split, Task

GIVEN = asking("given", "Ana here. Please cancel order O11.")
PATTERN = Pattern(GIVEN, known=("O11", "O12"))


@each_row(
    ("task", "fault"),
    [
        (asking("m", "Ana here. Please cancel order O12."), ""),
        (asking("m", "Ana here. Please cancel order O99."), "unknown"),
        (asking("m", "  "), "malformed"),
        (asking("m", "Cancel O12. " * 80), "malformed"),
        (Task("m", {"question": "Cancel O12."}, Environment("shop", 1)), "malformed"),
        (asking("m", "Cancel order O12.", 7), "unrecorded"),
        (asking("m", "ana here, please cancel order O11!"), "twice"),
        (asking("m", "Here is Ana. Please cancel my order O11."), "reworded"),
        (asking("m", "Please tell me where O12 is."), "held_out"),
        (asking("m", "Please send the chair again.", 2), "held_out"),
        (asking("m", "Ana here. Could you tell me where my chair is?"), "held_out"),  # nearly its words
        (asking("m", "Ana here. Please send the lamp."), ""),
    ],
)
def test_a_made_task_is_taken_only_if_nothing_speaks_against_it(task: Task, fault: str) -> None:
    held_out = [
        asking("h", "Please tell me where O12 is.", 2, split=Split.HELD_OUT),
        asking("i", "Ana here. Could you tell me where the chair is?", 1, split=Split.HELD_OUT),
    ]
    found = bounds(
        held_out, [GIVEN], recorded=lambda world: world.variant in (1, 2), embedder=HashedEmbedder()
    )
    assert rejection_reason(task, PATTERN, [GIVEN], found) == fault


async def test_made_tasks_are_named_after_their_pattern_and_counted_where_they_are_refused(
    tmp_path: Path,
) -> None:
    maker = MakerDouble("Cancel the lamp, O12.", "Cancel O77.", "Cancel the lamp, O12!")
    shop = workshop(tmp_path / "made", maker, [GIVEN])
    draw = await shop.make([PATTERN], [GIVEN], step=6, count=3, seed=0)
    assert [(one.task.id, one.like, one.how) for one in draw.made] == [("given~6.1", "given", "rules")]
    assert draw.refused == {"twice": 1, "unknown": 1}
    (asked,) = maker.asked
    assert asked.known[:2] == ("O11", "O12")
    assert asked.environments == (Environment("shop", 1),)


async def test_without_anybody_to_judge_it_no_task_is_taken(tmp_path: Path) -> None:
    shop = workshop(tmp_path / "made", MakerDouble("Cancel O12."), [GIVEN], judged=lambda _: None)
    draw = await shop.make([PATTERN], [GIVEN], step=6, count=3, seed=0)
    assert draw.made == ()
    assert draw.refused == {"unjudged": 1}


async def test_what_was_made_before_a_kill_is_taken_again_without_asking(tmp_path: Path) -> None:
    first, second = MakerDouble("Cancel the lamp, O12."), MakerDouble("Where is the chair?")
    before = await workshop(tmp_path / "made", first).make([PATTERN], [GIVEN], step=6, count=3, seed=0)
    after = await workshop(tmp_path / "made", second).make([PATTERN], [GIVEN], step=6, count=3, seed=0)
    assert after == before
    assert not second.asked
    (file,) = (tmp_path / "made").iterdir()
    file.write_bytes(file.read_bytes()[:-7])  # torn: it is made anew
    again = await workshop(tmp_path / "made", second).make([PATTERN], [GIVEN], step=6, count=3, seed=0)
    assert [one.task.input["messages"][0]["content"] for one in again.made] == ["Where is the chair?"]
    assert json.loads(file.read_bytes().partition(b"\n")[2])["made"]


def standing(identity: str, value: float, rests: str = "") -> Standing:
    return Standing(asking(identity, identity), Estimate(0.5, 0.1, value, 0.0), value, rests)


def test_tasks_that_fail_at_the_worst_tool_are_varied_first() -> None:
    told = [standing("a", 0.2), standing("b", 0.2), standing("c", 0.24), standing("d", 0.2, "mastered")]
    failures = {"b": {"missing refund": 3.0}, "c": {"asks find": 1.0}, "d": {"missing refund": 5.0}}
    clusters = {"a": 0, "b": 1, "c": 2, "d": 3}
    found = patterns_of(told, failures, clusters, 2)
    assert [one.task.id for one in found] == ["b", "c"]
    assert found[0].failed_at == {"missing refund": 3}


def test_no_two_of_a_cluster_are_varied_while_others_are_left() -> None:
    told = [standing("a", 0.25), standing("b", 0.24), standing("c", 0.01)]
    assert [one.task.id for one in patterns_of(told, {}, {"a": 0, "b": 0, "c": 1}, 2)] == ["a", "c"]
