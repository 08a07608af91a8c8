"""The gate: each rule holds and breaks, and terminal, JSON, JUnit and Markdown say the same of it."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from dreamgym_kit.errors import UserError
from dreamgym_kit.report.gating import gate_of, gate_to_record
from dreamgym_kit.report.headline import stamp
from dreamgym_kit.report.junit import junit
from dreamgym_kit.report.markdown import code, markdown, plain
from dreamgym_kit.report.summary import Summary, summarise
from dreamgym_kit.report.terminal import render_run
from dreamgym_kit.report.unmatched import unmatched
from dreamgym_kit.settings.model import GateSettings
from dreamgym_kit.vocabulary import (
    Answer,
    Call,
    Effect,
    Episode,
    Finding,
    Provenance,
    Transition,
    Verdict,
    World,
)

HOSTILE = "<img src=x onerror=alert(1)> | @all `a` [x](http://e.vil) \x1b[31m\x00 #12 ]]>"
REPEATED = Finding("repeated_write", "refund_payment P1 called twice", (2, 3), "critical")
FAILED = Finding("detector_failed", "the detector big failed: KeyError")


def step(number: int, tool: str, effect: Effect = Effect.DESTRUCTIVE) -> Transition:
    return Transition(Call(tool, {}), Answer("x", Provenance.RECORDED), effect, "e", number)


def episode(task: str, *tools: str, verdict: Verdict = Verdict.SUCCESS, **more: object) -> Episode:
    steps = tuple(step(number, tool) for number, tool in enumerate(tools, start=1))
    more = {"reason": "checked", "elapsed_s": 1.5, "cost_usd": 0.25} | more
    return Episode(f"{task}.1", task, 1, World(), verdict, transitions=steps, **more)


def run(gate: GateSettings | None = None, *more: Episode, **facts: object) -> Summary:
    episodes = [
        episode("good", "get_order", "send_mail"),
        episode("bad", "refund_payment", "refund_payment", verdict=Verdict.FAILURE, reason="twice"),
        episode("dim", verdict=Verdict.UNDETERMINED, reason="not known"),
        *more,
    ]
    record = gate_to_record(gate or GateSettings())
    return summarise(episodes, {"mode": "dream", "graph": "desk:graph", "gate": record, **facts})


@pytest.mark.parametrize(
    ("gate", "broken"),
    [
        ({}, None),
        ({"success": 0.5}, None),
        ({"success": 0.51}, "success is 50 %, the gate asks for 51 %"),
        ({"success_low": 0.09}, None),
        ({"success_low": 0.1}, "the lower bound of success is 9.5 %, the gate asks for 10 %"),
        ({"undetermined": 0.34}, None),
        ({"undetermined": 0.3}, "1 of 3 episodes are undetermined (33.3 %)"),
        ({"contradictions": 0}, None),
        ({"forbid": ("delete_*",)}, None),
        ({"forbid": ("send_*",)}, "the agent called send_mail once, which is forbidden"),
        ({"max": {"refund_payment": 2}}, None),
        (
            {"max": {"refund_payment": 1}},
            "the agent called refund_payment twice in one episode; more than 1 in 1 episodes",
        ),
        ({"findings": ("loop",)}, None),
        ({"usd": 0.75}, None),
        ({"usd": 0.5}, "the run cost USD 0.75, the gate allows 0.50"),
        ({"seconds": 2}, None),
        ({"seconds": 1}, "the run took 2 s, the gate allows 1"),
    ],
)
def test_a_rule_holds_at_its_limit_and_breaks_beyond(gate: dict[str, object], broken: str | None) -> None:
    summary = run(GateSettings(**gate))
    wrong = [rule.why.replace("2 times", "twice") for rule in summary.rules() if not rule.passed]
    assert wrong == ([broken] if broken else [])
    assert summary.gate() is (broken is None)


def test_a_finding_breaks_the_gate_by_name_by_pattern_and_by_severity() -> None:
    repeated = episode("r", "a", "b", "b", findings=(REPEATED,))
    for kinds, passed in (
        (("repeated_write",), False),
        (("repeated_*",), False),
        (("critical",), False),
        (("loop",), True),
    ):
        summary = run(GateSettings(findings=kinds), repeated)
        assert summary.gate() is passed, kinds
    assert summary.gate(fail_on_findings=True) is False
    (rule,) = [
        rule for rule in run(GateSettings(findings=("repeated_*",)), repeated).rules() if not rule.passed
    ]
    assert (rule.why, rule.at) == ("refund_payment P1 called twice", (("r.1", 3),))


def test_a_failed_detector_passes_no_gate_that_asks_for_findings() -> None:
    blind = episode("b", findings=(FAILED,))
    assert run(GateSettings(findings=("loop",)), blind).gate() is False
    assert run(GateSettings(success=0.5), blind).gate() is True


def test_contradictions_count_answers_and_judges() -> None:
    told = Finding("contradicting_answer", "it told the user what is not so", (), "critical")
    more = (episode("c", findings=(told,)), episode("j", counts={"judges_disagree": 2}))
    assert run(GateSettings(contradictions=3), *more).gate() is True
    assert run(GateSettings(contradictions=2), *more).gate() is False


def test_a_run_that_was_stopped_or_decided_nothing_passes_no_gate_that_asks_for_something() -> None:
    assert run(GateSettings(usd=9.0), not_run=4, stopped="budget").gate() is False
    assert run(None, not_run=4).gate() is True
    nothing = summarise([], {"mode": "dream", "gate": {"success": 0.1}})
    assert [rule.why for rule in nothing.rules() if not rule.passed] == [
        "no episode was decided, so success is not known"
    ]


def test_the_gate_in_a_manifest_reads_back_the_same() -> None:
    gate = GateSettings(success=0.9, forbid=("delete_*",), max={"refund_payment": 1}, contradictions=0)
    assert gate_of(json.loads(json.dumps(gate_to_record(gate)))) == gate
    assert gate_of(None) == GateSettings()


def look(name: str) -> str:
    return f"dreamgym-kit report run --episode {name}"


def test_junit_counts_what_the_other_forms_count() -> None:
    summary = run(GateSettings(success=0.9))
    root = ElementTree.fromstring(junit(summary, look))
    tasks = next(suite for suite in root if suite.get("name") == "desk:graph")
    verdicts = {case.get("name"): case[0].tag if len(case) else "passed" for case in tasks.iter("testcase")}
    assert verdicts == {"bad": "failure", "dim": "skipped", "good": "passed"}
    assert (root.get("tests"), root.get("failures"), root.get("skipped"), root.get("time")) == (
        *("5", "2", "1", "4.500"),
    )
    said = summary.to_json()
    assert next(root.iter("property")).get("value") == said["headline"]
    (failure,) = tasks.iter("failure")
    assert failure.get("message") == "bad.1: failure: twice"
    assert "dreamgym-kit report run --episode bad.1" in str(failure.text)


def test_junit_is_red_exactly_where_the_gate_fails() -> None:
    for gate in (GateSettings(), GateSettings(success=0.5), GateSettings(success=0.9), GateSettings(usd=0.1)):
        summary = run(gate)
        root = ElementTree.fromstring(junit(summary, look))
        assert (root.get("failures") == "0") is summary.gate()


def test_one_computation_gives_text_json_junit_and_markdown() -> None:
    summary = run(GateSettings(success=0.9, forbid=("send_*",)))
    said = summary.to_json()
    text, page = render_run(summary), markdown(summary, look)
    red = {
        case.get("name")
        for case in ElementTree.fromstring(junit(summary, look)).iter("testcase")
        if len(case)
    }
    for rule in said["gate"]["rules"]:
        if not rule["passed"]:
            assert rule["rule"] in red
            assert rule["why"] in " ".join(text.split())
            assert f"**failed** `{rule['why']}`" in page
    rate = said["success"]["rate"]
    assert f"{rate:.0%}" in page
    assert f"{rate * 100:.0f} %" in text
    assert f"{said['episodes']['success']} of {said['episodes']['decided']}" in page
    assert f"{said['episodes']['success']} of {said['episodes']['decided']}" in text


def test_hostile_text_stays_text_in_both_files() -> None:
    bad = Finding("repeated_write", HOSTILE, (1,), "critical")
    hostile = episode(HOSTILE, HOSTILE, verdict=Verdict.FAILURE, reason=HOSTILE, findings=(bad,))
    summary = run(GateSettings(success=0.9), hostile)
    root = ElementTree.fromstring(junit(summary, look))
    assert {element.tag for element in root.iter()} == {
        *("testsuites", "testsuite", "testcase", "failure", "skipped", "properties", "property"),
    }
    page = markdown(summary, look)
    outside = [part for line in page.splitlines() for part in line.split("`")[::2]]
    assert not any(mark in part for part in outside for mark in ("<img", "](http", "@all"))
    assert all(ord(letter) < 127 and (letter >= " " or letter == "\n") for letter in page)
    width = {line.replace("\\|", "").count("|") for line in page.splitlines() if line.startswith("|")}
    assert width <= {5, 6, 7}


def test_marks_are_escaped() -> None:
    assert plain("a*b @x #1 <b>") == "a\\*b @<!-- -->x \\#<!-- -->1 &lt;b&gt;"
    assert code("a`b|c") == "`a'b\\|c`"


def test_a_killed_run_is_not_judged_by_the_few_episodes_that_ended() -> None:
    """It left no report of its own end, so what is missing is counted from what was asked for."""
    asked = {"about": {"tasks": 50}, "matters": {"n": 2}}
    good = [episode("good", "get_order"), episode("also", "get_order")]

    def killed(gate: GateSettings) -> Summary:
        return summarise(good, {"mode": "dream", "graph": "g", "gate": gate_to_record(gate), **asked})

    summary = killed(GateSettings())
    assert summary.headline == "It passes: 2 tasks, no anomaly; 98 of 100 episodes were never run."
    assert stamp(summary)[1] == "UNDETERMINED"
    broken = [rule.rule for rule in killed(GateSettings(success=0.9)).rules() if not rule.passed]
    assert broken == ["all episodes"]


def test_markdown_says_what_the_terminal_says_where_no_rule_was_asked_for() -> None:
    seen = episode("seen", "refund_payment", findings=(REPEATED,))
    assert markdown(run(None, seen), str).startswith("## Look at this: ")
    good = summarise([episode("good")], {"mode": "dream"})
    assert markdown(good, str).startswith("## Gate passed: ")
    dim = summarise([episode("dim", verdict=Verdict.UNDETERMINED, reason="not known")], {"mode": "dream"})
    assert markdown(dim, str).startswith("## Undetermined: ")


@pytest.mark.parametrize(
    ("gate", "broken"),
    [
        ({"usd": 0.001}, "the run cost USD 0.004, the gate allows 0.001"),
        ({"usd": 0.0}, "the run cost USD 0.004, the gate allows 0.00"),
        ({"seconds": 1.2}, "the run took 1.4 s, the gate allows 1.2"),
        ({"success": 0.9}, "success is 89.98 %, the gate asks for 90 %"),
        ({"undetermined": 0.1}, "1002 of 10002 episodes are undetermined (10.02 %)"),
    ],
)
def test_a_figure_is_never_rounded_onto_the_limit_that_it_misses(
    gate: dict[str, object], broken: str
) -> None:
    summary = summarise(
        [episode("a", elapsed_s=1.4, cost_usd=0.004)], {"gate": gate_to_record(GateSettings(**gate))}
    )
    lines = {"success": (2998, 334, 0), "undetermined": (9000, 0, 1002)}.get(next(iter(gate)))
    if lines is not None:
        verdicts = (Verdict.SUCCESS, Verdict.FAILURE, Verdict.UNDETERMINED)
        counted = zip(verdicts, lines, strict=True)
        many = [replace(summary.episodes[0], verdict=one) for one, times in counted for _ in range(times)]
        summary = replace(summary, episodes=tuple(many))
    assert [rule.why for rule in summary.rules() if not rule.passed] == [broken]


def test_a_name_in_the_gate_that_fits_nothing_is_told_beside_its_rule() -> None:
    gate = GateSettings(forbid=("delet_user",), max={"Send_mail": 1}, findings=("repeatd_write",))
    tools, kinds = ["delete_user", "send_mail"], ["repeated_write", "loop"]
    slips = unmatched(gate, tools, kinds)
    assert [sentence for _, sentence in slips] == [
        "gate: forbid 'delet_user' fits no tool of this graph; did you mean 'delete_user'?",
        "gate: max 'Send_mail' fits no tool of this graph; did you mean 'send_mail'?",
        "gate: findings 'repeatd_write' fits no kind of finding; did you mean 'repeated_write'?",
    ]
    names = [pattern for pattern, _ in slips]
    measured = [rule.measured for rule in run(gate, unmatched=names).rules()][1:]
    assert measured == ["0 calls, no such tool", "0 in an episode, no such tool", "0, no such kind"]
    assert not unmatched(GateSettings(forbid=("delete_*",), findings=("*",)), tools, kinds)


def test_a_rule_that_a_thousand_tools_break_names_a_few() -> None:
    many = episode("many", *(f"tool_{number:03}" for number in range(1000)))
    (broken,) = (rule for rule in run(GateSettings(forbid=("tool_*",)), many).rules() if not rule.passed)
    shown = "tool_000, tool_001, tool_002, tool_003, tool_004, tool_005 and 994 more"
    assert broken.why == f"the agent called {shown} 1000 times, which is forbidden"


def test_two_failures_in_a_thousand_are_never_all_of_them() -> None:
    good = [episode(f"t{number}") for number in range(1000)]
    bad = [episode(f"b{number}", verdict=Verdict.FAILURE, reason="no") for number in range(2)]
    summary = summarise([*good, *bad], {"mode": "dream"})
    assert "| 99% (99% to 100%), 1000 of 1002 |" in markdown(summary, str)
    assert "99 %  (99 to 100)" in render_run(summary)


def test_a_gate_that_somebody_edited_in_a_run_is_refused_in_words() -> None:
    for said in ({"success": "x"}, {"forbid": 5}, {"max": [1]}, {"findings": {"a": 1}}):
        with pytest.raises(UserError, match="the run's own gate: gate"):
            summarise([episode("a")], {"mode": "dream", "gate": said}).rules()
