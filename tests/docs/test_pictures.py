"""The picture of the terminal shows what the demo prints today."""

import html
import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest
from docblocks.reading import DOCS

VARYING = re.compile(r"\d+\.\d\s+s|\d+(?::\d\d)+|desk-[0-9a-f]{4}|\d{4}-\d\d-\d\d")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def signs(text: str) -> str:
    """What is said, without times, names of runs, and the gaps that a drawing makes."""
    return re.sub(r"\s", "", VARYING.sub("...", text))


def drawn(svg: str) -> list[str]:
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


@pytest.mark.slow
def test_the_picture_of_the_terminal_is_what_the_demo_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    printed = pictures._in_terminal(["dreamgym-kit", "demo", "--keep", "demo"], tmp_path)
    shown = drawn((DOCS / "images" / "demo.svg").read_text("utf-8"))
    said = f"dreamgym-kit demo $ dreamgym-kit demo {COLOUR.sub('', printed)}"
    assert signs("".join(shown)) == signs(said), "run: python docs/pictures.py"
