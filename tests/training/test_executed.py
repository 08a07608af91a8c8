"""A real call that ran in a dream ends the training that it was collected for; nothing is learned from it."""

import signal
from pathlib import Path

import pytest
from each_row import each_row
from training.loop_run import run_loop

from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.training.records import read_steps

RAN = "1 real call executed: refund(order='o1')"


class CancellingAt:
    """A sink that has the run cancelled, as whoever keeps the journal does, when it hears of a step."""

    def __init__(self, stop: StopSwitch, kind: str, step: int) -> None:
        self.stop, self.kind, self.step = stop, kind, step

    def __call__(self, kind: str, facts: dict) -> None:
        if (kind, facts.get("step")) == (self.kind, self.step):
            self.stop.press(signal.SIGINT)
            self.stop.cancel(RAN, code=6)


@each_row(
    ("kind", "step", "kept"),
    [
        ("step_finished", 3, 3),
        ("step_collected", 3, 3),
        ("evaluation_started", 0, 0),
        ("evaluation_started", 8, 8),
    ],
)
def test_a_real_call_is_an_alarm_whenever_it_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, step: int, kept: int
) -> None:
    import training.loop_run as module

    stop = StopSwitch()
    cancel = CancellingAt(stop, kind, step)

    class Hearing(module.Heard):
        def emit(self, name: str, /, **facts: object) -> None:
            super().emit(name, **facts)
            cancel(name, facts)

    monkeypatch.setattr(module, "Heard", Hearing)
    ran = run_loop(tmp_path / "run", stop=stop)
    assert ran.trained.alarm is not None
    assert (ran.trained.alarm.alarm, ran.trained.alarm.text) == ("executed", RAN)
    assert [one.step for one in read_steps(tmp_path / "run")] == list(range(1, kept + 1))
