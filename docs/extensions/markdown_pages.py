"""A directive whose content is Markdown that code wrote."""

import re
from collections.abc import Callable, Iterable

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

SPECIAL = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>|"})
CODE = re.compile(r"(`[^`|]+`)")


def text(said: str) -> str:
    """Plain text as Markdown: no sign in it means anything, but for code between backticks."""
    parts = CODE.split(" ".join(said.split()))
    return "".join(part if CODE.fullmatch(part) else part.translate(SPECIAL) for part in parts)


def code(said: object) -> str:
    """Text as code in a table's cell."""
    return f"`{said}`".replace("|", "\\|")


def row(*cells: str) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"


def page_of(lines: Callable[[], Iterable[str]]) -> type[SphinxDirective]:
    """A directive that puts these lines, headings and all, where it stands."""

    class Page(SphinxDirective):
        def run(self) -> list[nodes.Node]:
            self.env.note_reread()
            here = nodes.Element()
            made = StringList(list(lines()), source=self.env.docname)
            self.state.nested_parse(made, 0, here, match_titles=True)
            return here.children

    return Page
