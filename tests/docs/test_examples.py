"""Every example on the pages is run, or read by what it is written for; none is passed over."""

import json
import shutil
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from docblocks.reading import (
    CHECKOUT,
    SHELLS,
    Block,
    blocks_in,
    blocks_of,
    page_name,
    pages,
    unrun,
    unrun_rows,
)
from docblocks.running import Reader, kit_commands, shell
from docblocks.scenes import AT_WORK, SCENES, WITH_AGENT, at_work, with_agent
from each_row import each_row
from typer.main import get_command

from dreamgym_kit.cli.main import app
from dreamgym_kit.cli.options import parted
from dreamgym_kit.dream.programs.rules_files import read_file
from dreamgym_kit.errors import UserError
from dreamgym_kit.rollout.tasks import read_tasks
from dreamgym_kit.settings.load import parse_settings

DIRECTIVES = ("{toctree}", "{eval-rst}", "{settings-reference}", "{command-reference}")  # Sphinx runs them
READ = ("toml", "yaml", "json", "jsonl")
ROWS = unrun_rows()
PAGES = pages()
BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


def place(block: Block) -> str:
    return block.place


def passed_over(blocks: list[Block], rows: list[object]) -> list[str]:
    known = (*DIRECTIVES, *READ, *SHELLS, "python")
    return [
        f"{block.place}: {block.language or 'no language'}"
        for block in blocks
        if block.language not in known and unrun(block, block.language, rows) is None
    ]


def test_no_block_is_passed_over() -> None:
    assert len(BLOCKS) > 40
    assert passed_over(BLOCKS, ROWS) == []


@each_row(
    "text", ["```\nrm -rf\n```\n", "```rust\nfn\n```\n", "    dreamgym-kit demo\n", "```text\na\n```\n"]
)
def test_a_block_of_no_known_kind_is_found(text: str) -> None:
    assert len(passed_over(list(blocks_in(text, "docs/x.md")), ROWS)) == 1


def test_every_row_of_the_table_excuses_something_that_is_there() -> None:
    there = {(block.page, what) for block in BLOCKS for what in ("all", block.language, *block.commands())}
    assert [row for row in ROWS if (row.page, row.what) not in there] == []
    assert [row for row in ROWS if not row.check or not row.reason] == []


def test_a_page_that_is_run_elsewhere_names_the_test_that_does() -> None:
    for row in ROWS:
        if row.what == "all":
            assert Path(row.page).name in CHECKOUT.joinpath(row.check.strip("`")).read_text()


def read(block: Block, folder: Path) -> object:
    """What the reader of its kind makes of a block; raises where it is none."""
    match block.language:
        case "toml" if block.file in (None, "dreamgym.toml"):
            settings = parse_settings(block.text)
            return settings if settings != parse_settings("") else None
        case "toml" if block.file.startswith("rules/"):
            (file := folder / Path(block.file).name).write_text(block.text)
            return read_file(file)
        case "toml":
            return tomllib.loads(block.text)
        case "yaml":
            return yaml.safe_load(block.text)
        case "json":
            return json.loads(block.text)
    file = folder / "tasks.jsonl"
    file.write_text(block.text)
    return read_tasks(file)


@each_row("block", of(*READ), ids=place)
def test_data_on_a_page_is_read_by_what_it_is_for(block: Block, tmp_path: Path) -> None:
    assert read(block, tmp_path)


@each_row(
    "text",
    [
        "```toml\n[simulat]\nn = 1\n```",
        "```toml\n# n = 1\n```",
        '```jsonl\n{"id": 1}\n```',
        "```yaml\na: [\n```",
        "```json\n{\n```",
    ],
)
def test_data_that_is_not_what_it_should_be_is_found(text: str, tmp_path: Path) -> None:
    (block,) = blocks_in(text, "docs/x.md")
    try:
        found = read(block, tmp_path)
    except (ValueError, yaml.YAMLError, UserError):
        return
    assert not found


@each_row("block", of("python"), ids=place)
def test_python_on_a_page_parses(block: Block) -> None:
    compile(block.text, block.place, "exec")


