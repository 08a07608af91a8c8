"""The page of a training: data of its schema, drawn without a request, readable to all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

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

_CUT = """[...document.querySelectorAll('figure svg text')].filter((text) => {
  const mine = text.getBoundingClientRect(), whole = text.ownerSVGElement.getBoundingClientRect();
  return mine.left < whole.left - 0.5 || mine.right > whole.right + 0.5;
}).map((text) => text.textContent)"""


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


@pytest.mark.parametrize("made", KINDS)
class TestDrawn:
    pytestmark = pytest.mark.browser

    @pytest.mark.parametrize("width", [1280, 390])
    def test_it_is_drawn_without_a_word_in_the_console(
        self, open_page: Opener, tmp_path: Path, made: Callable[[Path], Training], width: int
    ) -> None:
        shown = open_page(page_in(tmp_path, made(tmp_path)), width=width, dark=width == 390)
        shown.quiet()
        assert shown.ask("document.documentElement.scrollWidth") <= width
        assert shown.ask("document.querySelectorAll('h1').length") == 1
        told = blocks(shown.path.read_text("utf-8"))[0]["training"]
        assert shown.ask("document.querySelectorAll('figure').length") == len(told["curves"])
        for curve in told["curves"]:
            assert all(len(line["values"]) == len(told["steps"]) for line in curve["lines"])
        assert shown.ask("document.querySelectorAll('img, iframe, link, script[src]').length") == 0

    def test_no_word_of_a_drawing_is_cut_off(
        self, open_page: Opener, tmp_path: Path, made: Callable[[Path], Training]
    ) -> None:
        shown = open_page(page_in(tmp_path, made(tmp_path)))
        assert shown.ask(_CUT) == []

    def test_everybody_can_read_it(
        self, open_page: Opener, tmp_path: Path, made: Callable[[Path], Training]
    ) -> None:
        axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
        path = page_in(tmp_path, made(tmp_path))
        for dark in (False, True):
            found: Any = axe.run(open_page(path, dark=dark).page)
            assert found.violations_count == 0, found.generate_report()
