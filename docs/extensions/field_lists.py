"""Lets autodoc tell the fields of records and the members of enums, with what their comments say."""

import re
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from docutils import nodes
from field_comments import field_comments
from sphinx.application import Sphinx

BEFORE_NAPOLEON = 400


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _add_fields, priority=BEFORE_NAPOLEON)
    app.connect("doctree-read", _draw_dashes)
    return {"parallel_read_safe": True}


def _draw_dashes(_app: Sphinx, doctree: nodes.document) -> None:
    """Between a parameter and its sentence; elsewhere two hyphens begin a flag and stay."""
    for between in list(
        doctree.findall(lambda node: isinstance(node, nodes.Text) and node.astext() == " -- ")
    ):
        between.parent.replace(between, nodes.Text(" \u2013 "))


def _add_fields(_app: Sphinx, what: str, _name: str, thing: object, _options: Any, lines: list[str]) -> None:
    if what != "class" or not isinstance(thing, type):
        return
    comments = field_comments(thing)
    if issubclass(thing, Enum):
        lines += ["", *(f"- ``{member.value}``{_said(comments.get(member.name))}" for member in thing), ""]
    elif is_dataclass(thing):
        told = [known.name for known in fields(thing) if known.name in comments]
        lines += (
            ["", "Args:", *(f"    {name}: {_escaped(comments[name])}" for name in told), ""] if told else []
        )


def _said(comment: str | None) -> str:
    return f": {_escaped(comment)}" if comment else ""


def _escaped(comment: str) -> str:
    return re.sub(r"[*|_\\]", r"\\\g<0>", comment) if "`" not in comment else comment