@cache
def command_line() -> Any:
    """Made once: it takes a while."""
    return get_command(app)


def calls() -> Iterator[list[str]]:
    """Every call of the kit on the pages and in the commands' own help."""
    for block in BLOCKS:
        for command in block.commands() if block.language in SHELLS else ():
            yield from kit_commands(command)
    for _, command in commands(command_line(), ()):
        for line in (command.epilog or "").splitlines():
            yield from kit_commands(line) if line.strip().startswith("dreamgym-kit") else ()


def commands(command: object, name: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    yield name, command
    for inner, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*name, inner))


@each_row("words", list(calls()), ids=" ".join)
def test_every_call_of_the_kit_is_one_that_it_takes(words: list[str]) -> None:
    parse(words)


def parse(words: list[str]) -> None:
    """As far as the command line goes: commands, flags and values; nothing is carried out."""
    command, rest = command_line(), parted(words)[1]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context("dreamgym-kit", list(rest))


@each_row("words", [["simulate", "--no-such-flag"], ["compare", "--limit", "many"], ["simulat"]])
def test_a_call_that_the_kit_does_not_take_is_found(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"No such option|valid integer|simulat"):
        parse(words)


def the_quickstart_is_true(folder: Path, said: str) -> None:
    assert "FAILED  1 passed, 1 failed, 0 inconclusive, 0 errors" in said.partition("get_order")[2]
    assert "PASSED  2 passed, 0 failed, 0 inconclusive, 0 errors" in said
    calls = ["get_order o1", "get_order o2", "refund_order o1", "refund_order o2"]
    assert sorted((folder.parent / "my_shop" / "real_calls.txt").read_text().splitlines()) == calls
    assert len(list(folder.parent.glob("my_shop/runs/*/report.html"))) == 1


def the_readme_is_true(folder: Path, said: str) -> None:
    assert "0 executed, 0 blocked, of 8 tool calls" in said
    assert said.rstrip().endswith("PASSED  4 passed, 0 failed, 0 inconclusive, 0 errors")
    assert (folder / "touched").read_text().count("cancel_order") == 1
    assert len(list(folder.glob("runs/*/report.html"))) == 1


def the_page_on_tasks_is_true(_folder: Path, said: str) -> None:
    assert "FAILED  2 passed, 2 failed, 0 inconclusive, 0 errors" in said
    assert said.rstrip().endswith("2 of 2")


AFTERWARDS = {
    "README.md": the_readme_is_true,
    "docs/quickstart.md": the_quickstart_is_true,
    "docs/tasks.md": the_page_on_tasks_is_true,
}
"""What a page claims beyond that its commands work."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once; each page gets a copy."""
    folder = tmp_path_factory.mktemp("at_work")
    at_work(folder, shell)
    return folder


EACH_CHANGE = {"README.md", "docs/quickstart.md", "docs/your-agent.md", "docs/safety.md", "docs/ci.md"}
"""What a new user follows, and what keeps them safe; the other pages are followed nightly."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=page_name(page),
            marks=() if page_name(page) in EACH_CHANGE else pytest.mark.nightly,
        )
        for page in PAGES
        if blocks_of(page)
    ],
)
def test_a_page_works_when_it_is_followed(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = tmp_path / "reader"
    scene = SCENES.get(page_name(page), AT_WORK)
    if scene == AT_WORK:
        shutil.copytree(request.getfixturevalue("project"), folder)
    else:
        folder.mkdir()
        if scene == WITH_AGENT:
            with_agent(folder)
    reader = Reader(folder, ROWS)
    for block in blocks_of(page):
        reader.follow(block)
    AFTERWARDS.get(page_name(page), lambda _folder, _said: None)(folder, "".join(reader.said.values()))


@pytest.mark.slow
def test_a_page_that_says_another_code_is_found(tmp_path: Path) -> None:
    (block,) = blocks_in("<!-- exit: 1 -->\n```sh\ntrue\n```\n", "docs/x.md")
    with pytest.raises(AssertionError, match="ended with 0, the page says 1"):
        Reader(tmp_path, []).follow(block)
