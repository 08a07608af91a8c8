"""How fast the report page is in Chromium, and whether a hostile text becomes more than text.

Medians of five loads of a file, on the desk-shaped runs of `pages.runs`. `open_*` is the browser's own load
event, which comes after the page has drawn itself; a filter is timed from the keystroke to the laid-out
rows. `size_ratio` is the page over the run's episodes.jsonl. `xss` counts elements and attributes that 100
payloads in every text field add to those of a harmless run, `requests` what all pages asked of anybody.
"""

import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

sys.path.append(str(Path(__file__).parents[1]))  # `pages` lies beside this folder
from pages.conftest import FLAGS, NAMES
from pages.payloads import PAYLOADS
from pages.runs import hostile, many, run_directory
from pages.settling import COUNT
from pages.walking import walked

from dreamgym_kit.report.page.writing import page_of
from dreamgym_kit.rollout.rundir import EPISODES, RunDirectory

LOADS = 5
FILTER = """async (word) => {
  const field = document.querySelector('#q'), began = performance.now();
  field.value = word;
  field.dispatchEvent(new Event('input'));
  await new Promise((done) => requestAnimationFrame(done));
  document.body.offsetHeight;
  return performance.now() - began;
}"""
OPENED = "performance.getEntriesByType('navigation')[0].loadEventEnd / 1000"
WORDS = ("refund", "tool:send_mail", "-verdict:success finding:any", "kettle -tool:get_order", "")


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return figures(seed, episodes=(1000, 10_000), payloads=len(PAYLOADS))


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The same of a tenth."""
    return figures(seed, episodes=(100, 1000), payloads=20)


def figures(seed: int, *, episodes: tuple[int, int], payloads: int) -> list[tuple[str, float, str]]:
    """Make the pages, open them."""
    asked: list[str] = []
    with tempfile.TemporaryDirectory() as folder, _browser() as browser:
        small, large = (_page(Path(folder) / str(count), many(count, seed=seed)) for count in episodes)
        opened, filtered = _timed(browser, small, asked)
        opened_large, filtered_large = _timed(browser, large, asked)
        harmless = _page(Path(folder) / "harmless", hostile([f"word {n}" for n in range(payloads)]))
        bad = _page(Path(folder) / "hostile", hostile(PAYLOADS[:payloads]))
        foreign = _walked(browser, bad, asked) - _walked(browser, harmless, asked)
        ratio = small.stat().st_size / (small.parent / "a-run" / EPISODES).stat().st_size
    return [
        ("open_1000_s", opened, "s"),
        ("filter_1000_ms", filtered, "ms"),
        ("open_10000_s", opened_large, "s"),
        ("filter_10000_ms", filtered_large, "ms"),
        ("size_ratio", ratio, "of episodes.jsonl"),
        ("xss", len(foreign), f"elements and attributes from {payloads} payloads"),
        ("requests", len(asked), "beyond the files"),
    ]


@contextmanager
def _browser() -> Iterator[Any]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        raise RuntimeError("there is no Chromium; on Debian: apt-get install chromium")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield browser
        browser.close()


def _page(folder: Path, run: Any) -> Path:
    page = page_of(RunDirectory.open(run_directory(folder, run)), place="runs/a-run")
    (folder / "page.html").write_text(page.html, "utf-8")
    return folder / "page.html"


def _opened(browser: Any, path: Path, asked: list[str], script: str = "") -> Any:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    if script:
        page.add_init_script(script)
    page.on("request", lambda request: None if request.url == path.as_uri() else asked.append(request.url))
    page.goto(path.as_uri(), wait_until="load")
    return page


def _timed(browser: Any, path: Path, asked: list[str]) -> tuple[float, float]:
    """Median seconds until it is open, median milliseconds of a filter."""
    seconds, milliseconds = [], []
    for _ in range(LOADS):
        page = _opened(browser, path, asked)
        page.wait_for_timeout(100)
        seconds.append(page.evaluate(OPENED))
        milliseconds += [page.evaluate(FILTER, word) for word in WORDS]
        page.close()
    return statistics.median(seconds), statistics.median(milliseconds)


def _walked(browser: Any, path: Path, asked: list[str]) -> set[str]:
    page = _opened(browser, path, asked, COUNT)
    found = set(walked(page)["found"])
    page.close()
    return found
