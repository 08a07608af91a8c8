"""What a person sees while a run runs: a block that redraws itself on a terminal, plain lines elsewhere.

Both are an `EventSink` over one `Course`. Whether there is a terminal is asked of stderr itself, never of
rich: FORCE_COLOR and the like would put cursor codes into logs.
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

_EVERY_S = 15.0
_EVERY_SHARE = 0.1
_BAR = 42
_RUNNING_SHOWN = 3
_VERDICTS = {"passed": "green", "failed": "bold red", "inconclusive": "yellow", "error": "bold red"}


@dataclass(slots=True)
class Course:
    """Where a run stands, from its events."""

    graph: str = ""
    total: int = 0
    done: int = 0
    earlier: int = 0  # episodes that earlier parts of a resumed run finished
    calls: int = 0
    verdicts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_VERDICTS, 0))
    running: dict[str, tuple[str, float]] = field(default_factory=dict)  # episode -> (tool, since)
    anomalies: list[str] = field(default_factory=list)
    stopping: str = ""
    began: float = field(default_factory=time.monotonic)

    def take(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Follow one event; kinds that say nothing about the course are passed over."""
        episode = str(facts.get("episode", ""))
        if kind == "run_started":
            self.graph, self.total = str(facts["graph"]), int(facts["episodes"])
            self.verdicts |= facts.get("kept", {})
            self.done = self.earlier = sum(self.verdicts.values())
        elif kind == "episode_started":
            self.running.setdefault(episode, ("", time.monotonic()))
        elif kind == "call":
            self.calls += 1
            self.running[episode] = (str(facts["tool"]), time.monotonic())
        elif kind == "finding":
            steps = facts.get("steps") or ()
            place = f"{episode} step {steps[-1]}" if steps else episode
            self.anomalies.append(f"{facts['text']}: {place}")
        elif kind == "executed":
            self.anomalies.insert(0, f"EXECUTED {episode} {facts['text']}")
        elif kind == "violation":
            self.anomalies.append(f"blocked: {episode} {facts['text']}")
        elif kind == "episode_finished":
            self._finished(episode, facts)
        elif kind == "run_stopping":
            self.stopping = str(facts["reason"])

    def _finished(self, episode: str, facts: Mapping[str, Any]) -> None:
        self.running.pop(episode, None)
        if facts.get("finished", True):
            verdict = str(facts["verdict"])
            self.verdicts[verdict] = self.verdicts.get(verdict, 0) + 1
        self.done, self.total = int(facts["done"]), int(facts["total"])

    @property
    def left_s(self) -> float | None:
        """Seconds left at the pace so far; None while there is no pace."""
        here = self.done - self.earlier
        if here <= 0:
            return None
        return (time.monotonic() - self.began) / here * (self.total - self.done)

    def tally(self) -> str:
        """Verdicts in words."""
        return ", ".join(f"{count} {_word(verdict, count)}" for verdict, count in self.verdicts.items())


def _word(verdict: str, count: int) -> str:
    return "errors" if verdict == "error" and count != 1 else verdict


class PlainProgress:
    """One line per event worth one, the time first, no redraw: logs, pipes, CI."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._course = Course()
        self._lock = threading.Lock()
        self._told_at, self._told_done = time.monotonic(), 0

    def emit(self, kind: str, /, **facts: Any) -> None:
        """See `EventSink.emit`."""
        with self._lock:
            self._course.take(kind, facts)
            line = self._line(kind, facts)
            if line:
                self._write(line)

    def _line(self, kind: str, facts: Mapping[str, Any]) -> str:
        course = self._course
        if kind == "run_started":
            episodes = f"{facts['tasks']} tasks x {facts['n']}"
            resumed = f"  {course.earlier}/{course.total} kept: {course.tally()}" if course.earlier else ""
            return f"run {facts['run']}  {course.graph}  {episodes}  seed {facts['seed']}{resumed}"
        if kind == "finding":
            steps = facts.get("steps") or ()
            place = f"{facts['episode']} step {steps[-1]}" if steps else str(facts["episode"])
            return f"ANOMALY {facts['finding']}  {place}  {facts['text']}"
        if kind == "executed":
            return f"EXECUTED {facts['episode']}  {facts['text']}"
        if kind == "violation":
            return f"REFUSED {facts['episode']}  {facts['text']}"
        if kind == "lost":
            return f"LOST {facts['episode']}  attempt {facts['attempt']}: {facts['error']}"
        if kind == "run_stopping":
            return f"stopping ({facts['reason']}): finishing what runs"
        if kind == "episode_finished" and self._due():
            self._told_at, self._told_done = time.monotonic(), course.done
            return f"{course.done}/{course.total}  {course.tally()}  {course.calls} calls"
        return ""

    def _due(self) -> bool:
        course = self._course
        share = (course.done - self._told_done) / max(course.total, 1)
        late = time.monotonic() - self._told_at >= _EVERY_S
        return course.done >= course.total or share >= _EVERY_SHARE or late

    def _write(self, line: str) -> None:

        text = "  ".join(one_line(part) for part in line.split("  "))
        self._stream.write(f"{time.strftime('%H:%M:%S')} {text}\n")
        self._stream.flush()


class LiveProgress:
    """One block on a terminal, redrawn in place and gone at the end."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._course = Course()
        self._lock = threading.Lock()

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

        course, room = self._course, max(20, min(self._width, 100) - 1)
        head = Text(
            f" dreaming {cut_middle(one_line(course.graph), 30)}   {course.done} of {course.total}   "
        )
        for verdict, colour in _VERDICTS.items():
            count = course.verdicts[verdict]
            head.append(f"{count} {_word(verdict, count)}  ", style=colour if count else "")
        share = course.done / course.total if course.total else 0.0
        filled = round(share * _BAR)
        left = f"{duration(course.left_s)} left" if course.left_s is not None else ""
        pace = course.calls / max(time.monotonic() - course.began, 0.001)
        bar = f"  [{'#' * filled}{'-' * (_BAR - filled)}]  {share:.0%}   {left}   {pace:.0f} calls/s"
        lines = [head, Text(cut_middle(bar, room)), Text(cut_middle(self._running(), room))]
        if course.anomalies:
            more = f", and {len(course.anomalies) - 1} more" if len(course.anomalies) > 1 else ""
            lines.append(
                Text(cut_middle(f"  ! {one_line(course.anomalies[0])}{more}", room), style="bold red")
            )
        lines.append(Text(f" {self._last()}"))
        return lines

    def _running(self) -> str:

        now = time.monotonic()
        oldest = sorted(self._course.running.items(), key=lambda item: item[1][1])
        shown = [
            f"{one_line(name)} {one_line(tool)} {now - since:.0f} s"
            for name, (tool, since) in oldest[:_RUNNING_SHOWN]
        ]
        more = [f"+{len(oldest) - _RUNNING_SHOWN}"] if len(oldest) > _RUNNING_SHOWN else []
        return "  running  " + "   ".join([*shown, *more])

    def _last(self) -> str:
        if self._course.stopping:
            return "Stopping: what runs is finished. Ctrl-C again: stop now; the run can be resumed."
        return "Ctrl-C: finish what runs, then stop; the run can be resumed."


@contextmanager
def progress(*, plain: bool = False) -> "Iterator[EventSink]":
    """Show a run's progress on stderr for the block."""
    if plain or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield PlainProgress(sys.stderr)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stderr)
    view = LiveProgress(console.width)
    with Live(view, console=console, refresh_per_second=4, transient=True, redirect_stdout=False):
        yield view
