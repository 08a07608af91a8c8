"""The checklist as a checker: what an episode amounts to, as far as the gate lets it be believed.

Siblings share one base state and one sheet: only their own writes differ. The sheet is made from what is
known of the world, never from what the agent said of it: a judge that has only the transcript believes the
agent.
"""

import threading
from collections.abc import Callable, Mapping

from dreamgym_kit.dream.checklist.checklist import Checklist, Sheet, writes_of
from dreamgym_kit.dream.checklist.gate import Gate
from dreamgym_kit.dream.checklist.labels import accepted
from dreamgym_kit.dream.checklist.patterns import write_of
from dreamgym_kit.dream.checklist.things import Advances, Things
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.ports import Judgement, Outcome
from dreamgym_kit.vocabulary import Task, Verdict, World

Bases = Callable[[World, str], Things | None]
"""What is known of a world before an episode of the request with this text; None: nothing."""


class ChecklistJudge:
    """Implements `ports.Checker` without any recorded goal of the task.

    Args:
        checklist: makes the sheets.
        bases: what is known of a world.
        advances: whether a call changed the world, as mined.
        gate: what the checklist may judge; None: all (to measure it).
        name: tells it from judges that learned from other work.
    """

    def __init__(
        self,
        checklist: Checklist,
        bases: Bases,
        advances: Advances,
        gate: Gate | None = None,
        *,
        name: str = "checklist",
    ) -> None:
        self.name = name
        self._checklist, self._bases, self._advances, self._gate = checklist, bases, advances, gate
        self._sheets: dict[tuple[World, str], Sheet] = {}
        self._lock = threading.Lock()

    def __call__(self, outcome: Outcome) -> Judgement:
        """See `ports.Checker`."""
        text = asked_text(outcome.task)
        sheet = self.sheet(outcome.task.world, text)
        made = writes_of(accepted(outcome.transitions, self._advances))
        done = set(made)
        tried = [
            write
            for entry in outcome.transitions
            if entry.effect.changes_world
            for write in [write_of(entry.call.tool, entry.call.args)]
            if write not in done
        ]
        refused = self._refused(text, sheet.tools | {write.tool for write in made})
        if refused:
            return Judgement(Verdict.INCONCLUSIVE, refused)
        found = self._checklist.judge(sheet, made, tried)
        reward = {Verdict.PASSED: 1.0, Verdict.FAILED: 0.0}.get(found.verdict)
        return Judgement(found.verdict, found.reason, reward)

    def sheet(self, world: World, text: str) -> Sheet:
        """What a request comes to in a world; made once."""
        with self._lock:
            key = (world, text)
            if key not in self._sheets:
                base = self._bases(world, text)
                self._sheets[key] = (
                    self._checklist.sheet(text, base)
                    if base is not None
                    else Sheet(frozenset(), blank=f"nothing is known of world {world}")
                )
            return self._sheets[key]

    def doubt(self, task: Task) -> str:
        """Why a task's episodes would get no verdict; "" where they do."""
        text = asked_text(task)
        sheet = self.sheet(task.world, text)
        if sheet.blank:
            return sheet.blank
        if sheet.open:
            return f"whether there has to be a {min(sheet.open).tool} cannot be told"
        return self._refused(text, sheet.tools)

    def _refused(self, text: str, tools: frozenset[str] | set[str]) -> str:
        if self._gate is None:
            return ""
        kind = self._gate.kind(self._checklist.wordings.read(text).wording)
        why = self._gate.refuses(kind, tools)
        return f"the judge is not to be believed here: {why}" if why else ""


def asked_text(task: Task) -> str:
    """What a task asks for, in words: its user's last message, else all texts of its input."""
    messages = task.input.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if isinstance(last, Mapping):
        return _text(last.get("content"))
    if isinstance(last, list) and len(last) == 2:  # ("user", "...")
        return _text(last[1])
    if isinstance(last, str):
        return last
    return " ".join(value for value in task.input.values() if isinstance(value, str))


def _text(content: JsonValue) -> str:
    if isinstance(content, list):  # blocks
        return " ".join(
            str(block.get("text", "")) if isinstance(block, Mapping) else str(block) for block in content
        )
    return str(content or "")
