"""Progress: whole lines where nobody redraws, one block where somebody looks."""

import io
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from dreamgym_kit.cli import progress
from dreamgym_kit.cli.progress import LiveBlock, PlainLines, RunProgress, TrainingProgress

STARTED = {"run": "7f3a", "graph": "desk.graph:build", "tasks": 5, "episodes": 20, "n": 4, "seed": 7}


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """No time passes but what a test adds."""
    now = SimpleNamespace(s=time.monotonic())
    clock = SimpleNamespace(monotonic=lambda: now.s, strftime=time.strftime)
    monkeypatch.setattr(progress, "time", clock)
    return now


def plain(
    *events: tuple[str, dict[str, object]], progress: RunProgress | TrainingProgress | None = None
) -> list[str]:
    stream = io.StringIO()
    sink = PlainLines(stream, progress or RunProgress())
    for kind, facts in events:
        sink.emit(kind, **facts)
    return [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()]


def finished(done: int, verdict: str = "passed") -> tuple[str, dict[str, object]]:
    facts = {"episode": f"t.{done}", "verdict": verdict, "reason": "", "calls": 1, "done": done, "total": 20}
    return "episode_finished", facts


def test_plain_progress_tells_the_run_each_tenth_and_each_anomaly() -> None:
    found = {"episode": "t.1", "finding": "repeated_write", "text": "refunded twice", "steps": [7, 9]}
    assert plain(
        ("run_started", STARTED),
        ("episode_started", {"episode": "t.1"}),
        ("call", {"episode": "t.1", "tool": "get", "step": 1, "provenance": "recorded", "effect": "read"}),
        ("finding", found),
        finished(1, "failed"),
        finished(2),
        ("violation", {"episode": "t.3", "text": "send_mail was about to run"}),
        ("run_stopping", {"reason": "SIGINT"}),
        finished(3),
        ("something_new", {"x": 1}),
        finished(20),
    ) == [
        "run 7f3a  desk.graph:build  5 tasks x 4  seed 7",
        "ANOMALY repeated_write  t.1 step 9  refunded twice",
        "2/20  1 passed, 1 failed, 0 inconclusive, 0 errors  1 calls",
        "REFUSED t.3  send_mail was about to run",
        "stopping (SIGINT): finishing what runs",
        "20/20  3 passed, 1 failed, 0 inconclusive, 0 errors  1 calls",
    ]


def test_plain_progress_has_no_control_characters() -> None:
    hostile = {"episode": "t\x1b[2J.1", "finding": "x\x07", "text": "a\x1b]0;owned\x07b\u202e\nsecond line"}
    (line,) = plain(("finding", hostile))
    assert line == "ANOMALY x  t.1  ab second line"


def test_the_live_block_is_ascii_and_fits() -> None:
    view = LiveBlock(80, RunProgress())
    view.emit("run_started", **STARTED)
    for number in range(1, 9):
        view.emit("episode_started", episode=f"t.{number}")
        view.emit("call", episode=f"t.{number}", tool="refund\x1b[31m_payment", step=1)
    view.emit("finding", episode="t.1", finding="x", text="refunded\x1b[2J twice", steps=[9])
    for done in (1, 2):
        kind, facts = finished(done, "failed")
        view.emit(kind, **facts)
    console = Console(file=io.StringIO(), width=80, color_system=None, force_terminal=False)
    console.print(view)
    drawn = console.file.getvalue()
    assert drawn.replace("\n", "").isascii()
    assert drawn.replace("\n", "").isprintable()
    assert max(len(line) for line in drawn.splitlines()) <= 80
    assert " dreaming desk.graph:build   2 of 20   0 passed  2 failed  0 inconclusive" in drawn
    assert "[####--" in drawn
    assert "refund_payment 0 s" in drawn
    assert "! refunded twice: t.1 step 9" in drawn
    assert "Ctrl-C: finish what runs" in drawn
    view.emit("run_stopping", reason="SIGINT")
    console.print(view)
    assert "Ctrl-C again: stop now" in console.file.getvalue()


def test_counts_that_rest_on_imagined_answers_say_so() -> None:
    course = RunProgress()
    course.take("run_started", STARTED)
    _, facts = finished(1)
    course.take("episode_finished", facts | {"imagined": False})
    assert "imagined" not in course.tally() + "".join(map(str, course.block(80)))
    course.take("episode_finished", facts | {"imagined": True})
    assert course.tally().endswith(" (imagined)")
    assert "(imagined)" in str(course.block(80)[0])
    resumed = RunProgress()
    assert "(imagined)" in resumed.take("run_started", STARTED | {"kept": {"passed": 8}, "imagined": True})


def test_a_resumed_run_is_paced_by_what_it_did_itself(now: SimpleNamespace) -> None:
    course = RunProgress(began=now.s)
    course.take("run_started", STARTED | {"kept": {"passed": 8, "failed": 2}})
    assert (course.done, course.tally()) == (10, "8 passed, 2 failed, 0 inconclusive, 0 errors")
    now.s += 3.0
    _, facts = finished(11)
    course.take("episode_finished", facts)
    assert (course.done, course.tally()) == (11, "9 passed, 2 failed, 0 inconclusive, 0 errors")
    assert course.left_s == pytest.approx(9 * 3.0)


STEP = {
    "step": 3,
    "success": 0.41,
    "reward": 0.4,
    "entropy": 0.061,
    "kl": 1.2e-4,
    "dead": 2,
    "groups": 16,
    "inconclusive": 1,
    "tokens": 900,
    "seconds": {"rollouts": 8.0, "waited": 0.5, "update": 3.1, "sync": 0.2},
}
EVENTS: list[tuple[str, dict[str, object]]] = [
    ("training_started", {"step": 2, "steps": 30}),
    ("episode_started", {"episode": "t.1"}),
    ("episode_finished", {"episode": "t.1", "verdict": "passed", "done": 1, "total": 32}),
    ("draw_without_signal", {"step": 3, "draw": 1, "dead": 15, "small": 1}),
    ("step_collected", {"step": 3, "success": 0.41, "tokens": 900}),
    ("step_finished", STEP),
    ("evaluation_started", {"step": 3, "episodes": 12}),
    ("evaluated", {"step": 3, "success": 5, "decided": 10, "real": False}),
    ("evaluated", {"step": 3, "success": 0, "decided": 0, "real": True}),
    ("alarm", {"alarm": "kl", "text": "moved\x1b[2J too far", "step": 4}),
    ("run_stopping", {"reason": "SIGINT"}),
    ("something_new", {}),
]


@pytest.mark.parametrize("where", ["dream", "live"])
def test_plain_progress_tells_each_step_where_it_is_made_and_what_held_out_tasks_say(where: str) -> None:
    assert plain(*EVENTS, progress=TrainingProgress(where)) == [
        "step 2 of 30",
        "step 3: draw 1 taught nothing (15 dead groups, 1 too small)",
        (
            f"step 3/30  {where} 41%  entropy 0.061  kl 0.00012  dead 2/16  inconclusive 1  "
            "3.8 s (rollouts 0.5, update 3.1)"
        ),
        "HELD OUT after step 3: 50% of 10 decided episodes, dreamed",
        "HELD OUT after step 3: - of 0 decided episodes, real tools",
        "ALARM kl  step 4  moved too far",
        "stopping (SIGINT): at the last checkpoint",
    ]
