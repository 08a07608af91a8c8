"""A body that is `pure` reaches no host: what computes from its arguments needs none, and may lie about that.

The egress guard asks for the seal, also where no guard stands (real calls under oversight). It belongs to a
context; tasks inherit it, and so do the threads that are begun in it and the work that it hands to pools.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple


class Seal(NamedTuple):
    """Which tool's body runs, and who hears of what it tried."""

    tool: str
    report: Callable[[str], object]


_seal: ContextVar[Seal | None] = ContextVar("dreamgym_kit_seal", default=None)


def seal() -> Seal | None:
    """The one that the running code is under."""
    return _seal.get()


@contextmanager
def sealed(tool: str, report: Callable[[str], object]) -> Iterator[None]:
    """Let the block reach no host; `report` gets each try at once. The guard has to listen."""
    token = _seal.set(Seal(tool, report))
    try:
        yield
    finally:
        _seal.reset(token)


@contextmanager
def unsealed() -> Iterator[None]:
    """Let the block go by the guard alone: a tool of its own that somebody else lets through."""
    token = _seal.set(None)
    try:
        yield
    finally:
        _seal.reset(token)


def carried(work: Callable[..., Any]) -> Callable[..., Any]:
    """Work of a thread or a pool, under the seal of what begins it or hands it over."""
    mine = seal()
    if mine is None:
        return work

    @functools.wraps(work)
    def worked(*args: Any, **kwargs: Any) -> Any:
        token = _seal.set(mine)
        try:
            return work(*args, **kwargs)
        finally:
            _seal.reset(token)

    return worked
