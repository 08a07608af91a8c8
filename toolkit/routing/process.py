"""Find the session of a call, and decide whether this process may run real tools.

A session is found by context (a contextvar) and by a key in the graph's config; if both exist they must
agree. While a dream is open the process is held: an intercepted call without a session is refused. This also
applies to a caller's thread that was started before the dream: an agent may have sent it work through a
queue, and such work cannot be told from the caller's own. Afterwards such calls run for real again, except
those of threads that an episode started (see `thread_owners`), which never do.
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
"""Key in `config["configurable"]`. Keys that begin with `__` stay out of checkpoints and traces."""

_REALITY = {Mode.DREAM: 0, Mode.S2R: 1, Mode.RECORD: 2}  # order of modes by how much is real

current: ContextVar[Session | None] = ContextVar("dreamgym_session", default=None)


class _Process:
    """State of the whole process.

    `armed`: a dream has begun, so every call is checked from now on; each tool call reads only this
    attribute, without a lock. `held`: number of dreams that are open or about to open.
    """

    __slots__ = ("armed", "lock", "on_open", "on_stray", "open_dreams", "refusal", "sessions", "strays")

    def __init__(self) -> None:
        self.armed = False
        self.open_dreams = 0
        self.lock = threading.Lock()
        self.refusal: type[RealCallBlocked] = RealCallBlocked  # raised by a call without a session
        self.sessions: dict[str, Session] = {}
        self.strays = Refusals()
        self.on_stray: Callable[[str], object] = str  # records it at once, also after the run
        self.on_open: list[Callable[[], object]] = []  # called before a session opens

    def hold(self, more: int) -> None:
        """Count a dream that begins or ends; strays are kept since the first open one began."""
        with self.lock:
            if not self.open_dreams:
                self.strays = Refusals()
            self.open_dreams += more
            self.armed = self.armed or self.open_dreams > 0

    def stray_calls(self, *, once: bool = False) -> list[str]:
        """Return the refused calls without an episode. `once`: remove them."""
        with self.lock:
            strays = list(self.strays)
            if once:
                self.strays = Refusals()
        return strays


PROCESS = _Process()


@contextmanager
def strays_heard(by: Callable[[str], object], after: Callable[[str], object]) -> Iterator[None]:
    """Inside the block call `by` at once for each refused call without an episode.

    If no other dream is open after it, `after` is called for what its episodes left running, for the life of
    the process.
    """
    before, PROCESS.on_stray = PROCESS.on_stray, by
    try:
        yield
    finally:
        PROCESS.on_stray = after if PROCESS.open_dreams <= 1 else before


@contextmanager
def holding() -> Iterator[None]:
    """Inside the block refuse intercepted calls without a session in this process."""
    PROCESS.hold(1)
    try:
        yield
    finally:
        PROCESS.hold(-1)


@contextmanager
def awake() -> Iterator[None]:
    """Let real tools run inside the block, in a process that is otherwise held.

    For what a user wants done on the real tools between two dreams; refused calls stay recorded, and threads
    of an episode stay refused.

    Raises:
        RealCallBlocked: a dream is still running.
    """
    with PROCESS.lock:
        dreaming = [session for session in PROCESS.sessions.values() if not session.mode.bare]
        if dreaming:
            raise RealCallBlocked(
                f"{len(dreaming)} dream(s) are still running; no real tool may run beside them"
            )
        open_dreams, PROCESS.open_dreams = PROCESS.open_dreams, 0
    try:
        yield
    finally:
        with PROCESS.lock:
            PROCESS.open_dreams += open_dreams


@contextmanager
def entered(session: Session) -> Iterator[Session]:
    """Make `session` the current one of this context. Never keep it across a `yield` to foreign code.

    Raises:
        RealCallBlocked: the inner session would be more real than the outer one, such as a recording inside a
            dream, or would use another overseer.
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
    for act in PROCESS.on_open:
        act()
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
        current.reset(token)  # last: it raises if the block ends in another context


def is_outside() -> bool:
    """Return whether a call needs no interception: no dream began here, and no episode is active."""
    return not PROCESS.armed and current.get() is None and thread_owners.recorded_by() is None


def find(key: str | None, tool: str) -> Session | None:
    """Return the session of a call of `tool`; None if the call needs no interception.

    Raises:
        RealCallBlocked: context and key disagree, the session has ended, or the call has no session while a
            dream is open or its thread was started by an episode.
    """
    session = current.get()
    if key is not None and (session is None or session.id != key):
        return _by_key(key, session, tool)
    if session is None:
        if (recording := _recording()) is not None:
            return recording
        if not is_free():
            outside = "outside every episode while this process dreams"
            unowned_call(f"{tool} was called {outside if PROCESS.open_dreams else LEFT}; it did not run")
        return None
    if not session.open:
        session.check_open(tool)
    return session


def _recording() -> Session | None:
    """Return the recording of a bare thread: the one that started it, else the only one."""
    began = thread_owners.recorded_by()
    if began is None or PROCESS.open_dreams:
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
    """Return whether code without a session may run real tools: no dream is open, no episode started it."""
    return not PROCESS.open_dreams and thread_owners.owner() is None


def unowned_call(why: str) -> NoReturn:
    """Refuse and record a call without a session.

    In a bare thread nothing catches the refusal, so it ends the episode that started the thread; in a pool it
    reaches the code that waits for the work.
    """
    owner = egress.owner()
    if isinstance(owner, Session) and owner.open and not thread_owners.of_pool(threading.current_thread()):
        owner.refuse(why)
    keep_stray(why)
    raise PROCESS.refusal(why)


def keep_stray(why: str) -> None:
    """Record a refusal without an open episode."""
    with PROCESS.lock:
        listed = PROCESS.strays.add(why)
    if listed:
        PROCESS.on_stray(why)


def _began() -> Session | None:
    """Return the dream that started the current thread or callback."""
    owner = thread_owners.owner()
    return owner if isinstance(owner, Session) else None


def live_sessions() -> list[Session]:
    """Return all open sessions of the process."""
    with PROCESS.lock:
        return list(PROCESS.sessions.values())
