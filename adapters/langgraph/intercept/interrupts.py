"""What tools ask people while they run: LangGraph's `interrupt()`, heard and asked again.

A real body that asks a person is recorded with the question and the reply, since its answer depends on them.
In a dream the recorded question is asked again. `interrupt` gets a code object of ours, as hooked functions
do, so that it is heard under any name that it was imported by, and in graphs that a tool runs.
"""

import types
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langgraph.types import interrupt

from dreamgym_kit.adapters.langgraph.intercept.patches import PatchSet, reroute
from dreamgym_kit.replay.masking import masked
from dreamgym_kit.serialization import JsonValue, to_json
from dreamgym_kit.types import Reply

_HEARING: ContextVar[list[Reply] | None] = ContextVar("dreamgym_hearing", default=None)
_REAL: list[types.FunctionType] = []  # `interrupt` as it was, while ours stands in its place


@contextmanager
def hearing() -> Iterator[list[Reply]]:
    """Give the questions of the block that got a reply, in order; those of inner blocks too."""
    around, heard = _HEARING.get(), list[Reply]()
    token = _HEARING.set(heard)
    try:
        yield heard
    finally:
        _HEARING.reset(token)
        if around is not None:
            around += heard


def ask_person(asked: JsonValue) -> JsonValue:
    """Ask whoever answers this graph's interrupts; the first time the graph stops here.

    Raises:
        GraphInterrupt: there is no reply yet; the node runs again when there is.
    """
    return to_json(interrupt(asked))


def hear_interrupts(patches: PatchSet) -> None:
    """Put ours into `interrupt`, until `patches` is undone."""
    real, put_back = reroute(interrupt, f"{__name__}:heard", 0)
    _REAL[:] = [real]

    def undo() -> None:
        put_back()
        _REAL.clear()

    patches.on_undo(undo)


def heard(_: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Where calls of `interrupt` arrive."""
    reply = _REAL[0](*args, **kwargs)
    listening = _HEARING.get()
    if listening is not None:
        asked = args[0] if args else kwargs.get("value")
        listening.append(Reply(masked(to_json(asked)), masked(to_json(reply))))
    return reply
