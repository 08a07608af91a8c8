"""docs/pytest.md as a reader tries it: its files written, its commands run, its messages the real ones."""

import re
import shlex
from pathlib import Path

import langchain.agents  # noqa: F401  here, once: pytester forgets what a run of its own imports
import pytest

import dreamgym_kit.adapters.pytest_plugin.dream  # noqa: F401
from dreamgym_kit.adapters.pytest_plugin.episode import DreamedEpisode
from dreamgym_kit.adapters.pytest_plugin.fixture_scope import MARK_KEYS
from dreamgym_kit.adapters.pytest_plugin.plugin import MODELS, RecordMode

PAGE = (Path(__file__).parents[2] / "docs" / "pytest.md").read_text()
_PLUGIN = ("-p", "dreamgym_kit.adapters.pytest_plugin.plugin", "-p", "pytest_asyncio.plugin")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def reader(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with every file of the page."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    # a file rewritten within one second, as long as before, would be taken from its old bytecode
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\naddopts = --strict-markers\n")
    for block in blocks("python"):
        name = re.match(r"# (\w+\.py)\n", block)
        assert name is not None, f"a block of the page has no name: {block[:60]}"
        (pytester.path / name[1]).write_text(block)
    pytester.syspathinsert()
    return pytester


def run(reader: pytest.Pytester, *args: str) -> pytest.RunResult:
    return reader.runpytest_inprocess(*_PLUGIN, "-q", "-p", "no:cacheprovider", *args)


def test_the_commands_of_the_page_record_once_and_replay(reader: pytest.Pytester) -> None:
    commands = [shlex.split(line) for block in blocks("console") for line in block.splitlines()]
    assert [command[0] for command in commands] == ["pytest", "pytest"]
    run(reader, *commands[1][1:]).assert_outcomes(failed=1)
    for _, *args in commands:
        run(reader, *args).assert_outcomes(passed=1)
    assert (reader.path / "cassettes/test_refunds/test_refunds_once.jsonl").is_file()


@pytest.mark.slow
@pytest.mark.nightly
def test_every_test_of_the_page_passes_as_recorded(reader: pytest.Pytester) -> None:
    run(reader, "--dream-record=once").assert_outcomes(passed=5)
    assert (reader.path / "cassettes/refunds.jsonl").is_file()
    run(reader).assert_outcomes(passed=5)


def test_the_messages_of_the_page_are_the_real_ones(reader: pytest.Pytester) -> None:
    run(reader, "test_refunds.py", "--dream-record=once").assert_outcomes(passed=1)
    failed, missed = blocks("text")
    test, agent = reader.path / "test_refunds.py", reader.path / "my_agent.py"
    test.write_text(
        test.read_text().replace('"refund_payment", payment="p1"', '"refund_payment", payment="p2"')
    )
    said = run(reader, "test_refunds.py").stdout.str()
    for line in failed.splitlines():
        assert line in said
    agent.write_text(agent.read_text().replace("amount=40", "amount=45"))
    said = run(reader, "test_refunds.py").stdout.str()
    for line in missed.splitlines():
        assert line in said


def test_the_page_names_every_option_mark_and_assertion() -> None:
    asked = [name for name in vars(DreamedEpisode) if not name.startswith("_")]
    for name in (*MARK_KEYS, *MODELS, *RecordMode, *asked, "dream_record", "dream_cassettes", "dream_models"):
        assert re.search(rf"`[^`]*\b{name}\b[^`]*`", PAGE), name
