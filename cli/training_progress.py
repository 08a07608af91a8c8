"""What a person sees while a policy learns: one line a step, or a block that redraws itself on a terminal.

Both are an `EventSink` over one `Learning`. Success is told with the place it was had in.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from dreamgym_kit.report.percent import duration
from dreamgym_kit.report.sanitize import cut_middle, one_line

if TYPE_CHECKING:
    from dreamgym_kit.interfaces import EventSink

_STEPS_SHOWN = 6
_BAR = 42
_THEN = {  # what begins with an event
    "gate_started": "gate",
    "canaries_started": "canaries",
    "training_started": "rollouts",
    "step_collected": "update",
    "step_finished": "rollouts",
    "evaluation_started": "evaluation",
    "evaluated": "rollouts",
}


@dataclass(slots=True)
class Learning:
    """Where a training stands, from its events."""

    where: str = "dream"  # or the stage of a way to the real tools
    step: int = 0  # finished
    steps: int = 0  # planned
    doing: str = "opening"
    done: int = 0  # episodes of what goes on now
    total: int = 0
    lines: list[str] = field(default_factory=list)  # of steps and evaluations, as they came
    troubles: list[str] = field(default_factory=list)
    stopping: str = ""
    first_step: int = 0
    began: float = field(default_factory=time.monotonic)

    def take(self, kind: str, facts: Mapping[str, Any]) -> str:
        """Follow one event; gives the line that it is worth, "" where it is worth none."""
        if kind == "training_started":
            self.step = self.first_step = int(facts["step"])
            self.steps, self.began = int(facts["steps"]), time.monotonic()
        elif kind == "step_finished":
            self.step = int(facts["step"])
        elif kind == "episode_finished":
            self.done, self.total = int(facts["done"]), int(facts["total"])
        elif kind == "run_stopping":
            self.stopping = str(facts["reason"])
        if kind in _THEN:
            self.doing, self.done, self.total = _THEN[kind], 0, 0
        line = format_event(kind, facts, self.steps, self.where)
        if kind in ("step_finished", "evaluated"):
            self.lines.append(line)
        elif kind in ("executed", "violation", "alarm", "real_calls_stopped"):
            self.troubles.append(line)
        return line

    @property
    def left_s(self) -> float | None:
        """Seconds left at the pace so far; None while there is no pace."""
        made = self.step - self.first_step
        if made <= 0:
            return None
        return (time.monotonic() - self.began) / made * (self.steps - self.step)


def format_event(kind: str, facts: Mapping[str, Any], steps: int, where: str) -> str:
    """What one event is worth in a log; "" where it is worth nothing."""
    match kind:
        case "training_started":
            return f"step {facts['step']} of {facts['steps']}"
        case "executed" | "violation":
            return f"{'REFUSED' if kind == 'violation' else 'EXECUTED'} {facts['episode']}  {facts['text']}"
        case "draw_without_signal":
            why = f"{facts['dead']} dead groups, {facts['small']} too small"
            return f"step {facts['step']}: draw {facts['draw']} taught nothing ({why})"
        case "step_finished":
            return step_line(facts, steps, where)
        case "evaluated":
            return evaluated_line(facts)
        case "gate" | "canaries":
            return f"{kind}: {facts['text']}"
        case "real_calls_stopped":
            return f"NO MORE REAL CALLS ({facts['why']})  {facts['text']}"
        case "alarm":
            return f"ALARM {facts['alarm']}  step {facts['step']}  {facts['text']}"
        case "run_stopping":
            return f"stopping ({facts['reason']}): at the last checkpoint"
    return ""


def step_line(facts: Mapping[str, Any], steps: int, where: str) -> str:
    """One finished step."""
    seconds: Mapping[str, float] = facts["seconds"]
    spent = [seconds.get(part, 0.0) for part in ("waited", "update")]
    whole = sum(value for part, value in seconds.items() if part != "rollouts")
    return (
        f"step {facts['step']}/{steps}  {where} {_share(facts['success'])}  "
        f"entropy {_number(facts['entropy'])}  kl {_number(facts['kl'])}  "
        f"dead {facts['dead']}/{facts['groups']}  inconclusive {facts['inconclusive']}  "
        f"{whole:.1f} s (rollouts {spent[0]:.1f}, update {spent[1]:.1f})"
    )


def evaluated_line(facts: Mapping[str, Any]) -> str:
    """One evaluation."""
    decided = int(facts["decided"])
    share = _share(facts["success"] / decided if decided else None)
    where = "real tools" if facts["real"] else "dreamed"
    return f"HELD OUT after step {facts['step']}: {share} of {decided} decided episodes, {where}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


class PlainLearning:
    """One line per event worth one, the time first, no redraw: logs, pipes, CI."""

    def __init__(self, stream: TextIO, where: str = "dream") -> None:
        self._stream, self._course, self._lock = stream, Learning(where), threading.Lock()

    def emit(self, kind: str, /, **facts: Any) -> None:
        """See `EventSink.emit`."""
        with self._lock:
            line = self._course.take(kind, facts)
            if line:
                text = "  ".join(one_line(part) for part in line.split("  "))
                self._stream.write(f"{time.strftime('%H:%M:%S')} {text}\n")
                self._stream.flush()


class LiveLearning:
    """One block on a terminal, redrawn in place and gone at the end."""

    def __init__(self, width: int, where: str = "dream") -> None:
        self._width, self._course, self._lock = width, Learning(where), threading.Lock()

    def emit(self, kind: str, /, **facts: Any) -> None:
        """See `EventSink.emit`."""
        with self._lock:
            self._course.take(kind, facts)

    def __rich__(self) -> Any:
        """What rich draws four times a second."""
        from rich.text import Text

        with self._lock:
            lines = self._lines()
        return Text("\n").join(lines)

    def _lines(self) -> list[Any]:
        from rich.text import Text

        course, room = self._course, max(20, min(self._width, 110) - 1)
        share = course.step / course.steps if course.steps else 0.0
        filled = round(share * _BAR)
        left = f"{duration(course.left_s)} left" if course.left_s is not None else ""
        texts = [
            f" training   step {course.step} of {course.steps}   {course.doing} {self._episodes()}",
            f"  [{'#' * filled}{'-' * (_BAR - filled)}]  {share:.0%}   {left}",
            *(f"  {one_line(line)}" for line in course.lines[-_STEPS_SHOWN:]),
        ]
        lines = [Text(cut_middle(line, room)) for line in texts]
        if course.troubles:
            lines.append(Text(cut_middle(f"  ! {one_line(course.troubles[0])}", room), style="bold red"))
        if course.stopping:
            lines.append(Text(" Stopping at the last checkpoint. Ctrl-C again: now; it can be resumed."))
        else:
            lines.append(Text(" Ctrl-C: stop at the last checkpoint; it can be resumed."))
        return lines

    def _episodes(self) -> str:
        course = self._course
        counted = course.total and course.doing in ("rollouts", "evaluation")
        return f"{course.done} of {course.total} episodes" if counted else ""


@contextmanager
def training_progress(*, plain: bool, where: str) -> "Iterator[EventSink]":
    """Show a training's progress on stderr for the block; success is told with `where` it was had."""
    if plain or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield PlainLearning(sys.stderr, where)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stderr)
    view = LiveLearning(console.width, where)
    with Live(view, console=console, refresh_per_second=4, transient=True, redirect_stdout=False):
        yield view
