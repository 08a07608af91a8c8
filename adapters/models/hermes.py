r"""Tool calls in an answer, as Hermes writes them: `<tool_call>\n{"name", "arguments"}\n</tool_call>`.

What is no whole and valid call stays part of the content: the agent and its parser see what the model wrote.
"""

import json
from dataclasses import dataclass

from dreamgym_kit.chat import ToolRequest
from dreamgym_kit.errors import NotJson
from dreamgym_kit.jsonread import read_json

_OPENS, _CLOSES = "<tool_call>", "</tool_call>"
_MOST = 2**20  # characters of one call


@dataclass(frozen=True, slots=True)
class Said:
    """An answer taken apart."""

    content: str
    calls: tuple[ToolRequest, ...]


def read_said(text: str, turn: str) -> Said:
    """Take an answer's text apart; one malformed call leaves all of it as content.

    The text before the first call is the content, without the line's end that the form puts between.
    `turn` goes into the calls' ids, which no other turn of the conversation may have.
    """
    outside, inside = _apart(text)
    calls = [_call(one.strip(), f"call_{turn}_{number}") for number, one in enumerate(inside)]
    whole = [one for one in calls if one is not None]
    if not whole or len(whole) < text.count(_OPENS):
        return Said(text, ())
    before, after = outside[0], "".join(outside[1:]).strip()
    content = before.removesuffix("\n") + (f"\n{after}" if after else "")
    return Said(content if content.strip() else "", tuple(whole))


def _apart(text: str) -> tuple[list[str], list[str]]:
    """What stands outside of the marks of calls, and what stands within each pair of them."""
    outside, inside, at = list[str](), list[str](), 0
    while (opens := text.find(_OPENS, at)) >= 0 and (closes := text.find(_CLOSES, opens)) >= 0:
        outside.append(text[at:opens])
        inside.append(text[opens + len(_OPENS) : closes])
        at = closes + len(_CLOSES)
    return [*outside, text[at:]], inside


def _call(text: str, name: str) -> ToolRequest | None:
    try:
        said = read_json(text, max_bytes=_MOST)
    except NotJson:
        return None
    if not isinstance(said, dict) or not isinstance(said.get("name"), str) or not said["name"]:
        return None
    args = said.get("arguments", {})
    if not isinstance(args, dict):
        return None
    return ToolRequest(said["name"], json.dumps(args, ensure_ascii=False), name)
