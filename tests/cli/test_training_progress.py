"""Progress of a training: a line a step in a log, one block where somebody looks."""

import io

from dreamgym_kit.cli.progress import PlainLines, TrainingProgress

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


def test_plain_progress_tells_each_step_and_what_held_out_tasks_say() -> None:
    stream = io.StringIO()
    sink = PlainLines(stream, TrainingProgress())
    for kind, facts in EVENTS:
        sink.emit(kind, **facts)
    assert [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()] == [
        "step 2 of 30",
        "step 3: draw 1 taught nothing (15 dead groups, 1 too small)",
        (
            "step 3/30  dream 41%  entropy 0.061  kl 0.00012  dead 2/16  inconclusive 1  "
            "3.8 s (rollouts 0.5, update 3.1)"
        ),
        "HELD OUT after step 3: 50% of 10 decided episodes, dreamed",
        "HELD OUT after step 3: - of 0 decided episodes, real tools",
        "ALARM kl  step 4  moved too far",
        "stopping (SIGINT): at the last checkpoint",
    ]


def test_success_on_real_tools_is_not_called_the_dreams() -> None:
    stream = io.StringIO()
    sink = PlainLines(stream, TrainingProgress("live"))
    for kind, facts in EVENTS:
        sink.emit(kind, **facts)
    assert "step 3/30  live 41%  entropy" in stream.getvalue()
    assert "dream 41%" not in stream.getvalue()
