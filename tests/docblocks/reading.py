"""Finds every example on a page, with what the comment above it says of it.

<!-- file: NAME -->           the reader saves the block as this file
<!-- function in: NAME -->    the reader puts this function in place of the one of that name
<!-- exit: 1 -->              the block's last command ends with this code
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

CHECKOUT = Path(__file__).parents[2]
DOCS = CHECKOUT / "docs"
TABLE = CHECKOUT / "tests" / "docs" / "checked-examples.md"
SHELLS = ("console", "sh")
_SAYS = re.compile(r"<!-- (file|function in|exit): (\S+) -->")
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)")


@dataclass(frozen=True, slots=True)
class Block:
    """One example."""

    page: str  # path from the checkout
    line: int
    language: str  # "indented" where it has no fence, "" where the fence names none
    text: str
    file: str | None = None
    function_in: str | None = None
    exit: int = 0

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """Of a shell block: one string a command, lines that go on joined, comments left out."""
        lines = self.text.replace("\\\n", "").splitlines()
        return [line for line in map(str.strip, lines) if line and not line.startswith("#")]


@dataclass(frozen=True, slots=True)
class Unrun:
    """A row of the table of examples that are not run."""

    page: str
    what: str  # a command, a language, or "all"
    check: str
    reason: str


def pages() -> list[Path]:
    """Every page with examples: the README, how to contribute, the documentation."""
    return [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def page_name(page: Path) -> str:
    """How a page is called here and in the table."""
    return page.relative_to(CHECKOUT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    """The examples of a page, in its order."""
    return list(blocks_in(page.read_text("utf-8"), page_name(page)))


def blocks_in(text: str, page: str) -> Iterator[Block]:
    """The examples in a Markdown text."""
    said: dict[str, str] = {}
    for token in MarkdownIt("commonmark").parse(text):
        if token.type == "html_block":
            said |= dict(_SAYS.findall(token.content))
        elif token.type in ("fence", "code_block"):
            language = token.info.strip() if token.type == "fence" else "indented"
            first = token.map[0] + 1 if token.map else 0
            yield Block(
                page,
                first,
                language,
                token.content,
                file=said.get("file"),
                function_in=said.get("function in"),
                exit=int(said.get("exit", 0)),
            )
            said = {}


def unrun_rows(text: str | None = None) -> list[Unrun]:
    """The table in tests/docs/checked-examples.md."""
    rows = []
    for line in (TABLE.read_text("utf-8") if text is None else text).splitlines():
        cells = (
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] if line.startswith("|") else []
        )
        if len(cells) == 4 and cells[0] != "page" and not set(line) <= set("|- "):
            rows.append(Unrun(*(cell.strip("`").replace("\\|", "|") for cell in cells)))
    return rows


def unrun(block: Block, what: str, rows: list[Unrun]) -> Unrun | None:
    """The row that excuses a command (or a whole block, by its language) from being run."""
    mine = [row for row in rows if row.page == block.page]
    return next((row for row in mine if row.what in ("all", what)), None)
