"""A page in the system's Chromium: what the console said and what was asked of the network is kept."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pages.runs import run_directory
from pages.settling import COUNT

from dreamgym_kit.report.page.writing import page_of
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.types import Episode

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PATIENCE_MS = 120_000
CUT = """[...document.querySelectorAll('figure svg text')].filter((text) => {
  const mine = text.getBoundingClientRect(), whole = text.ownerSVGElement.getBoundingClientRect();
  return mine.left < whole.left - 0.5 || mine.right > whole.right + 0.5;
}).map((text) => text.textContent)"""


@dataclass
class Shown:
    """A page that is open, and what it did besides."""

    page: Any
    path: Path
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)

    def go(self, hash_: str) -> None:
        """Follow a link within the page, and wait until it is shown."""
        self.page.evaluate("(hash) => visit(hash)", hash_)

    @property
    def url(self) -> str:
        """What the page itself says; the browser tells others of it later."""
        return str(self.ask("location.href"))

    def press(self, *keys: str) -> None:
        """Press keys, each once what the one before began is done."""
        for key in keys:
            self.page.keyboard.press(key)
            self.settle()

    def settle(self) -> None:
        """Wait until what was begun is done."""
        self.ask("settled()")

    def ids(self) -> list[str]:
        """The episodes that are listed, in order."""
        found: list[str] = self.ask("[...document.querySelectorAll('.ep a')].map(a => a.textContent)")
        return found

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def quiet(self) -> None:
        """Nothing was asked of the network, and the console is empty."""
        assert self.requests == []
        assert self.console == []

    def flaws(self) -> list[str]:
        """What nobody may meet: violations found by axe-core, cut words, sideways scrolling, other files."""
        axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
        self.ask("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        found = axe.Axe().run(self.page).response["violations"]
        flaws = [
            f"{one['impact']} {one['id']}: {[node['html'][:160] for node in one['nodes']]}" for one in found
        ]
        cut = self.ask(CUT)
        flaws += [f"cut off: {cut}"] * bool(cut)
        flaws += ["scrolls sideways"] * self.ask("document.documentElement.scrollWidth > innerWidth")
        return flaws + ["foreign"] * self.ask(
            "document.querySelector('img, iframe, link, script[src]') !== null"
        )


Opener = Callable[..., Shown]


def outside(url: str) -> bool:
    """What is told and not answered: a page that something makes leave stays, and can be asked further."""
    return not url.startswith("file:")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        if os.environ.get("CI_NEEDS_BROWSER"):
            pytest.fail("no Chromium, though CI_NEEDS_BROWSER is set")
        pytest.skip("no Chromium here; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=path, headless=True, args=FLAGS, timeout=PATIENCE_MS
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any, tmp_path: Path) -> Iterator[Opener]:
    """Open a run, or a file, in a fresh window: `open_page(episodes, hash_="#trust", width=390)`."""
    contexts = []

    def opened(
        run: Iterable[Episode] | Path,
        *,
        hash_: str = "",
        width: int = 1280,
        dark: bool = False,
        **matters: Any,
    ) -> Shown:
        path = run if isinstance(run, Path) else made(run, **matters)
        scheme = "dark" if dark else "light"
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(COUNT)
        context.route(outside, lambda route: route.abort("aborted"))
        contexts.append(context)
        shown = Shown(context.new_page(), path)
        shown.page.on("console", lambda said: shown.console.append(said.text))
        shown.page.on("pageerror", lambda error: shown.console.append(str(error)))
        shown.page.on("request", lambda request: shown.requests.append(request.url))
        shown.page.goto(path.as_uri() + hash_)
        shown.settle()
        assert shown.requests.pop(0).startswith("file://")  # the file itself
        return shown

    def made(run: Iterable[Episode], **matters: Any) -> Path:
        folder = tmp_path / f"run-{len(contexts)}"
        page = page_of(RunDirectory.open(run_directory(folder, run, **matters)), place="runs/a-run")
        (folder / "page.html").write_text(page.html, "utf-8")
        return folder / "page.html"

    yield opened
    for context in contexts:
        context.close()
