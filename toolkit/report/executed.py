"""Real calls that ran where none may run: in words, and what a person does next."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dreamgym_kit.types import Executed, format_executed

if TYPE_CHECKING:
    from dreamgym_kit.report.metrics import RunMetrics

_MOST = 5  # calls named in one sentence; JSON and the episodes have all of them


def executed_short(calls: Sequence[Executed]) -> str:
    """All of them in one sentence, the first few by name and arguments."""
    if len(calls) <= _MOST:
        return format_executed(calls)
    named = ", ".join(map(str, calls[:_MOST]))
    return f"{len(calls)} real calls executed: {named}, and {len(calls) - _MOST} more"


def executed_sentence(summary: "RunMetrics") -> str:
    """The sentence of a run; empty where nothing ran."""
    return executed_short([call for _, call in summary.executed]) if summary.executed else ""


def executed_line(summary: "RunMetrics") -> str:
    """What a command says first; empty where nothing ran."""
    sentence = executed_sentence(summary)
    return f"FAILED  {sentence}" if sentence else ""


def what_to_do(summary: "RunMetrics") -> list[str]:
    """What a person does next, a sentence each; nothing where nothing ran."""
    names = list(dict.fromkeys(call.tool for _, call in summary.executed))
    if not names:
        return []
    undo = f"Undo it on the real system: {', '.join(names[:_MOST])} ran there"
    more = "; other episodes ran at the same time and were stopped: look for their calls too"
    function = next((name for name in names if name.isidentifier()), "FUNCTION")
    name = f'[functions."MODULE:{function}"]'
    return [
        f"{undo}{more if summary.not_run else ''}.",
        f"Make it interceptable, then begin a new run: name the function in dreamgym.toml: {name}",
    ]
