"""Makes this process one that dreams: gate in, guard up, nothing of the kit's own phoning home.

To be called before the user's module is imported; `simulate` does so in a fresh process.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dreamgym_kit.adapters.langgraph.install import install
from dreamgym_kit.adapters.langgraph.isolation import no_llm_cache
from dreamgym_kit.gate import egress
from dreamgym_kit.gate.connections import open_connections
from dreamgym_kit.gate.registry import PROCESS, arm, current, live_sessions
from dreamgym_kit.settings.model import Settings

_TRACING = ("LANGSMITH_TRACING", "LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING", "LANGCHAIN_TRACING_V2")


@contextmanager
def dreaming_process(
    settings: Settings, scratch: Path, *, writable: Sequence[Path] = ()
) -> Iterator[list[str]]:
    """Arm gate and guard for the block; gives what a person should know about doors already open.

    After the block the guard is down, but the process stays armed: tools without a session are refused
    until `registry.wake` is called.

    Args:
        settings: `[guard]` says what is allowed besides the kit's own files.
        scratch: where the agent's code may write; also its temporary folder.
        writable: more files and folders of the run itself.
    """
    egress.refuse_uvloop()
    install()
    warnings = [f"open before the dream, and not guarded: {one}" for one in open_connections()]
    scratch.mkdir(parents=True, exist_ok=True)
    allowance = egress.Allowance(
        hosts=frozenset(settings.guard.allow_hosts),
        paths=(scratch, *writable, *(settings.resolve(path) for path in settings.guard.allow_paths)),
        commands=settings.guard.allow_commands,
    )
    before = {name: os.environ.get(name) for name in (*_TRACING, "TMPDIR")}
    temporary = tempfile.tempdir
    for name in _TRACING:
        os.environ.pop(name, None)
    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
    arm()
    egress.arm(allowance, _latch)
    try:
        with no_llm_cache():
            yield warnings
    finally:
        egress.disarm()
        tempfile.tempdir = temporary
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _latch(trip: egress.Trip) -> None:
    """A refusal of the guard ends the episode it happened in, whatever the agent makes of the exception."""
    why = trip.message or f"{trip.event} {trip.target}"
    session = current.get()
    owners = [session] if session is not None else live_sessions()
    if len(owners) == 1:
        owners[0].latch(why)
        return
    with PROCESS.lock:
        PROCESS.strays.append(why)
