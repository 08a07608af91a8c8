"""A run for other programs: Markdown (a pull request, `$GITHUB_STEP_SUMMARY`) and JUnit XML (CI systems).

Text from tools, tasks and models is put in code spans or escaped: it appears literally, without links or
mentions.

In JUnit each task and each gate rule is a test case. It fails only if the run did not pass: a failed task
under a gate that passes (such as 90% required) is skipped, with the reason. A task with an error is an error;
an inconclusive one is skipped, or an error if it broke the gate.
"""

import html
import re
from collections.abc import Callable, Iterable, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from dreamgym_kit.report.gate_rules import REAL, executed_sentence, what_to_do
from dreamgym_kit.report.headline import (
    causes,
    format_broken,
    format_faults,
    format_figures,
    format_guard,
    format_pass_rate,
    format_to_answer,
    headline,
)
from dreamgym_kit.report.metrics import CRITICAL, MARKS, EpisodeLine, FindingGroup, RunMetrics, ToolUse
from dreamgym_kit.report.sanitize import clean, one_line, shown
from dreamgym_kit.types import Effect, Verdict

_MARKS = re.compile(r"([\\`*_{}\[\]()#+\-.!|~^:/$=])")
_MOST = 20  # rows of a table


def markdown(summary: RunMetrics, look: Callable[[str], str]) -> str:
    """Format the run as Markdown; `look` returns the command that shows an episode."""
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
    """Escape all Markdown and HTML characters, on one line."""
    escaped = html.escape(_MARKS.sub(r"\\\1", one_line(text)), quote=False)
    return escaped.replace("@", "@<!-- -->").replace("\\#", "\\#<!-- -->")


def quiet(text: str) -> str:
    """Escape to one line that is readable as plain text, too; URLs may become links."""
    return re.sub(r"([\\`*_{}\[\]<>#|!&])", r"\\\1", one_line(text))


def code(text: str, *, width: int = 200) -> str:
    """Return a code span that fits in a table."""
    inner = shown(text, width).replace("`", "'").replace("|", "\\|")
    return f"`{inner}`" if inner else ""


def _figures(summary: RunMetrics) -> str:
    rows = [(plain(label), plain(text)) for label, text in format_figures(summary)]
    why = [f"- {plain(str(cause))}" for cause in causes(summary)[:_MOST]]
    answer = format_to_answer(summary)
    block = ["", "```text", *answer, "```"] if answer else []
    return "\n".join([*_table(("figure", ""), rows), *([""] if why else []), *why, *block])


def _executed(summary: RunMetrics, look: Callable[[str], str]) -> str:
    """Format executed real calls, and what to do next."""
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
    """Format a table, and the number of omitted rows."""
    more = ["", f"{len(rows) - most} more."] if len(rows) > most else []
    return [table([columns, *rows[:most]]), *more]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Format a table of escaped cells; the first row is its head."""
    head, *others = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *others))


def bullets(sentences: Iterable[str]) -> str:
    """Format sentences as a list, escaped by `quiet`."""
    return "\n".join(f"- {quiet(sentence)}" for sentence in sentences)


_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LONGEST = 2_000  # characters of one text


def junit(summary: RunMetrics, look: Callable[[str], str]) -> str:
    """Format the run as JUnit XML.

    Args:
        summary: the run.
        look: returns the command that shows an episode.
    """
    run = summary.verdict
    name = str(summary.fact("graph") or "dreamgym-kit")
    root = Element("testsuites", name=_xml(f"dreamgym-kit {name}"))
    rules = _suite(root, "gate")
    for rule in summary.rules():
        case = SubElement(rules, "testcase", classname="gate", name=_xml(rule.key), time="0.000")
        if not rule.passed:
            where = "\n".join(look(episode) for episode, _ in dict.fromkeys(rule.at[:20]))
            where += "".join(f"\n{step}" for step in what_to_do(summary)) if rule.key == REAL else ""
            text = f"measured {rule.measured}, {rule.limit}\n{where}"
            message = _xml(rule.why or f"{rule.measured}, {rule.limit}")
            if rule.broken is Verdict.FAILED:
                SubElement(case, "failure", message=message, type="gate").text = _xml(text)
            else:
                SubElement(case, "error", message=message, type=str(rule.broken)).text = _xml(text)
    tasks = _suite(root, name)
    for task, lines in summary.tasks.items():
        _task(tasks, name, task, lines, look, run)
    properties = Element("properties")
    SubElement(properties, "property", name="headline", value=_xml(headline(summary)))
    SubElement(properties, "property", name="pass_rate", value=_xml(format_pass_rate(summary)))
    if guard := format_guard(summary):
        SubElement(properties, "property", name="guard", value=_xml(guard))
    if summary.executed:
        SubElement(properties, "property", name="executed", value=_xml(executed_sentence(summary)))
    if summary.faults:
        SubElement(properties, "property", name="faults", value=_xml(format_faults(summary)))
    tasks.insert(0, properties)
    _count(root)
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=False).join(
        ('<?xml version="1.0" encoding="UTF-8"?>\n', "\n")
    )


def _suite(root: Element, name: str) -> Element:
    return SubElement(root, "testsuite", name=_xml(name))


def _task(
    suite: Element,
    graph: str,
    task: str,
    lines: Sequence[EpisodeLine],
    look: Callable[[str], str],
    run: Verdict,
) -> None:
    seconds = sum(line.elapsed_s for line in lines)
    case = SubElement(suite, "testcase", classname=_xml(graph), name=_xml(task), time=f"{seconds:.3f}")
    worst = min(lines, key=lambda line: MARKS.index(line.mark))
    if worst.mark == ".":
        return
    wrong = [line for line in lines if line.mark != "."]
    text = "\n".join(f"{_format(line)}\n  {look(line.id)}" for line in wrong[:20])
    if worst.mark == "-":
        kind = "error" if run is Verdict.INCONCLUSIVE else "skipped"
        element = SubElement(case, kind, message=_xml(f"inconclusive: {worst.reason}"))
        if kind == "error":
            element.set("type", "inconclusive")
        element.text = _xml(text)
    elif run is Verdict.PASSED:
        SubElement(case, "skipped", message=_xml(f"the gate allows it: {_format(worst)}")).text = _xml(text)
    elif worst.mark == "E":
        SubElement(case, "error", message=_xml(_format(worst)), type="error").text = _xml(text)
    else:
        kind = "finding" if worst.mark == "!" else "failure"
        SubElement(case, "failure", message=_xml(_format(worst)), type=kind).text = _xml(text)


def _format(line: EpisodeLine) -> str:
    step = f" step {line.anomaly_step}" if line.anomaly_step is not None else ""
    mark = "! " if line.anomaly is not None else ""
    verdict = "" if line.verdict is Verdict.PASSED and line.anomaly else f"{line.verdict}: "
    why = f"{mark}{verdict if line.anomaly is None else ''}{line.anomaly or line.reason}"
    return f"{line.id}{step}: {why}{f' (blame: {line.blame})' if line.blame is not None else ''}"


def _count(root: Element) -> None:
    """Set the totals on each suite and on the root."""
    for element in (*root, root):
        cases = element.findall(".//testcase")
        outcomes = {"failures": "failure", "errors": "error", "skipped": "skipped"}
        element.set("tests", str(len(cases)))
        for name, outcome in outcomes.items():
            element.set(name, str(sum(case.find(outcome) is not None for case in cases)))
        element.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")


def _xml(text: str) -> str:
    """Remove characters that are not valid in XML or unsafe in a log; the writer escapes the rest."""
    plain = clean(_NOT_XML.sub("\ufffd", text))
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}..."
