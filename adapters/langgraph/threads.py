"""Work that an episode hands to threads, which copy no context, still belongs to it.

A pool is handed one piece of work after another: each goes along with the session of whoever handed it
over, so that its calls are answered in a dream and kept in a recording. A bare thread may serve several
episodes. It is only noted who began it, for the egress guard; the gate asks it for the config's key.
"""

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dreamgym_kit.adapters.langgraph.patches import PatchSet, plain_wrapper
from dreamgym_kit.gate import egress
from dreamgym_kit.gate.registry import current
from dreamgym_kit.gate.sealing import carried
from dreamgym_kit.gate.session import Session


def guard_threads(patches: PatchSet) -> None:
    """Make pools carry the session of whoever hands them work, and note who began a bare thread."""
    submitting, starting = ThreadPoolExecutor.__dict__["submit"], threading.Thread.__dict__["start"]

    @functools.wraps(submitting)
    def submit(self: ThreadPoolExecutor, work: Any, /, *args: Any, **kwargs: Any) -> Any:
        session = current.get()
        return submitting(self, work if session is None else _in(session, carried(work)), *args, **kwargs)

    @functools.wraps(starting)
    def start(self: threading.Thread) -> None:
        session = current.get()
        egress.begins(self, session if session is not None and not session.mode.bare else None)
        starting(self)

    patches.replace(ThreadPoolExecutor, "submit", plain_wrapper(submit, submitting))
    patches.replace(threading.Thread, "start", plain_wrapper(start, starting))


def _in(session: Session, work: Callable[..., Any]) -> Callable[..., Any]:
    def worked(*args: Any, **kwargs: Any) -> Any:
        token = current.set(session)
        try:
            return work(*args, **kwargs)
        finally:
            current.reset(token)

    return worked
