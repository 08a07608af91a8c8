"""Bar G7: a call costs no more after a thousand others, in lines of Python; its times are the bench's."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any

import pytest
from bench.overhead import GIVEN, decorated, dreaming, writing
from langchain_core.tools import BaseTool

from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.session import Session

CALLS = 1_000


@contextmanager
def gate() -> Iterator[BaseTool]:
    """A tool behind the installed gate."""
    install()
    try:
        yield decorated()
    finally:
        uninstall()


@contextmanager
def opened(session: Session) -> Iterator[Context]:
    """A context in which the session goes on, beside others."""
    context, around = copy_context(), entered(session)
    context.run(around.__enter__)
    try:
        yield context
    finally:
        context.run(around.__exit__, None, None, None)


def lines(context: Context, add: BaseTool) -> int:
    """How many lines of Python one call runs."""
    counted = 0

    def trace(*_: Any) -> Any:
        nonlocal counted
        counted += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        context.run(add.invoke, GIVEN)
    finally:
        sys.settrace(before)
    return counted


def growth(begun: Callable[[], Session]) -> float:
    """What a call of a session with a long history costs beside one of a young session."""
    with gate() as add, opened(begun()) as old, opened(begun()) as young:
        for context, calls in ((old, CALLS), (young, 1)):
            for _ in range(calls):
                context.run(add.invoke, GIVEN)
        # The fewest of three: a collection of garbage in the midst of one may run lines of its own.
        late, early = (min(lines(context, add) for _ in range(3)) for context in (old, young))
    print(f"G7 lines of call {CALLS + 1}: {late}, of call 2: {early}")
    return late / early


def test_a_dreamt_answer_costs_no_more_after_a_long_history() -> None:
    assert growth(dreaming) < 1.1


def test_a_long_history_of_writes_costs_no_more() -> None:
    assert growth(writing) < 1.1


def test_a_ledger_that_reads_its_whole_past_on_each_call_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: Any = Session.keep

    def forgetful(self: Session, *args: Any, **kwargs: Any) -> Any:
        sum(len(entry.call.key) for entry in self.ledger.transitions())
        return kept(self, *args, **kwargs)

    monkeypatch.setattr(Session, "keep", forgetful)
    assert growth(dreaming) > 1.1
