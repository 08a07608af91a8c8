"""Puts the page together: template, style, script and the two blocks of data, in one file.

Nothing of a run becomes markup. Data stands in JSON blocks with `& < >` and the line separators escaped,
so that no text can end its block; the script enters it as text nodes. The content security policy allows
exactly this style and this script, by hash, and nothing else: no request, no frame, no form. All marks are
replaced in one pass, so a mark inside the data stays what it is.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from dreamgym_kit.plain import JsonValue

SCRIPTS = (
    *("dom", "data", "signs", "verdict", "effects", "trust", "costs"),
    *("episodes", "step", "siblings", "episode", "compare", "training"),
    "routes",
)
_MARK = re.compile(r"@@(style-hash|script-hash|style|script|report|episodes)@@")
_ESCAPED = {ord(char): f"\\u{ord(char):04x}" for char in "&<>\u2028\u2029"}
SCHEMA = 2  # of the data of every page; its script reads this one only


def document(report: Mapping[str, JsonValue], episodes: Mapping[str, JsonValue]) -> str:
    """Give the page.

    Args:
        report: what the first screens need; see `overview.overview`.
        episodes: the packed steps of all episodes; see `packing.packed`.

    Raises:
        ValueError: a number in the data is not finite.
    """
    style, script = source("report.css"), script_text()
    parts = {
        "style-hash": _hash(style),
        "script-hash": _hash(script),
        "style": style,
        "script": script,
        "report": as_block(report),
        "episodes": as_block(episodes),
    }
    return _MARK.sub(lambda mark: parts[mark[1]], source("report.html"))


def as_block(value: JsonValue) -> str:
    """Spell data for a `<script type="application/json">`: valid JSON that holds no markup."""
    spelled = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # a lone surrogate has no UTF-8 form, and no place in a link
    return spelled.encode("utf-8", "replace").decode("utf-8").translate(_ESCAPED)


@cache
def script_text() -> str:
    """The script: one file an idea, read in this order, in one scope that nobody else can enter."""
    parts = "\n".join(source(f"script/{name}.js") for name in SCRIPTS)
    return f"(() => {{\n'use strict';\n{parts}}})();\n"


@cache
def source(name: str) -> str:
    """One of the files that the page is made of, from the installed package."""
    return files(__package__).joinpath(name).read_text("utf-8").replace("\r\n", "\n")


def _hash(text: str) -> str:
    """The name of an inline style or script in a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
