"""A nano model marks checklists: the trees' lessons, a Qwen3 directory, all candidates in one pass."""

from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra: train")

from dream.checklist_recorded import recorded

from dreamgym_kit.adapters.trainers.extra import threads
from dreamgym_kit.dream.checklist.patterns import candidates_in
from dreamgym_kit.recipes.nano.judge.marking import Course, load_marks, teach_marks


@pytest.mark.slow
def test_a_nano_judge_learns_to_mark_and_comes_back_from_its_directory(tmp_path: Path) -> None:
    lessons, losses = recorded().lessons, []
    with threads(1):
        course = Course(steps=60, rows=12)
        marks = teach_marks(lessons, course=course, tell=lambda step: losses.append(step.loss))
        marks.save(tmp_path / "judge")
        again = load_marks(tmp_path / "judge")
        right = total = 0
        for example in lessons.examples:
            candidates = candidates_in(example.scene, lessons.patterns)
            marked = marks.mark(example.scene, candidates)
            assert again.mark(example.scene, candidates) == pytest.approx(marked, abs=1e-5)
            right += sum(
                (mark > 0.5) == (one.write in example.expected)
                for one, mark in zip(candidates, marked, strict=True)
            )
            total += len(candidates)
    assert sum(losses[-5:]) < sum(losses[:5])
    assert right / total > 0.85
