"""A run as JUnit XML, the form that CI systems show: a task a test case, a rule of the gate a test case.

Red exactly when the run did not pass: a task that failed under a gate that holds (it asks for 90 %, say) is
shown as skipped, with the reason. A task with an error is an error; an inconclusive one is skipped, or an
error where the gate broke for it.
"""

import re
from collections.abc import Callable, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from dreamgym_kit.report.executed import executed_sentence, what_to_do
from dreamgym_kit.report.gate_rules import REAL
from dreamgym_kit.report.headline import format_faults, format_guard, format_pass_rate, headline
from dreamgym_kit.report.metrics import MARKS, EpisodeLine, RunMetrics
from dreamgym_kit.report.sanitize import clean
from dreamgym_kit.types import Verdict

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LONGEST = 2_000  # characters of one text


def junit(summary: RunMetrics, look: Callable[[str], str]) -> str:
    """Give the XML.

    Args:
        summary: the run.
        look: the command that shows an episode.
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
    return f"{line.id}{step}: {mark}{verdict if line.anomaly is None else ''}{line.anomaly or line.reason}"


def _count(root: Element) -> None:
    """Write the totals where readers expect them: on each suite and on the whole."""
    for element in (*root, root):
        cases = element.findall(".//testcase")
        outcomes = {"failures": "failure", "errors": "error", "skipped": "skipped"}
        element.set("tests", str(len(cases)))
        for name, outcome in outcomes.items():
            element.set(name, str(sum(case.find(outcome) is not None for case in cases)))
        element.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")


def _xml(text: str) -> str:
    """What XML can hold and a log can show; the writer escapes the rest."""
    plain = clean(_NOT_XML.sub("\ufffd", text))
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}..."
