"""What a person sees while a run or a training goes on: a block redrawn on a terminal, plain lines elsewhere.

Both are an `EventSink` over a `RunProgress` or a `TrainingProgress`. Whether there is a terminal is asked of
stderr itself, never of rich: FORCE_COLOR and the like would put cursor codes into logs.
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
    from rich.text import Text

    from dreamgym_kit.interfaces import EventSink

_EVERY_S = 15.0
_EVERY_SHARE = 0.1
_BAR = 42
_RUNNING_SHOWN = 3
_STEPS_SHOWN = 6
_VERDICTS = {"passed": "green", "failed": "bold red", "inconclusive": "yellow", "error": "bold red"}
_THEN = {  # what begins with an event
    "gate_started": "gate",
    "canaries_started": "canaries",
    "training_started": "rollouts",
    "step_collected": "update",
    "step_finished": "rollouts",
    "evaluation_started": "evaluation",
    "evaluated": "rollouts",
}
_LINES = {  # of events that need nothing but their facts
    "imagines": "imagines what nobody recorded: about {questions:,} questions, {tokens:,} tokens, less where "
    "environments are known; {bound}",
    "mining": "mining programs from the recordings: {share:.0%}",
    "executed": "EXECUTED {episode}  {text}",
    "violation": "REFUSED {episode}  {text}",
    "training_started": "step {step} of {steps}",
    "draw_without_signal": "step {step}: draw {draw} taught nothing ({dead} dead groups, {small} too small)",
    "gate": "gate: {text}",
    "canaries": "canaries: {text}",
    "real_calls_stopped": "NO MORE REAL CALLS ({why})  {text}",
    "alarm": "ALARM {alarm}  step {step}  {text}",
}


@dataclass(slots=True, kw_only=True)
class _Progress:
    """How far something is, from its events."""

    troubles: list[str] = field(default_factory=list)
    stopping: str = ""
    began: float = field(default_factory=time.monotonic)

    def _block(self, lines: "list[Text]", room: int, *, more: str = "", last: str) -> "list[Text]":
        """The lines of a terminal, with what went wrong first and what Ctrl-C does."""
        from rich.text import Text

        if self.troubles:
            trouble = cut_middle(f"  ! {one_line(self.troubles[0])}{more}", room)
            lines.append(Text(trouble, style="bold red"))
        return [*lines, Text(last)]

    def _left_s(self, made: int, left: int) -> float | None:
        return (time.monotonic() - self.began) / made * left if made > 0 else None


@dataclass(slots=True)
class RunProgress(_Progress):
    """How far a run is, from its events."""

    graph: str = ""
    total: int = 0
    done: int = 0
    earlier: int = 0  # episodes that earlier parts of a resumed run finished
    calls: int = 0
    verdicts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_VERDICTS, 0))
    imagined: bool = False  # whether a verdict that counts rests on imagined answers
    running: dict[str, tuple[str, float]] = field(default_factory=dict)  # episode -> (tool, since)
    mined: float | None = None  # 0..1, while programs are mined
    logged_at: float = field(default_factory=time.monotonic)
    logged_done: int = 0

    def take(self, kind: str, facts: Mapping[str, Any]) -> str:
        """Follow one event; gives the line that it is worth in a log, "" where it is worth none."""
        episode = str(facts.get("episode", ""))
        self.mined = facts["share"] if kind == "mining" else None
        match kind:
            case "run_started":
                self.graph, self.total = str(facts["graph"]), int(facts["episodes"])
                self.verdicts |= facts.get("kept", {})
                self.done = self.earlier = sum(self.verdicts.values())
                self.imagined = bool(facts.get("imagined"))
                resumed = f"  {self.earlier}/{self.total} kept: {self.tally()}" if self.earlier else ""
                episodes = f"{facts['tasks']} tasks x {facts['n']}"
                return f"run {facts['run']}  {self.graph}  {episodes}  seed {facts['seed']}{resumed}"
            case "episode_started":
                self.running.setdefault(episode, ("", time.monotonic()))
            case "call":
                self.calls += 1
                self.running[episode] = (str(facts["tool"]), time.monotonic())
            case "finding":
                steps = facts.get("steps") or ()
                place = f"{episode} step {steps[-1]}" if steps else episode
                self.troubles.append(f"{facts['text']}: {place}")
                return f"ANOMALY {facts['finding']}  {place}  {facts['text']}"
            case "executed":
                self.troubles.insert(0, f"EXECUTED {episode} {facts['text']}")
            case "violation":
                self.troubles.append(f"blocked: {episode} {facts['text']}")
            case "lost":
                return f"LOST {episode}  attempt {facts['attempt']}: {facts['error']}"
            case "run_stopping":
                self.stopping = str(facts["reason"])
                return f"stopping ({self.stopping}): finishing what runs"
            case "episode_finished":
                return self._finished(episode, facts)
        return _LINES.get(kind, "").format_map(facts)

    def _finished(self, episode: str, facts: Mapping[str, Any]) -> str:
        self.running.pop(episode, None)
        if facts.get("finished", True):
            verdict = str(facts["verdict"])
            self.verdicts[verdict] = self.verdicts.get(verdict, 0) + 1
            self.imagined = self.imagined or bool(facts.get("imagined"))
        self.done, self.total = int(facts["done"]), int(facts["total"])
        share = (self.done - self.logged_done) / max(self.total, 1)
        late = time.monotonic() - self.logged_at >= _EVERY_S
        if self.done < self.total and share < _EVERY_SHARE and not late:
            return ""
        self.logged_at, self.logged_done = time.monotonic(), self.done
        return f"{self.done}/{self.total}  {self.tally()}  {self.calls} calls"

    @property
    def left_s(self) -> float | None:
        """Seconds left at the pace so far; None while there is no pace."""
        return self._left_s(self.done - self.earlier, self.total - self.done)

    def tally(self) -> str:
        """Verdicts in words."""
        counts = ", ".join(f"{count} {_word(verdict, count)}" for verdict, count in self.verdicts.items())
        return f"{counts} (imagined)" if self.imagined else counts

    def block(self, width: int) -> "list[Text]":
        """The lines that a terminal shows."""
        from rich.text import Text

        room = max(20, min(width, 100) - 1)
        head = Text(f" dreaming {cut_middle(one_line(self.graph), 30)}   {self.done} of {self.total}   ")
        for verdict, color in _VERDICTS.items():
            count = self.verdicts[verdict]
            head.append(f"{count} {_word(verdict, count)}  ", style=color if count else "")
        head.append("(imagined)" if self.imagined else "")
        now = time.monotonic()
        pace = self.calls / max(now - self.began, 0.001)
        bar = f"{_bar(self.done, self.total, self.left_s)}   {pace:.0f} calls/s"
        oldest = sorted(self.running.items(), key=lambda item: item[1][1])
        running = [
            f"{one_line(name)} {one_line(tool)} {now - since:.0f} s"
            for name, (tool, since) in oldest[:_RUNNING_SHOWN]
        ]
        running += [f"+{len(oldest) - _RUNNING_SHOWN}"] if len(oldest) > _RUNNING_SHOWN else []
        doing = "  running  " + "   ".join(running)
        if self.mined is not None:
            doing = f"{_bar(round(100 * self.mined), 100, None)} of mining programs from the recordings"
        more = f", and {len(self.troubles) - 1} more" if len(self.troubles) > 1 else ""
        last = " Ctrl-C: finish what runs, then stop; the run can be resumed."
        if self.stopping:
            last = " Stopping: what runs is finished. Ctrl-C again: stop now; the run can be resumed."
        lines = [head, *(Text(cut_middle(text, room)) for text in (bar, doing))]
        return self._block(lines, room, more=more, last=last)


@dataclass(slots=True)
class TrainingProgress(_Progress):
    """How far a training is, from its events."""

    where: str = "dream"  # or the stage of a way to the real tools; success is told with it
    step: int = 0  # finished
    steps: int = 0  # planned
    doing: str = "opening"
    done: int = 0  # episodes of what goes on now
    total: int = 0
    lines: list[str] = field(default_factory=list)  # of steps and evaluations, as they came
    first_step: int = 0

    def take(self, kind: str, facts: Mapping[str, Any]) -> str:
        """Follow one event; gives the line that it is worth in a log, "" where it is worth none."""
        if kind in _THEN:
            self.doing, self.done, self.total = _THEN[kind], 0, 0
        line = _LINES.get(kind, "").format_map(facts)
        match kind:
            case "training_started":
                self.step = self.first_step = int(facts["step"])
                self.steps, self.began = int(facts["steps"]), time.monotonic()
            case "step_finished":
                self.step = int(facts["step"])
                line = self._step_line(facts)
                self.lines.append(line)
            case "evaluated":
                decided = int(facts["decided"])
                share = _share(facts["success"] / decided if decided else None)
                where = "real tools" if facts["real"] else "dreamed"
                line = f"HELD OUT after step {facts['step']}: {share} of {decided} decided episodes, {where}"
                self.lines.append(line)
            case "episode_finished":
                self.done, self.total = int(facts["done"]), int(facts["total"])
            case "run_stopping":
                self.stopping = str(facts["reason"])
                line = f"stopping ({self.stopping}): at the last checkpoint"
            case "executed" | "violation" | "alarm" | "real_calls_stopped":
                self.troubles.append(line)
        return line

    def _step_line(self, facts: Mapping[str, Any]) -> str:
        seconds: Mapping[str, float] = facts["seconds"]
        waited, update = (seconds.get(part, 0.0) for part in ("waited", "update"))
        whole = sum(value for part, value in seconds.items() if part != "rollouts")
        return (
            f"step {facts['step']}/{self.steps}  {self.where} {_share(facts['success'])}  "
            f"entropy {_number(facts['entropy'])}  kl {_number(facts['kl'])}  "
            f"dead {facts['dead']}/{facts['groups']}  inconclusive {facts['inconclusive']}  "
            f"{whole:.1f} s (rollouts {waited:.1f}, update {update:.1f})"
        )

    def block(self, width: int) -> "list[Text]":
        """The lines that a terminal shows."""
        from rich.text import Text

        room = max(20, min(width, 110) - 1)
        counted = self.total and self.doing in ("rollouts", "evaluation")
        episodes = f"{self.done} of {self.total} episodes" if counted else ""
        texts = [
            f" training   step {self.step} of {self.steps}   {self.doing} {episodes}",
            _bar(self.step, self.steps, self._left_s(self.step - self.first_step, self.steps - self.step)),
            *(f"  {one_line(line)}" for line in self.lines[-_STEPS_SHOWN:]),
        ]
        last = " Ctrl-C: stop at the last checkpoint; it can be resumed."
        if self.stopping:
            last = " Stopping at the last checkpoint. Ctrl-C again: now; it can be resumed."
        return self._block([Text(cut_middle(text, room)) for text in texts], room, last=last)


def _word(verdict: str, count: int) -> str:
    return "errors" if verdict == "error" and count != 1 else verdict


def _bar(done: int, total: int, left_s: float | None) -> str:
    share = done / total if total else 0.0
    filled = round(share * _BAR)
    left = f"{duration(left_s)} left" if left_s is not None else ""
    return f"  [{'#' * filled}{'-' * (_BAR - filled)}]  {share:.0%}   {left}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


class PlainLines:
    """One line per event worth one, the time first, no redraw: logs, pipes, CI."""

    def __init__(self, stream: TextIO, progress: RunProgress | TrainingProgress) -> None:
        self._stream, self._progress, self._lock = stream, progress, threading.Lock()

    def emit(self, kind: str, /, **facts: Any) -> None:
        """See `EventSink.emit`."""
        with self._lock:
            line = self._progress.take(kind, facts)
            if line:
                text = "  ".join(one_line(part) for part in line.split("  "))
                self._stream.write(f"{time.strftime('%H:%M:%S')} {text}\n")
                self._stream.flush()


class LiveBlock:
    """One block on a terminal, redrawn in place and gone at the end."""

    def __init__(self, width: int, progress: RunProgress | TrainingProgress) -> None:
        self._width, self._progress, self._lock = width, progress, threading.Lock()

    def emit(self, kind: str, /, **facts: Any) -> None:
        """See `EventSink.emit`."""
        with self._lock:
            self._progress.take(kind, facts)

    def __rich__(self) -> Any:
        """What rich draws four times a second."""
        from rich.text import Text

        with self._lock:
            lines = self._progress.block(self._width)
        return Text("\n").join(lines)


@contextmanager
def shown_progress(progress: RunProgress | TrainingProgress, *, plain: bool = False) -> "Iterator[EventSink]":
    """Show progress on stderr for the block."""
    if plain or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield PlainLines(sys.stderr, progress)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stderr)
    view = LiveBlock(console.width, progress)
    with Live(view, console=console, refresh_per_second=4, transient=True, redirect_stdout=False):
        yield view
