"""Makes this process one that dreams: gate in, guard up, nothing of the kit's own phoning home.

To be called before the user's module is imported; `simulate` does so in a fresh process.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dreamgym_kit.adapters.langgraph.episode.isolation import no_llm_cache
from dreamgym_kit.adapters.langgraph.intercept.install import install
from dreamgym_kit.guard import egress
from dreamgym_kit.guard.callers import acting
from dreamgym_kit.guard.connections import foreign_connections
from dreamgym_kit.guard.exemptions import guarded
from dreamgym_kit.routing.process import current, holding, keep_stray, live_sessions
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.schema import Settings

_TRACING = ("LANGSMITH_TRACING", "LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING", "LANGCHAIN_TRACING_V2")


@contextmanager
def dreaming_process(
    settings: Settings, scratch: Path, *, writable: Sequence[Path] = ()
) -> Iterator[list[str]]:
    """Arm gate and guard for the block; gives what a person should know about doors already open.

    After the block both are down for the caller's own code. What a task or thread does that an episode left
    running is refused for the life of the process.

    Args:
        settings: `[guard]` says what is allowed besides the kit's own files.
        scratch: where the agent's code may write; also its temporary folder.
        writable: more files and folders of the run itself.
    """
    egress.refuse_uvloop()
    install()
    warnings = [
        f"open before the dream, so C libraries can use it: {connection}"
        for connection in foreign_connections()
    ]
    scratch.mkdir(parents=True, exist_ok=True)
    allowance = egress.Allowance(
        hosts=frozenset(settings.guard.allow_hosts),
        paths=(scratch, *writable, *(settings.resolve(path) for path in settings.guard.allow_paths)),
        commands=settings.guard.allow_commands,
    )
    with _kept_to_itself(scratch), guarded(), holding():
        egress.arm(allowance, _latch, _owner)
        try:
            with no_llm_cache():
                yield warnings
        finally:
            egress.disarm()


@contextmanager
def watched_loading(settings: Settings) -> Iterator[list[str]]:
    """Note what loading a graph does to the outside, which a dream would refuse; the list fills meanwhile.

    Only noted: a module that connects as it is imported has to be looked at too. Tools and chat models
    are refused as in a dream, since a person who looks at a graph did not ask for it to be run.
    """
    install()
    noted: list[str] = []
    with tempfile.TemporaryDirectory(prefix="dreamgym-look-") as folder, _kept_to_itself(Path(folder)):
        allowance = egress.Allowance(
            hosts=frozenset(settings.guard.allow_hosts),
            paths=(Path(folder), *(settings.resolve(path) for path in settings.guard.allow_paths)),
            commands=settings.guard.allow_commands,
        )
        try:
            with holding(), egress.watching(allowance) as trips:
                yield noted
        finally:
            noted += dict.fromkeys(trip.message for trip in trips)


@contextmanager
def _kept_to_itself(scratch: Path) -> Iterator[None]:
    """No tracing of the framework's own, and temporary files in `scratch`."""
    before = {name: os.environ.get(name) for name in (*_TRACING, "TMPDIR")}
    temporary = tempfile.tempdir
    for name in _TRACING:
        os.environ.pop(name, None)
    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
    try:
        yield
    finally:
        tempfile.tempdir = temporary
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _owner() -> Session | None:
    """The dream that the running context belongs to."""
    session = current.get()
    return session if session is not None and session.mode is Mode.DREAM else None


def _latch(trip: egress.Trip) -> None:
    """A refusal of the guard ends the episode it happened in, whatever the agent makes of the exception.

    One that belongs to no episode, or to one that has ended and was told of, is told of with the run.
    """
    why = trip.message or f"{trip.event} {trip.target}"
    owner = egress.owner()
    owners = live_sessions() if owner is None else [owner] if owner.open or acting.get() else []
    if len(owners) == 1 and isinstance(owners[0], Session):
        owners[0].latch(why)
        return
    keep_stray(why)
