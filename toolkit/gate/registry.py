"""Which session a call belongs to, and whether this process may run real tools at all.

A session is found by context (a contextvar) and by a second key that travels in the graph's config;
where both are there they must agree. Once a dream began, the process is *armed*: a gated call without
a session is refused, also after the last dream ended, until `wake` is called by a person's code.
A dream and production serving therefore never share a process.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NoReturn

from dreamgym_kit.errors import GateRefused
from dreamgym_kit.gate import egress
from dreamgym_kit.gate.policy import Mode
from dreamgym_kit.gate.session import Session

CONFIG_KEY = "__dreamgym_session"
"""In `config["configurable"]`. Keys that begin with `__` stay out of checkpoints and traces."""

_REALITY = {Mode.DREAM: 0, Mode.S2R: 1, Mode.RECORD: 2}  # how much of what runs is real

current: ContextVar[Session | None] = ContextVar("dreamgym_session", default=None)


class _Process:
    """What holds for the whole process. `armed` is read on every tool call: one attribute, no lock."""

    __slots__ = ("armed", "lock", "refusal", "sessions", "strays")

    def __init__(self) -> None:
        self.armed = False
        self.lock = threading.Lock()
        self.refusal: type[GateRefused] = GateRefused  # what a stray call meets
        self.sessions: dict[str, Session] = {}
        self.strays: list[str] = []


PROCESS = _Process()


def arm() -> None:
    """From now on a gated call without a session is refused in this process."""
    PROCESS.armed = True


def wake() -> None:
    """Let real tools run again in this process.

    Raises:
        GateRefused: a session is still open.
    """
    with PROCESS.lock:
        dreaming = [session for session in PROCESS.sessions.values() if not session.mode.bare]
        if dreaming:
            raise GateRefused(f"{len(dreaming)} dream(s) are still running; close them before waking")
        PROCESS.armed = False
        PROCESS.strays.clear()
    egress.forget()


@contextmanager
def awake() -> Iterator[None]:
    """Let real tools run in the block, in a process that dreams before it and after it.

    For what a person asked to be done on the real tools between two dreams; what was refused stays told.

    Raises:
        GateRefused: a dream is still running.
    """
    with PROCESS.lock:
        dreaming = [session for session in PROCESS.sessions.values() if not session.mode.bare]
        if dreaming:
            raise GateRefused(f"{len(dreaming)} dream(s) are still running; no real tool may run beside them")
        armed, PROCESS.armed = PROCESS.armed, False
    try:
        yield
    finally:
        PROCESS.armed = PROCESS.armed or armed


@contextmanager
def entered(session: Session) -> Iterator[Session]:
    """Make `session` the one of this context. Never hold it across a `yield` to foreign code.

    Raises:
        GateRefused: more was to be real inside than around it, as a recording inside a dream; or real calls
            were to go by another overseer than the one around.
    """
    around = current.get()
    if around is not None and (
        _REALITY[session.mode] > _REALITY[around.mode] or session.mode is around.mode is Mode.S2R
    ):
        begun = "a recording" if session.mode is Mode.RECORD else "a session with real calls"
        inside = "a dream; no real tool may run there"
        if around.mode is Mode.S2R:
            inside = "a session whose real calls are overseen; none may run past it"
        around.refuse(f"{begun} was begun inside {inside}")
    with PROCESS.lock:
        PROCESS.sessions[session.id] = session
        if not session.mode.bare:
            PROCESS.armed = True
    token = current.set(session)
    try:
        yield session
    finally:
        session.close()
        with PROCESS.lock:
            PROCESS.sessions.pop(session.id, None)
        current.reset(token)  # last: it raises where the block is left in another context than it began in


def find(key: str | None, tool: str) -> Session | None:
    """The session that a call of `tool` belongs to; None where the gate has nothing to say.

    Raises:
        GateRefused: context and key disagree, the session has ended, or the process is armed and
            the call belongs to no session.
    """
    session = current.get()
    if key is not None and (session is None or session.id != key):
        return _by_key(key, session, tool)
    if session is None:
        if PROCESS.armed:
            stray(f"{tool} was called outside every episode while this process dreams; it did not run")
        return None
    if not session.open:
        session.check_open(tool)
    return session


def _by_key(key: str, session: Session | None, tool: str) -> Session:
    owner = PROCESS.sessions.get(key)
    if session is not None:
        session.refuse(f"{tool} was called in one episode with the key of another; it did not run")
    if owner is None:
        stray(f"{tool} was called with the key of an episode that has ended; it did not run")
    return owner


def stray(why: str) -> NoReturn:
    """Refuse a call that belongs to no session, and keep that it happened.

    In a bare thread nobody hears of the refusal: it ends the episode that began the thread.
    """
    owner = egress.owner()
    if isinstance(owner, Session) and owner.open:
        owner.refuse(why)
    with PROCESS.lock:
        if len(PROCESS.strays) < 1000:
            PROCESS.strays.append(why)
    raise PROCESS.refusal(why)


def live_sessions() -> list[Session]:
    """All open sessions of the process."""
    with PROCESS.lock:
        return list(PROCESS.sessions.values())
