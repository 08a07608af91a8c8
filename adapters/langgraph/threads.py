"""A recording goes along into a pool's threads, which copy no context: each real call there is kept too.

A dream does not: a call from a thread that was given neither context nor config is refused.
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dreamgym_kit.adapters.langgraph.patches import PatchSet, plain_wrapper
from dreamgym_kit.gate.policy import Mode
from dreamgym_kit.gate.registry import current
from dreamgym_kit.gate.session import Session


def guard_pools(patches: PatchSet) -> None:
    """Make pools carry the recording of whoever hands them work, for that piece of work."""
    real = ThreadPoolExecutor.__dict__["submit"]

    @functools.wraps(real)
    def submit(self: ThreadPoolExecutor, work: Any, /, *args: Any, **kwargs: Any) -> Any:
        session = current.get()
        if session is not None and session.mode is Mode.RECORD:
            work = _in(session, work)
        return real(self, work, *args, **kwargs)

    patches.replace(ThreadPoolExecutor, "submit", plain_wrapper(submit, real))


def _in(session: Session, work: Callable[..., Any]) -> Callable[..., Any]:
    def worked(*args: Any, **kwargs: Any) -> Any:
        token = current.set(session)
        try:
            return work(*args, **kwargs)
        finally:
            current.reset(token)

    return worked
