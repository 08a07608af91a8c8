"""A run as Markdown, for a pull request or `$GITHUB_STEP_SUMMARY`.

Text from tools, tasks and models stands in code spans, or with every mark escaped: it shows as itself, links
nowhere and mentions nobody.
"""

import html
import re
from collections.abc import Callable

from dreamgym_kit.report.clean import one_line, shown
from dreamgym_kit.report.executed import what_to_do
from dreamgym_kit.report.figures import CRITICAL, EFFECT_ORDER, MARKS, EpisodeLine, Summary
from dreamgym_kit.report.headline import broken_told, causes, figures_told, headline
from dreamgym_kit.vocabulary import Effect

_MARKS = re.compile(r"([\\`*_{}\[\]()#+\-.!|~^:/$=])")
_MOST = 20  # rows of a table


def markdown(summary: Summary, look: Callable[[str], str]) -> str:
    """Give the page; `look` is the command that shows an episode."""
    parts = [
        f"## {plain(headline(summary))}",
        "\n".join(f"- {plain(told)}" for told in broken_told(summary.rules())),
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


def _figures(summary: Summary) -> str:
    rows = _head("figure", "")
    rows += [f"| {plain(label)} | {plain(told)} |" for label, told in figures_told(summary)]
    why = [f"- {plain(str(cause))}" for cause in causes(summary)[:_MOST]]
    return "\n".join([*rows, *([""] if why else []), *why])


def _executed(summary: Summary, look: Callable[[str], str]) -> str:
    """Real calls that ran, and what to do next."""
    if not summary.executed:
        return ""
    rows = _head("executed", "episode", "how", "look")
    for episode, call in summary.executed[:_MOST]:
        rows.append(f"| {code(str(call))} | {code(episode)} | {plain(call.how)} | {code(look(episode))} |")
    steps = [f"- {plain(told)}" for told in what_to_do(summary)]
    return "\n".join([*rows, *_more(len(summary.executed)), "", *steps])


def _head(*columns: str) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]


def _rules(summary: Summary) -> str:
    rows = _head("gate", "measured", "limit", "")
    for rule in summary.rules():
        verdict = "passed" if rule.passed else f"**{rule.broken}** {code(rule.why)}"
        rows.append(f"| {code(rule.key)} | {plain(rule.measured)} | {plain(rule.limit)} | {verdict} |")
    return "\n".join(rows)


def _findings(summary: Summary) -> str:
    if not summary.findings:
        return ""
    rows = [
        "### What to look at first",
        "",
        "| finding | times | first place | |",
        "| --- | --- | --- | --- |",
    ]
    for group in summary.findings[:_MOST]:
        episode, step = group.at[0]
        place = f"{episode} step {step}" if step is not None else episode
        bold = "**critical** " if group.severity == CRITICAL else ""
        rows.append(f"| {bold}{code(group.kind)} | {group.count} | {code(place)} | {code(group.text)} |")
    return "\n".join([*rows, *_more(len(summary.findings))])


def _effects(summary: Summary) -> str:
    uses = [tool for tool in summary.tools if tool.effect.changes_world]
    if not uses:
        return ""
    verb = "It did" if summary.recorded else "It would have called"
    uses.sort(key=lambda tool: (EFFECT_ORDER.index(tool.effect), -tool.calls))
    rows = [
        f"### {verb}",
        "",
        "| tool | effect | calls | episodes | wrong |",
        "| --- | --- | --- | --- | --- |",
    ]
    for tool in uses[:_MOST]:
        effect = f"**{tool.effect}**" if tool.effect is Effect.DESTRUCTIVE else str(tool.effect)
        rows.append(f"| {code(tool.name)} | {effect} | {tool.calls} | {tool.episodes} | {tool.wrong} |")
    return "\n".join([*rows, *_more(len(uses))])


def _tasks(summary: Summary, look: Callable[[str], str]) -> str:
    wrong = [lines for lines in summary.tasks.values() if any(line.mark != "." for line in lines)]
    if not wrong:
        return ""
    rows = [
        "### Tasks that did not pass",
        "",
        "| task | episodes | why | look |",
        "| --- | --- | --- | --- |",
    ]
    for lines in wrong[:_MOST]:
        worst = min(lines, key=lambda line: MARKS.index(line.mark))
        marks = "".join(line.mark for line in lines)
        rows.append(f"| {code(worst.task)} | {code(marks)} | {code(_why(worst))} | {code(look(worst.id))} |")
    return "\n".join([*rows, *_more(len(wrong))])


def _why(line: EpisodeLine) -> str:
    return line.anomaly or f"{line.verdict}: {line.reason}"


def _more(count: int) -> list[str]:
    return ["", f"{count - _MOST} more."] if count > _MOST else []
