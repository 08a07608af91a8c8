"""A short report as Markdown and as one HTML file, from the same blocks. No script, no network.

All text is data: none of its marks count in either form.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from dreamgym_kit.report.clean import one_line
from dreamgym_kit.report.markdown import quiet

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem;
       color: #1b1f24; background: #fff; color-scheme: light dark; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.lead { font-size: 1.1rem; border-left: 4px solid #8a8f98; padding-left: .8rem; }
.lead.good { border-color: #1a7f37; } .lead.bad { border-color: #b35900; }
table { border-collapse: collapse; margin: 1rem 0; }
th { overflow-wrap: normal; }
td, th { border: 1px solid #d0d7de; padding: .3rem .6rem; text-align: left; }
pre { background: #f6f8fa; padding: .8rem; white-space: pre-wrap; }
@media (prefers-color-scheme: dark) {
  body { color: #e6edf3; background: #0d1117; }
  td, th { border-color: #30363d; } pre { background: #161b22; } }
"""


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a part."""

    text: str


@dataclass(frozen=True, slots=True)
class Lead:
    """What it comes to: the sentence for whoever reads no further."""

    text: str
    good: bool


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Points:
    """A list of sentences."""

    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below a head."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to paste."""

    lines: Sequence[str]


Block = Heading | Lead | Paragraph | Points | Table | Code


def as_markdown(title: str, blocks: Sequence[Block]) -> str:
    """The report as Markdown."""
    return "\n\n".join([f"# {quiet(title)}", *(_markdown(block) for block in blocks)]) + "\n"


def as_html(title: str, blocks: Sequence[Block]) -> str:
    """The report as one HTML file."""
    body = "\n".join(_html(block) for block in blocks)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{_text(title)}</h1>\n{body}\n</body></html>\n"
    )


def _markdown(block: Block) -> str:
    match block:
        case Heading(text):
            return f"## {quiet(text)}"
        case Lead(text):
            return f"**{quiet(text)}**"
        case Paragraph(text):
            return quiet(text)
        case Points(texts):
            return "\n".join(f"- {quiet(text)}" for text in texts)
        case Table(head, rows):
            lines = [head, ["---"] * len(head), *rows]
            return "\n".join(f"| {' | '.join(map(quiet, line))} |" for line in lines)
        case Code(lines):
            return "\n".join(f"    {one_line(line)}" for line in lines)


def _html(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{_text(text)}</h2>"
        case Lead(text, good):
            return f'<p class="lead {"good" if good else "bad"}">{_text(text)}</p>'
        case Paragraph(text):
            return f"<p>{_text(text)}</p>"
        case Points(texts):
            return f"<ul>{''.join(f'<li>{_text(text)}</li>' for text in texts)}</ul>"
        case Table(head, rows):
            cells = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in head)
            lines = "".join(f"<tr>{''.join(f'<td>{_text(one)}</td>' for one in row)}</tr>" for row in rows)
            return f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"
        case Code(lines):
            return f"<pre>{_text(chr(10).join(map(one_line, lines)), keep=True)}</pre>"


def _text(text: str, *, keep: bool = False) -> str:
    return html.escape(text if keep else one_line(text), quote=True)
