"""Make text from tools, tasks and models safe for a terminal, so that it shows as it is.

Control characters can move the cursor, rename the window, write the clipboard or start a hidden link;
bidirectional and zero-width ones change how a text reads. All are removed except newline and tab. Terminal
output is otherwise ASCII: other characters are escaped, because a log's encoding is unknown.
"""

import re

_SEQUENCES = re.compile(
    r"""
    \x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]             # CSI: colors, cursor
    | \x1b[\]PX^_][^\x07\x1b\x9c\n]{0,4096}(\x07|\x1b\\|\x9c)   # OSC, DCS and the like, up to their end
    | \x1b[@-Z\\-_a-z]
    | \x9b[0-?]{0,64}[ -/]{0,8}[@-~]             # the same with C1 bytes
    | \x9d[^\x07\x1b\x9c\n]{0,4096}(\x07|\x1b\\|\x9c)
    """,
    re.VERBOSE,
)
_CONTROLS = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but \n and \t, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional
    "\u00ad\u180e\u200b-\u200d\u2060-\u2065\u206a-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb"  # zero-width
    "\u2028\u2029"  # line ends that are no newline
    "\U000e0000-\U000e0fff"  # tags and further selectors: invisible text
    "]"
)
_LINE_ENDS = re.compile(r"(?<![ \t])[ \t]*\n\s*|\t|\u0085")


def clean(text: str) -> str:
    """Remove characters that do not show as themselves; newlines and tabs stay."""
    return _CONTROLS.sub("", _SEQUENCES.sub("", text))


def one_line(text: str) -> str:
    """Return one line of printable ASCII: cleaned, escaped, with spaces for line ends and tabs."""
    folded = _LINE_ENDS.sub(" ", clean(text.replace("\r", "\n"))).strip()
    return folded.encode("ascii", "backslashreplace").decode("ascii")


def cut_middle(text: str, width: int) -> str:
    """Shorten `text` to at most `width` characters, keeping its start and end."""
    if len(text) <= width:
        return text
    if width < 8:
        return text[: max(width, 0)]
    head = (width - 3 + 1) // 2
    return f"{text[:head]}...{text[len(text) - (width - 3 - head) :]}"


def shown(text: str, width: int) -> str:
    """Return one printable ASCII line of at most `width` characters."""
    return cut_middle(one_line(text[: 4 * width + 4096] if len(text) > 10_000 else text), width)
