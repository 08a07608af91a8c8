"""The pytest plugin: options, ini keys, the mark, the `dream` fixture and the final report.

pytest loads it in every project with the kit installed, so it imports nothing of the kit before a test
requests the fixture.
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
    """When real tools run for recording."""

    NONE = "none"  # never
    ONCE = "once"  # if a test has no recording
    NEW = "new"  # if the recording does not answer a run
    ALL = "all"  # always


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    group = parser.getgroup("dream", "dreams (dreamgym-kit)")
    group.addoption(
        "--dream-record",
        choices=[mode.value for mode in RecordMode],
        default=None,
        dest="dream_record",
        help="When to run the REAL tools of a test's agent for recording: none (default): never; once: if "
        "the test has no cassette; new: also if its cassette lacks an answer; all: always.",
    )
    parser.addini(
        "dream_record",
        "default of --dream-record; ignored if CI is set (then: none)",
        default="none",
    )
    parser.addini("dream_cassettes", "folder of the cassettes, relative to the test", default="cassettes")
    parser.addini(
        "dream_models",
        "which chat models of the agent are recorded and replayed: auto (a provider's), recorded, live",
        default="auto",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, check the ini values, and treat `addopts` like the ini.

    Raises:
        pytest.UsageError: names the key and its valid values.
    """
    config.addinivalue_line(
        "markers",
        "dream(cassette, models, buffer, settings, environment): options of the test's `dream` fixture "
        "(dreamgym-kit, docs/pytest.md)",
    )
    for key, valid_values in (("dream_record", tuple(RecordMode)), ("dream_models", MODELS)):
        value = config.getini(key)
        if value not in valid_values:
            raise pytest.UsageError(f"{key}: '{value}' is not one of {', '.join(valid_values)}")
    if hasattr(config, "workerinput"):
        config.option.dream_record = config.workerinput["dream_record"]
    elif _in_ci():
        words = map(str, config.invocation_params.args)  # as typed; `addopts` would set it on every machine
        if not any(word.split("=")[0] == "--dream-record" for word in words):
            config.option.dream_record = None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the mode to a pytest-xdist worker, which would read `PYTEST_ADDOPTS` itself."""
    node.workerinput["dream_record"] = node.config.option.dream_record


def pytest_report_header(config: pytest.Config) -> str | None:
    """Announce that real tools may run."""
    mode = mode_of(config)
    return f"dream: record {mode}: REAL TOOLS RUN where a dream is recorded" if mode != "none" else None


def mode_of(config: pytest.Config) -> str:
    """Return when real tools run: from the command line, else from the ini, except in CI."""
    mode: str | None = config.getoption("dream_record")
    if mode is None and not _in_ci():
        mode = config.getini("dream_record")
    return mode or "none"


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the written cassettes, so that they are reviewed."""
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
    """Run an agent in a dream: `episode = dream.run(graph, "Please cancel order o1.")`."""
    from dreamgym_kit.adapters.pytest_plugin.dream import dream_of

    with dream_of(request.node, tmp_path_factory.mktemp("dream")) as dream:
        yield dream
