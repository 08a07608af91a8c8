"""The page of a training: data of its schema, drawn without a request, readable to all."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pages.blocks import blocks
from pages.conftest import Opener
from pages.payloads import PAYLOADS
from training.loop_doubles import Planted
from training.trained_runs import trained_run, training_in

from dreamgym_kit.report.page.writing import document
from dreamgym_kit.report.training import Training
from dreamgym_kit.report.training_curves import training_block
from dreamgym_kit.training.batching import StepFacts
from dreamgym_kit.training.records import EvaluationRecord, StepRecord


def page_in(root: Path, training: Training) -> Path:
    (root / "page.html").write_text(document(training_block(training, name="runs/a-training")), "utf-8")
    return root / "page.html"


def whole(root: Path) -> Training:
    return training_in(trained_run(root))


def stopped(root: Path) -> Training:
    return training_in(trained_run(root, planted=Planted("KL blow-up", 6)))


def begun(_: Path) -> Training:
    return Training({"matters": {"mode": "train"}, "about": {"steps": 9}}, (), (), {})


def one_step(_: Path) -> Training:
    return Training(
        {"matters": {"mode": "train"}, "about": {"steps": 9}},
        [StepRecord(1, StepFacts(groups=1, episodes=2, success=1, reward=0.5), entropy=0.5, kl=0.00153)],
        (),
        {},
    )


def hostile(_: Path) -> Training:
    text = " ".join(PAYLOADS[:40])
    return Training(
        {"matters": {"mode": "train", "graph": text}, "about": {"steps": 1}},
        [StepRecord(1, StepFacts(groups=1, episodes=2, success=1, unfit={text: 1}))],
        [EvaluationRecord(0, False, {text: (1, 1, 0)}), EvaluationRecord(1, False, {text: (1, 1, 0)})],
        {"alarm": {"alarm": "server", "text": text, "step": 1}},
    )


KINDS = [whole, stopped, begun, one_step, hostile]


@pytest.mark.browser
@pytest.mark.parametrize("made", KINDS)
@pytest.mark.parametrize("dark", [False, True], ids=["wide and light", "narrow and dark"])
def test_it_is_drawn_for_everybody_without_a_word_in_the_console(
    open_page: Opener, tmp_path: Path, made: Callable[[Path], Training], dark: bool
) -> None:
    shown = open_page(page_in(tmp_path, made(tmp_path)), width=390 if dark else 1280, dark=dark)
    shown.quiet()
    assert shown.ask("document.querySelectorAll('h1').length") == 1
    told = blocks(shown.path.read_text("utf-8"))[0]["training"]
    assert shown.ask("document.querySelectorAll('figure').length") == len(told["curves"])
    for curve in told["curves"]:
        assert all(len(line["values"]) == len(told["steps"]) for line in curve["lines"])
    assert shown.flaws() == []
