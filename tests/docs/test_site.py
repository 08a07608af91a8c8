"""The documentation builds without a warning, has no dead link, and tells all that the code has."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from docblocks.reading import CHECKOUT, DOCS
from each_row import each_row
from markdown_it import MarkdownIt
from sphinx.util.inventory import InventoryFile

import dreamgym_kit
from dreamgym_kit import interfaces, types
from dreamgym_kit.settings.load import environment_names

sys.path.insert(0, str(DOCS / "extensions"))
from command_pages import all_commands, commands_page
from field_comments import field_comments
from setting_pages import flags_of_keys, settings_page

SAFE = re.compile(r"\bsafe(ly)?\b", re.IGNORECASE)


@dataclass
class Page(HTMLParser):
    """What a built page links to, and what in it can be linked to."""

    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if value and name in ("id", "name"):
                self.anchors.add(value)
            if value and name in ("href", "src"):
                self.links.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, built as anyone builds them."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-d", str(folder / ".trees")]
    done = subprocess.run([*command, str(DOCS), str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder


def built(site: Path) -> dict[Path, Page]:
    pages = {}
    for file in site.rglob("*.html"):
        pages[file] = Page()
        pages[file].feed(file.read_text("utf-8"))
    return pages


def dead(pages: dict[Path, Page]) -> Iterator[str]:
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            anchors = pages[target].anchors if target in pages else set()
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in anchors):
                yield f"{file.name}: {link}"


@pytest.mark.slow
def test_no_link_of_the_site_is_dead(site: Path) -> None:
    pages = built(site)
    assert sum(len(page.links) for page in pages.values()) > 500
    assert list(dead(pages)) == []


@pytest.mark.slow
def test_every_page_of_the_folder_is_in_the_menu(site: Path) -> None:
    menu = built(site)[site / "index.html"].links
    names = {page.relative_to(DOCS).with_suffix(".html").as_posix() for page in DOCS.rglob("*.md")}
    assert names - {"index.html"} <= {link.partition("#")[0] for link in menu}


@pytest.mark.slow
def test_every_public_name_is_in_the_python_reference(site: Path) -> None:
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    told = {name for kind in inventory.data.values() for name in kind}
    homes = {name: getattr(dreamgym_kit, name).__module__ for name in dreamgym_kit.__all__}
    public = {f"{home}.{name}" for name, home in homes.items() if home == "dreamgym_kit.types"}
    public |= {f"dreamgym_kit.{name}" for name, home in homes.items() if home != "dreamgym_kit.types"}
    for module in (interfaces, types):
        public |= {f"{module.__name__}.{name}" for name in classes_of(module)}
    assert len(public) >= 40
    assert public - told == set()


def classes_of(module: object) -> list[str]:
    tree = ast.parse(Path(str(module.__file__)).read_text())
    return [
        node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    file.write_text(
        '<p id="x"><a href="#x"><a href="#y"><a href="b.html"><img src="c.png"><a href="http://d/">'
    )
    assert list(dead(built(tmp_path))) == ["a.html: #y", "a.html: b.html", "a.html: c.png"]


def links(page: Path) -> Iterator[str]:
    for token in MarkdownIt("commonmark").parse(page.read_text("utf-8")):
        for inner in token.children or ():
            target = inner.attrs.get("href") or inner.attrs.get("src")
            if target:
                yield str(target)


@each_row("page", [*sorted(CHECKOUT.glob("*.md")), *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name)
def test_every_link_to_a_file_of_the_repository_leads_somewhere(page: Path) -> None:
    for link in links(page):
        parts = urlsplit(link)
        if not parts.scheme and parts.path:
            assert (page.parent / unquote(parts.path)).exists(), link


def test_every_setting_has_its_sentence_and_its_variable() -> None:
    page = "\n".join(settings_page())
    assert [
        name for name in environment_names() if f"`{name}`" not in page and len(name.split("_")) > 2
    ] == []
    assert "[simulate]" in page
    value = "*whole number, at least 1; default: `50`*"
    assert f"| `max_tool_calls` | tool calls<br>{value}<br>`DREAMGYM_LIMITS_MAX_TOOL_CALLS` |" in page


def test_a_setting_that_has_a_flag_is_listed_with_it() -> None:
    flags = flags_of_keys()
    assert flags["gate", "fail_on"] == ["--fail-on"]
    assert flags["simulate", "repeats"] == ["--repeats"]
    assert flags["train", "group_size"] == ["--group-size"]
    assert ("limits", "max_tool_calls") not in flags


def test_every_command_and_option_is_in_the_command_reference() -> None:
    page = "\n".join(commands_page())
    for name, command in all_commands():
        assert f"\n## {name}\n" in f"\n{page}"
        for option in command.params:
            shown = [flag for flag in option.opts if flag.startswith("--")]
            assert all(flag in page for flag in shown), (name, shown)
        if name.count(" ") == 1 and name != "dreamgym-kit buffer":
            assert command.epilog, f"{name} has no example"


def test_a_field_is_told_by_the_comment_behind_it() -> None:
    assert field_comments(types.Effect)["WRITE"] == "changes the world, can be undone"
    assert "id" not in field_comments(types.Task)


def test_no_page_calls_anything_safe() -> None:
    """A dream that went well proves nothing about the world; no page says that it does."""
    pages = [CHECKOUT / "README.md", *DOCS.rglob("*.md")]
    said = [
        f"{page.name}: {line}"
        for page in pages
        for line in page.read_text("utf-8").splitlines()
        if SAFE.search(line)
    ]
    assert said == []
