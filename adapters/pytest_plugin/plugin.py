"""What pytest loads: options, ini, the mark, the `dream` fixture and what is told at the end.

Loaded in every project that has the kit installed, so nothing of the kit is imported before a test asks for
the fixture.
"""

import os
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dreamgym_kit.adapters.pytest_plugin.dream import Dream

MODELS = ("auto", "recorded", "live")
RECORDED = "dream_recorded"


class RecordMode(StrEnum):
    """When real tools run, to be recorded."""

    NONE = "none"  # never
    ONCE = "once"  # for a test that has no recording
    NEW = "new"  # for a run that the recording does not answer
    ALL = "all"  # always


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say what can be asked for."""
    group = parser.getgroup("dream", "dreams (dreamgym-kit)")
    group.addoption(
        "--dream-record",
        choices=[mode.value for mode in RecordMode],
        default=None,
        dest="dream_record",
        help="When the REAL tools of a test's agent run, to be recorded: none (default): never; once: where "
        "the test has no cassette; new: also where its cassette does not answer; all: always.",
    )
    parser.addini(
        "dream_record",
        "default of --dream-record; not heeded where CI is set (none holds there)",
        default="none",
    )
    parser.addini("dream_cassettes", "folder of the cassettes, beside the test", default="cassettes")
    parser.addini(
        "dream_models",
        "which chat models of the agent are recorded and replayed: auto (a provider's), recorded, live",
        default="auto",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known, refuse an ini that says nothing known, and take `addopts` for the ini that it is.

    Raises:
        pytest.UsageError: names the key and what it may be.
    """
    config.addinivalue_line(
        "markers",
        "dream(cassette, models, buffer, settings, environment): how the test's `dream` fixture dreams "
        "(dreamgym-kit, docs/pytest.md)",
    )
    for key, known in (("dream_record", tuple(RecordMode)), ("dream_models", MODELS)):
        value = config.getini(key)
        if value not in known:
            raise pytest.UsageError(f"{key}: '{value}' is none of {', '.join(known)}")
    if hasattr(config, "workerinput"):
        config.option.dream_record = config.workerinput["dream_record"]
    elif _in_ci() and not _on_command_line(config):
        config.option.dream_record = None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist what was decided: it would read `PYTEST_ADDOPTS` for itself."""
    node.workerinput["dream_record"] = node.config.option.dream_record


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say beforehand that real tools may run."""
    mode = mode_of(config)
    return f"dream: record {mode}: REAL TOOLS RUN where a dream is recorded" if mode != "none" else None


def mode_of(config: pytest.Config) -> str:
    """When real tools run: the command line's word, else the ini's, which is heeded outside CI only."""
    mode: str | None = config.getoption("dream_record")
    if mode is None and not _in_ci():
        mode = config.getini("dream_record")
    return mode or "none"


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def _on_command_line(config: pytest.Config) -> bool:
    """Whether the option stands on the command line: `addopts` puts it there for every machine."""
    return any(str(arg).split("=")[0] == "--dream-record" for arg in config.invocation_params.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which cassettes were written; they are to be looked at before they are kept."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    written = {
        str(value)
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == RECORDED
    }
    if written:
        terminalreporter.section("dream: recorded on the real tools, please review")
        for path in sorted(written):
            terminalreporter.line(path)


@pytest.fixture
def dream(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Dream]":
    """Runs an agent in a dream: `episode = dream.run(graph, "Please cancel order o1.")`."""
    from dreamgym_kit.adapters.pytest_plugin.dream import dream_of

    with dream_of(request.node, tmp_path_factory.mktemp("dream")) as dream:
        yield dream
