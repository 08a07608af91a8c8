"""Pytest plugin for other projects' suites: puts the gate in as asked, and writes down how each test ended.

DREAMGYM_UPSTREAM_MODE: bare (no gate), idle (installed, no session), record (one session over everything),
mutant (a planted bug, which must show). DREAMGYM_UPSTREAM_RESULT: the file that gets
{"outcomes": {test: outcome}, "recorded": calls, "refused": calls}.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

MODE = os.environ["DREAMGYM_UPSTREAM_MODE"]
RESULT = Path(os.environ["DREAMGYM_UPSTREAM_RESULT"])

_outcomes: dict[str, str] = {}
_gate = contextlib.ExitStack()
_session: Any = None


def pytest_configure() -> None:
    """Before any test module is imported, as a user's module would be."""
    global _session
    if MODE in ("idle", "record"):
        from dreamgym_kit.adapters.langgraph.intercept.install import install

        install()
    if MODE == "record":
        from dreamgym_kit.adapters.langgraph.run.api import record_everything

        _session = _gate.enter_context(record_everything())
    if MODE == "mutant":
        _lose_the_name_of_every_answer()


def _lose_the_name_of_every_answer() -> None:
    from langchain_core.tools import BaseTool

    run = BaseTool.run

    def changed(self: BaseTool, *args: object, **kwargs: object) -> object:
        answer = run(self, *args, **kwargs)  # type: ignore[arg-type]
        if hasattr(answer, "name"):
            answer.name = None
        return answer

    BaseTool.run = changed  # type: ignore[method-assign,assignment]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test ends as the worst of its setup, call and teardown."""
    if report.when == "call" or not report.passed:
        outcome = f"{report.outcome} in {report.when}" if report.failed else report.outcome
        if not _outcomes.get(report.nodeid, "").startswith("failed"):
            _outcomes[report.nodeid] = outcome


def pytest_sessionfinish() -> None:
    """Write the outcomes; the gate's session ends after the last test."""
    _gate.close()
    recorded = 0 if _session is None else _session.real_calls
    refused = 0 if _session is None else len(_session.violations)
    RESULT.write_text(json.dumps({"outcomes": _outcomes, "recorded": recorded, "refused": refused}))
