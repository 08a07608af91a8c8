"""Which session a call belongs to, and whether this process may run real tools at all.

A session is found by context (a contextvar) and by a second key that travels in the graph's config;
where both are there they must agree. While a dream is open the process is held: a gated call without a
session is refused, whoever makes it. A thread of the caller's own, begun before the dream, is no exception:
an agent may have handed it work through a queue, and nothing tells that from the caller's own. Afterwards
such calls run for real again, but for those of what an episode began (see `thread_owners`): they never do.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NoReturn

from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.guard import egress, thread_owners
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.routing.session import Refusals, Session

CONFIG_KEY = "__dreamgym_session"
"""In `config["configurable"]`. Keys that begin with `__` stay out of checkpoints and traces."""

_REALITY = {Mode.DREAM: 0, Mode.S2R: 1, Mode.RECORD: 2}  # how much of what runs is real

current: ContextVar[Session | None] = ContextVar("dreamgym_session", default=None)


class _Process:
    """What holds for the whole process.

    `armed`: a dream began in it, so each call is looked at from then on; read on every tool call: one
    attribute, no lock. `held`: how many dreams are open, or are about to be.
    """

    __slots__ = ("armed", "held", "lock", "on_stray", "refusal", "sessions", "strays")

    def __init__(self) -> None:
        self.armed = False
        self.held = 0
        self.lock = threading.Lock()
        self.refusal: type[RealCallBlocked] = RealCallBlocked  # what a stray call meets
        self.sessions: dict[str, Session] = {}
        self.strays = Refusals()
        self.on_stray: Callable[[str], object] = str  # writes it down, at once

    def hold(self, more: int) -> None:
        """Count a dream that begins or ends; strays are those since the first of the open ones began."""
        with self.lock:
            if not self.held:
                self.strays = Refusals()
            self.held += more
            self.armed = self.armed or self.held > 0

    def told(self, *, once: bool = False) -> list[str]:
        """The refused calls that belonged to no episode. `once`: they are not told again."""
        with self.lock:
            strays = list(self.strays)
            if once:
                self.strays = Refusals()
        return strays


PROCESS = _Process()


@contextmanager
def strays_heard(by: Callable[[str], object]) -> Iterator[None]:
    """In the block each refused call that belongs to no episode is told to `by` at once."""
    before, PROCESS.on_stray = PROCESS.on_stray, by
    try:
        yield
    finally:
        PROCESS.on_stray = before


@contextmanager
def holding() -> Iterator[None]:
    """In the block a gated call without a session is refused in this process."""
    PROCESS.hold(1)
    try:
        yield
    finally:
        PROCESS.hold(-1)


@contextmanager
def awake() -> Iterator[None]:
    """Let real tools run in the block, in a process that is held around it.

    For what a person asked to be done on the real tools between two dreams; what was refused stays told, and
    what an episode began stays refused.

    Raises:
        RealCallBlocked: a dream is still running.
    """
    with PROCESS.lock:
        dreaming = [session for session in PROCESS.sessions.values() if not session.mode.bare]
        if dreaming:
            raise RealCallBlocked(
                f"{len(dreaming)} dream(s) are still running; no real tool may run beside them"
            )
        held, PROCESS.held = PROCESS.held, 0
    try:
        yield
    finally:
        with PROCESS.lock:
            PROCESS.held += held


@contextmanager
def entered(session: Session) -> Iterator[Session]:
    """Make `session` the one of this context. Never hold it across a `yield` to foreign code.

    Raises:
        RealCallBlocked: more was to be real inside than around it, as a recording inside a dream; or real
            calls were to go by another overseer than the one around.
    """
    around = current.get() or _began()
    if around is not None and (
        _REALITY[session.mode] > _REALITY[around.mode] or session.mode is around.mode is Mode.S2R
    ):
        thread_owners = "a recording" if session.mode is Mode.RECORD else "a session with real calls"
        inside = "a dream; no real tool may run there"
        if around.mode is Mode.S2R:
            inside = "a session whose real calls are overseen; none may run past it"
        around.refuse(f"{thread_owners} was begun inside {inside}")
    with PROCESS.lock:
        PROCESS.sessions[session.id] = session
    if not session.mode.bare:
        PROCESS.hold(1)
    token = current.set(session)
    try:
        yield session
    except BaseException:
        session.broken_off = True
        raise
    finally:
        session.close()
        with PROCESS.lock:
            PROCESS.sessions.pop(session.id, None)
        if not session.mode.bare:
            PROCESS.hold(-1)
        current.reset(token)  # last: it raises where the block is left in another context than it began in


def is_outside() -> bool:
    """Whether a call is none of the gate's: no dream was begun here, and no episode is around it."""
    return not PROCESS.armed and current.get() is None and thread_owners.recorded_by() is None


def find(key: str | None, tool: str) -> Session | None:
    """The session that a call of `tool` belongs to; None where the gate has nothing to say.

    Raises:
        RealCallBlocked: context and key disagree, the session has ended, or the call belongs to no session
            and a dream is open or what makes it was begun by an episode.
    """
    session = current.get()
    if key is not None and (session is None or session.id != key):
        return _by_key(key, session, tool)
    if session is None:
        if (recording := _recording()) is not None:
            return recording
        if not is_free():
            outside = "outside every episode while this process dreams"
            unowned_call(f"{tool} was called {outside if PROCESS.held else LEFT}; it did not run")
        return None
    if not session.open:
        session.check_open(tool)
    return session


def _recording() -> Session | None:
    """The recording that a bare thread works for: the one that began it, else the only one there is."""
    began = thread_owners.recorded_by()
    if began is None or PROCESS.held:
        return None
    live = [session for session in live_sessions() if session.mode.bare]
    mine = [session for session in live if session is began]
    return mine[0] if mine else live[0] if len(live) == 1 else None


def _by_key(key: str, session: Session | None, tool: str) -> Session:
    owner = PROCESS.sessions.get(key)
    if session is not None:
        session.refuse(f"{tool} was called in one episode with the key of another; it did not run")
    if owner is None:
        unowned_call(f"{tool} was called with the key of an episode that has ended; it did not run")
    return owner


LEFT = "by what an ended episode left running"


def is_free() -> bool:
    """Whether code without a session may run real tools: no dream is open, and no episode began it."""
    return not PROCESS.held and thread_owners.owner() is None


def unowned_call(why: str) -> NoReturn:
    """Refuse a call that belongs to no session, and keep that it happened.

    In a bare thread nobody hears of the refusal: it ends the episode that began the thread. Out of a pool's
    it comes to whoever waits for the work.
    """
    owner = egress.owner()
    if isinstance(owner, Session) and owner.open and not thread_owners.of_pool(threading.current_thread()):
        owner.refuse(why)
    keep_stray(why)
    raise PROCESS.refusal(why)


def keep_stray(why: str) -> None:
    """Keep that something was refused that belongs to no open episode."""
    with PROCESS.lock:
        listed = PROCESS.strays.add(why)
    if listed:
        PROCESS.on_stray(why)


def _began() -> Session | None:
    """The dream that began the running thread or callback."""
    owner = thread_owners.owner()
    return owner if isinstance(owner, Session) else None


def live_sessions() -> list[Session]:
    """All open sessions of the process."""
    with PROCESS.lock:
        return list(PROCESS.sessions.values())
