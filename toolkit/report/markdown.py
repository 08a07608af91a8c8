"""A run as Markdown, for a pull request or `$GITHUB_STEP_SUMMARY`.

Text from tools, tasks and models stands in code spans, or with every mark escaped: it shows as itself, links
nowhere and mentions nobody.
"""

import html
import re
from collections.abc import Callable, Sequence

from dreamgym_kit.report.executed import what_to_do
from dreamgym_kit.report.headline import causes, format_broken, format_figures, format_to_answer, headline
from dreamgym_kit.report.metrics import CRITICAL, MARKS, EpisodeLine, FindingGroup, RunMetrics, ToolUse
from dreamgym_kit.report.sanitize import one_line, shown
from dreamgym_kit.types import Effect

_MARKS = re.compile(r"([\\`*_{}\[\]()#+\-.!|~^:/$=])")
_MOST = 20  # rows of a table


def markdown(summary: RunMetrics, look: Callable[[str], str]) -> str:
    """Give the page; `look` is the command that shows an episode."""
    parts = [
        f"## {plain(headline(summary))}",
        "\n".join(f"- {plain(line)}" for line in format_broken(summary.rules())),
        _executed(summary, look),
        _figures(summary),
        _rules(summary),
        _findings(summary),
        _effects(summary),
        _tasks(summary, look),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def plain(text: str) -> str:
    """Text with every mark of Markdown and HTML escaped, on one line."""
    escaped = html.escape(_MARKS.sub(r"\\\1", one_line(text)), quote=False)
    return escaped.replace("@", "@<!-- -->").replace("\\#", "\\#<!-- -->")


def quiet(text: str) -> str:
    """One line whose characters mean themselves, still readable as plain text; links may light up."""
    return re.sub(r"([\\`*_{}\[\]<>#|!&])", r"\\\1", one_line(text))


def code(text: str, *, width: int = 200) -> str:
    """Text in a code span that fits in a table."""
    inner = shown(text, width).replace("`", "'").replace("|", "\\|")
    return f"`{inner}`" if inner else ""


def _figures(summary: RunMetrics) -> str:
    rows = [(plain(label), plain(text)) for label, text in format_figures(summary)]
    why = [f"- {plain(str(cause))}" for cause in causes(summary)[:_MOST]]
    answer = format_to_answer(summary)
    block = ["", "```text", *answer, "```"] if answer else []
    return "\n".join([*_table(("figure", ""), rows), *([""] if why else []), *why, *block])


def _executed(summary: RunMetrics, look: Callable[[str], str]) -> str:
    """Real calls that ran, and what to do next."""
    rows = [
        (code(str(call)), code(episode), plain(call.how), code(look(episode)))
        for episode, call in summary.executed
    ]
    steps = [f"- {plain(step)}" for step in what_to_do(summary)]
    return "\n".join([*_table(("executed", "episode", "how", "look"), rows), "", *steps]) if rows else ""


def _rules(summary: RunMetrics) -> str:
    rows = [
        (
            code(rule.key),
            plain(rule.measured),
            plain(rule.limit),
            "passed" if rule.passed else f"**{rule.broken}** {code(rule.why)}",
        )
        for rule in summary.rules()
    ]
    return "\n".join(_table(("gate", "measured", "limit", ""), rows, most=len(rows)))


def _findings(summary: RunMetrics) -> str:
    def row(group: FindingGroup) -> tuple[str, ...]:
        episode, step = group.at[0]
        place = f"{episode} step {step}" if step is not None else episode
        bold = "**critical** " if group.severity == CRITICAL else ""
        return f"{bold}{code(group.kind)}", str(group.count), code(place), code(group.text)

    columns = ("finding", "times", "first place", "")
    return _titled("What to look at first", columns, [row(group) for group in summary.findings])


def _effects(summary: RunMetrics) -> str:
    def row(tool: ToolUse) -> tuple[str, ...]:
        effect = f"**{tool.effect}**" if tool.effect is Effect.DESTRUCTIVE else str(tool.effect)
        return code(tool.name), effect, str(tool.calls), str(tool.episodes), str(tool.wrong)

    uses = [tool for tool in summary.tools if tool.effect.changes_environment]
    verb = "It did" if summary.recorded else "It would have called"
    return _titled(verb, ("tool", "effect", "calls", "episodes", "wrong"), [row(tool) for tool in uses])


def _tasks(summary: RunMetrics, look: Callable[[str], str]) -> str:
    def row(lines: list[EpisodeLine]) -> tuple[str, ...]:
        worst = min(lines, key=lambda line: MARKS.index(line.mark))
        marks, why = "".join(line.mark for line in lines), worst.anomaly or f"{worst.verdict}: {worst.reason}"
        return code(worst.task), code(marks), code(why), code(look(worst.id))

    wrong = [row(lines) for lines in summary.tasks.values() if any(line.mark != "." for line in lines)]
    return _titled("Tasks that did not pass", ("task", "episodes", "why", "look"), wrong)


def _titled(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([f"### {title}", "", *_table(columns, rows)]) if rows else ""


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, most: int = _MOST) -> list[str]:
    """The lines of a table, and how many rows more there are."""
    more = ["", f"{len(rows) - most} more."] if len(rows) > most else []
    return [_line(columns), "|" + " --- |" * len(columns), *map(_line, rows[:most]), *more]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
