"""No page, recipe, notebook, source or test says a name of an earlier version but those about it."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

import dreamgym_kit
from dreamgym_kit import OLD_NAMES
from dreamgym_kit.adapters.pytest_plugin.dream import Dream
from dreamgym_kit.cli.main import app
from dreamgym_kit.cli.options import OLD_COMMANDS, OLD_FLAGS
from dreamgym_kit.settings.read import renamed

ROOT = Path(__file__).parents[2]
ABOUT_OLD_NAMES = (
    *("CHANGELOG.md", "cli/options.py", "tests/bars/old_", "tests/golden/expected", "tests/bench/figures.md"),
    *("tests/cli/test_gate.py", "tests/cli/test_commands.py", "tests/settings/test_load.py"),
    "tests/docs/test_old_names.py",
)
SUFFIXES = {".py", ".md", ".toml", ".yml", ".yaml", ".ipynb", ".sh", ".cfg", ".js", ".html", ""}


def texts() -> Iterator[tuple[str, str]]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    for name in listed.splitlines():
        file = ROOT / name
        if name.startswith(ABOUT_OLD_NAMES) or file.suffix not in SUFFIXES or not file.is_file():
            continue
        try:
            yield name, file.read_text("utf-8")
        except UnicodeDecodeError:
            continue


@pytest.fixture(scope="module")
def sources() -> list[tuple[str, str]]:
    found = list(texts())
    if not found:
        pytest.skip("this is no git checkout, so its files cannot be listed")
    return found


def places(sources: list[tuple[str, str]], pattern: str) -> list[str]:
    known = re.compile(pattern)
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in sources
        if known.search(text)
        for number, line in enumerate(text.splitlines(), start=1)
        if known.search(line)
    ]


def test_no_old_variable_of_a_setting_is_left(sources: list[tuple[str, str]]) -> None:
    names = ["_".join(old).upper() for old in renamed() if len(old) == 2]
    assert places(sources, rf"\bDREAMGYM_({'|'.join(names)})\b") == []


def test_no_old_key_is_left_where_settings_are_spelled(sources: list[tuple[str, str]]) -> None:
    keys = "|".join(re.escape(".".join(old)) for old in renamed() if len(old) == 2)
    pages = [one for one in sources if not one[0].endswith(".py")]
    assert places(pages, rf"(?<![\w./])({keys})\b(?![(/])") == []
    assert places(sources, rf'["`]({keys})["`=]') == []


def test_no_old_public_name_is_left(sources: list[tuple[str, str]]) -> None:
    assert places(sources, rf"dreamgym_kit[. ](import )?({'|'.join(OLD_NAMES)})\b") == []


def test_an_old_public_name_or_argument_names_the_new_one() -> None:
    for old, now in OLD_NAMES.items():
        with pytest.raises(AttributeError, match=re.escape(f"dreamgym_kit.{old} is now {now}")):
            getattr(dreamgym_kit, old)
    with pytest.raises(TypeError, match=r"asimulate\(\): store= is now buffer=, n= is now repeats="):
        dreamgym_kit.simulate("nowhere:graph", [], store=None, n=2)


def test_an_old_argument_of_the_pytest_fixture_names_the_new_one() -> None:
    with pytest.raises(TypeError, match=r"answers= is now mocks=, unfinished= is now allow_incomplete="):
        Dream.run(None, None, "hi", answers={}, unfinished=True)  # type: ignore[call-arg, arg-type]


def test_no_old_command_is_left(sources: list[tuple[str, str]]) -> None:
    commands = "|".join(map(re.escape, OLD_COMMANDS))
    assert places(sources, rf"dreamgym-kit ({commands})(?![\w-])") == []


def test_no_command_line_has_an_old_flag(sources: list[tuple[str, str]]) -> None:
    group, found = get_command(app), []
    for place in places(sources, r"dreamgym-kit [a-z]"):
        typed = re.search(r"dreamgym-kit ([^`\"']*)", place)
        try:
            words = shlex.split(typed[1]) if typed else []
        except ValueError:
            continue
        command, known = group, {"--version"}
        for word in words:
            command = getattr(command, "commands", {}).get(word, command)
            known |= {flag for option in command.params for flag in option.opts}
        old = [
            word
            for word in words
            if word.partition("=")[0] in OLD_FLAGS and word.partition("=")[0] not in known
        ]
        found += [f"{place} has {old}"] if old else []
    assert found == []
