"""The gate: each rule holds and breaks, and terminal, JSON, JUnit and Markdown say the same of it."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from each_row import each_row
from pages import runs
from pages.runs import call

from dreamgym_kit.errors import UserError
from dreamgym_kit.report.documents import junit, markdown, plain
from dreamgym_kit.report.gate_rules import gate_from_record, gate_to_record, unmatched
from dreamgym_kit.report.summary import RunMetrics, summarize
from dreamgym_kit.report.terminal import render_run
from dreamgym_kit.settings.schema import NO_GATE, GateSettings
from dreamgym_kit.types import Effect, Episode, Finding, Verdict

HOSTILE = "<img src=x onerror=alert(1)> | @all `a` [x](http://e.vil) \x1b[31m\x00 #12 ]]>"
REPEATED = Finding("repeated_write", "refund_payment P1 called twice", (2, 3), "critical")
FAILED = Finding("detector_failed", "the detector big failed: KeyError")


def episode(task: str, *tools: str, verdict: Verdict = Verdict.PASSED, **more: object) -> Episode:
    steps = tuple(call(at, tool, {}, effect=Effect.DESTRUCTIVE) for at, tool in enumerate(tools, start=1))
    more = {"reason": "checked", "elapsed_s": 1.5, "cost_usd": 0.25, "transitions": steps} | more
    return runs.episode(task, 1, verdict, **more)


def run(gate: GateSettings | None = None, *more: Episode, **facts: object) -> RunMetrics:
    episodes = [
        episode("good", "get_order", "send_mail"),
        episode("bad", "refund_payment", "refund_payment", verdict=Verdict.FAILED, reason="twice"),
        episode("dim", verdict=Verdict.INCONCLUSIVE, reason="not known"),
        *more,
    ]
    record = gate_to_record(gate or NO_GATE)
    return summarize(episodes, {"mode": "dream", "graph": "desk:graph", "gate": record, **facts})


ASKS_NOTHING = {"min_pass_rate": None, "max_inconclusive": None}


def gate_of_rules(**rules: object) -> GateSettings:
    """Only these rules, and that no episode may be an error."""
    return GateSettings(**{**ASKS_NOTHING, **rules})


@each_row(
    ("gate", "broken", "verdict"),
    [
        ({}, None, Verdict.PASSED),
        ({"min_pass_rate": 0.5}, None, Verdict.PASSED),
        ({"min_pass_rate": 0.51}, "the pass rate is 50%, required is 51%", Verdict.FAILED),
        ({"min_pass_rate_low": 0.09}, None, Verdict.PASSED),
        (
            {"min_pass_rate_low": 0.1},
            "the lower bound of the pass rate is 9%, required is 10%",
            Verdict.FAILED,
        ),
        ({"max_inconclusive": 0.34}, None, Verdict.PASSED),
        ({"max_inconclusive": 0.3}, "1 of 3 episodes is inconclusive", Verdict.INCONCLUSIVE),
        ({"max_contradictions": 0}, None, Verdict.PASSED),
        ({"forbid": ("delete_*",)}, None, Verdict.PASSED),
        (
            {"forbid": ("send_*",)},
            "the agent called send_mail once, which is forbidden",
            Verdict.FAILED,
        ),
        ({"max_calls_per_tool": {"refund_payment": 2}}, None, Verdict.PASSED),
        (
            {"max_calls_per_tool": {"refund_payment": 1}},
            "the agent called refund_payment twice in one episode; more than 1 in 1 episodes",
            Verdict.FAILED,
        ),
        ({"fail_on": ("loop",)}, None, Verdict.PASSED),
        ({"max_usd": 0.75}, None, Verdict.PASSED),
        ({"max_usd": 0.5}, "the run cost USD 0.75, the gate allows 0.50", Verdict.FAILED),
        ({"max_seconds": 2}, None, Verdict.PASSED),
        ({"max_seconds": 1}, "the run took 2 s, the gate allows 1", Verdict.FAILED),
    ],
)
def test_a_rule_holds_at_its_limit_and_breaks_beyond(
    gate: dict[str, object], broken: str | None, verdict: Verdict
) -> None:
    summary = run(gate_of_rules(**gate))
    wrong = [rule.why.replace("2 times", "twice") for rule in summary.rules() if not rule.passed]
    assert wrong == ([broken] if broken else [])
    assert (summary.verdict, summary.check()) == (verdict, broken is None)


@each_row(
    ("gate", "broken"),
    [
        ({"max_usd": 3.5, "max_seconds": 900}, []),
        ({"max_usd": 2.0}, ["the run cost USD 3.50, the gate allows 2.00"]),
        ({"max_seconds": 600}, ["the run took 900 s, the gate allows 600"]),
    ],
)
def test_dollars_and_seconds_are_those_of_all_parts_of_a_resumed_run(
    gate: dict[str, object], broken: list[str]
) -> None:
    summary = run(gate_of_rules(**gate), spent={"calls": 9, "usd": 3.5, "seconds": 900.0})
    assert [rule.why for rule in summary.rules() if not rule.passed] == broken


ERROR = {"verdict": Verdict.ERROR, "reason": "environment could not be set up"}


@each_row(
    ("errors", "most", "verdict"),
    [
        (0, 0, Verdict.PASSED),
        (1, 0, Verdict.ERROR),
        (1, 1, Verdict.PASSED),
        (2, 1, Verdict.ERROR),
        (1, 0.25, Verdict.PASSED),
        (1, 0.24, Verdict.ERROR),
    ],
)
def test_errors_are_allowed_by_count_or_by_share(errors: int, most: float, verdict: Verdict) -> None:
    summary = run(gate_of_rules(max_errors=most), *(episode(f"e{one}", **ERROR) for one in range(errors)))
    assert summary.verdict is verdict
    assert summary.errors == errors


def test_the_verdict_of_a_run_is_the_worst_of_its_broken_rules() -> None:
    failed = [episode("bad", verdict=Verdict.FAILED, reason="no")]
    error = [episode("broken", **ERROR)]
    dim = [episode("dim", verdict=Verdict.INCONCLUSIVE, reason="unanswered")]
    good = [episode("good")]
    for met, verdict, expected in (
        (good, Verdict.PASSED, 0),
        ([*good, *dim], Verdict.INCONCLUSIVE, 3),
        ([*good, *dim, *error], Verdict.ERROR, 4),
        ([*good, *dim, *error, *failed], Verdict.FAILED, 1),
    ):
        summary = summarize(met, {"mode": "dream", "gate": gate_to_record(GateSettings())})
        assert (summary.verdict, summary.exit_code) == (verdict, expected)


@each_row(
    ("inconclusive", "of", "verdict"),
    [
        (0, 8, Verdict.PASSED),
        (1, 8, Verdict.INCONCLUSIVE),
        (1, 9, Verdict.INCONCLUSIVE),
        (1, 10, Verdict.PASSED),
        (10, 100, Verdict.PASSED),
        (11, 100, Verdict.INCONCLUSIVE),
        (3, 3, Verdict.INCONCLUSIVE),
    ],
)
def test_more_than_a_tenth_of_inconclusive_episodes_makes_the_run_inconclusive(
    inconclusive: int, of: int, verdict: Verdict
) -> None:
    dim = [episode(f"d{n}", verdict=Verdict.INCONCLUSIVE, reason="?") for n in range(inconclusive)]
    good = [episode(f"g{n}") for n in range(of - inconclusive)]
    summary = summarize([*dim, *good], {"mode": "dream", "gate": gate_to_record(GateSettings())})
    assert summary.verdict is verdict


def test_a_finding_breaks_the_gate_by_name_by_pattern_and_by_severity() -> None:
    repeated = episode("r", "a", "b", "b", findings=(REPEATED,))
    for kinds, passed in (
        (("repeated_write",), False),
        (("repeated_*",), False),
        (("critical",), False),
        (("loop",), True),
    ):
        assert run(gate_of_rules(fail_on=kinds), repeated).check() is passed, kinds
        assert run(gate_of_rules(), repeated).check(fail_on=kinds) is passed, kinds
    warned = episode("w", findings=(Finding("loop", "asked 9 times"),))
    assert run(gate_of_rules(fail_on=("critical",)), warned).check() is True
    broken = run(gate_of_rules(fail_on=("repeated_*",)), repeated)
    (rule,) = [rule for rule in broken.rules() if not rule.passed]
    assert (rule.why, rule.at) == ("refund_payment P1 called twice", (("r.1", 3),))


def test_a_failed_detector_is_an_error_of_a_gate_that_asks_for_findings() -> None:
    blind = episode("b", findings=(FAILED,))
    assert run(gate_of_rules(fail_on=("loop",)), blind).verdict is Verdict.ERROR
    assert run(gate_of_rules(min_pass_rate=0.5), blind).verdict is Verdict.PASSED


def test_contradictions_count_answers_and_judges() -> None:
    told = Finding("contradicting_answer", "it told the user what is not so", (), "critical")
    more = (episode("c", findings=(told,)), episode("j", counts={"judges_disagree": 2}))
    assert run(gate_of_rules(max_contradictions=3), *more).check() is True
    assert run(gate_of_rules(max_contradictions=2), *more).check() is False


def test_a_run_that_was_stopped_or_has_nothing_conclusive_is_inconclusive() -> None:
    assert run(gate_of_rules(max_usd=9.0), not_run=4, stopped="budget").verdict is Verdict.INCONCLUSIVE
    assert run(gate_of_rules(), not_run=4).verdict is Verdict.INCONCLUSIVE
    nothing = summarize([], {"mode": "dream", "gate": gate_to_record(GateSettings())})
    assert (nothing.verdict, nothing.exit_code) == (Verdict.INCONCLUSIVE, 3)
    dim = [episode("dim", verdict=Verdict.INCONCLUSIVE, reason="?")]
    allowed = gate_to_record(GateSettings(max_inconclusive=1.0))
    assert summarize(dim, {"mode": "dream", "gate": allowed}).verdict is Verdict.INCONCLUSIVE


def test_the_gate_in_a_manifest_reads_back_the_same() -> None:
    gate = GateSettings(
        min_pass_rate=0.9,
        forbid=("delete_*",),
        max_calls_per_tool={"refund_payment": 1},
        max_contradictions=0,
    )
    assert gate_from_record(json.loads(json.dumps(gate_to_record(gate)))) == gate
    assert gate_from_record(gate_to_record(NO_GATE)) == NO_GATE


def test_the_gate_of_an_older_run_is_mapped_and_asks_for_nothing_more_than_it_did() -> None:
    old = {"success_low": 0.5, "undetermined": 0.2, "findings": ["critical"], "max": {"pay": 1}, "usd": 2.0}
    assert gate_from_record(old) == GateSettings(
        min_pass_rate_low=0.5,
        max_inconclusive=0.2,
        fail_on=("critical",),
        max_calls_per_tool={"pay": 1},
        max_usd=2.0,
    )
    assert gate_from_record({"success": 0.5}) == GateSettings(min_pass_rate=0.5, max_inconclusive=None)
    assert gate_from_record({}, judges=False) == NO_GATE
    failed = episode("bad", verdict=Verdict.FAILED, reason="no")
    assert summarize([failed], {"mode": "dream", "gate": {}}).verdict is Verdict.FAILED
    assert summarize([failed], {"mode": "record", "gate": {}}).verdict is Verdict.PASSED


def look(name: str) -> str:
    return f"dreamgym-kit report run --episode {name}"


def test_junit_counts_what_the_other_forms_count() -> None:
    summary = run(gate_of_rules(min_pass_rate=0.9))
    root = ElementTree.fromstring(junit(summary, look))
    tasks = next(suite for suite in root if suite.get("name") == "desk:graph")
    verdicts = {case.get("name"): case[0].tag if len(case) else "passed" for case in tasks.iter("testcase")}
    assert verdicts == {"bad": "failure", "dim": "skipped", "good": "passed"}
    totals = [root.get(name) for name in ("failures", "errors", "skipped", "time")]
    assert totals == ["2", "0", "1", "4.500"]
    said = summary.to_json()
    assert next(root.iter("property")).get("value") == said["headline"]
    (failure,) = tasks.iter("failure")
    assert failure.get("message") == "bad.1: failed: twice (blame: agent)"
    assert "dreamgym-kit report run --episode bad.1" in str(failure.text)


def test_junit_is_red_exactly_where_the_gate_fails() -> None:
    for rules in (
        {},
        {"min_pass_rate": 0.5},
        {"min_pass_rate": 0.9},
        {"max_usd": 0.1},
        {"max_inconclusive": 0},
    ):
        for more in ((), (episode("e", **ERROR),)):
            summary = run(gate_of_rules(**rules), *more)
            root = ElementTree.fromstring(junit(summary, look))
            red = (root.get("failures"), root.get("errors")) != ("0", "0")
            assert red is not summary.check()


def test_junit_shows_an_error_as_one_and_an_inconclusive_task_by_what_the_gate_says_of_it() -> None:
    for most, tag in ((1.0, "skipped"), (0.1, "error")):
        gate = gate_of_rules(max_inconclusive=most)
        root = ElementTree.fromstring(junit(run(gate), look))
        (dim,) = [case for case in root.iter("testcase") if case.get("name") == "dim"]
        assert dim[0].tag == tag
    root = ElementTree.fromstring(junit(run(None, episode("e", **ERROR)), look))
    (broken,) = [case for case in root.iter("testcase") if case.get("name") == "e"]
    assert broken[0].tag == "error"
    allowed = run(gate_of_rules(max_errors=1), episode("e", **ERROR))
    root = ElementTree.fromstring(junit(allowed, look))
    assert (allowed.verdict, root.get("errors")) == (Verdict.PASSED, "0")


def test_one_computation_gives_text_json_junit_and_markdown() -> None:
    summary = run(gate_of_rules(min_pass_rate=0.9, forbid=("send_*",)))
    said = summary.to_json()
    text, page = render_run(summary), markdown(summary, look)
    red = {
        case.get("name")
        for case in ElementTree.fromstring(junit(summary, look)).iter("testcase")
        if len(case)
    }
    broken = [rule for rule in said["gate"] if not rule["passed"]]
    assert len(broken) == 2
    for rule in broken:
        assert rule["key"] in red
        assert f"gate {rule['key']}: {rule['measured']}, {rule['limit']}" in " ".join(text.split())
        assert f"**failed** `{rule['why']}`" in page
    assert f"{said['pass_rate']['value']:.0%}" in page
    assert f"{said['pass_rate']['value']:.0%}" in text
    assert text.startswith(said["headline"])
    assert page.startswith(f"## {plain(said['headline'])}")


def test_hostile_text_stays_text_in_both_files() -> None:
    bad = Finding("repeated_write", HOSTILE, (1,), "critical")
    hostile = episode(HOSTILE, HOSTILE, verdict=Verdict.FAILED, reason=HOSTILE, findings=(bad,))
    summary = run(gate_of_rules(min_pass_rate=0.9), hostile)
    root = ElementTree.fromstring(junit(summary, look))
    assert {element.tag for element in root.iter()} == {
        *("testsuites", "testsuite", "testcase", "failure", "skipped", "properties", "property"),
    }
    page = markdown(summary, look)
    outside = [part for line in page.splitlines() for part in line.split("`")[::2]]
    assert not any(mark in part for part in outside for mark in ("<img", "](http", "@all"))
    assert all(ord(letter) < 127 and (letter >= " " or letter == "\n") for letter in page)
    width = {line.replace("\\|", "").count("|") for line in page.splitlines() if line.startswith("|")}
    assert width <= {3, 5, 6, 7}


def test_a_killed_run_is_not_judged_by_the_few_episodes_that_ended() -> None:
    """It left no report of its own end, so what is missing is counted from what was asked for."""
    asked = {"about": {"tasks": 50}, "matters": {"n": 2}}
    good = [episode("good", "get_order"), episode("also", "get_order")]

    def killed(gate: GateSettings) -> RunMetrics:
        return summarize(good, {"mode": "dream", "graph": "g", "gate": gate_to_record(gate), **asked})

    summary = killed(GateSettings())
    assert summary.headline == ("INCONCLUSIVE (unfinished)  2 passed, 0 failed, 0 inconclusive, 0 errors")
    broken = [rule.key for rule in killed(GateSettings(min_pass_rate=0.9)).rules() if not rule.passed]
    assert broken == ["episodes"]


@each_row(
    ("gate", "broken"),
    [
        ({"max_usd": 0.001}, "the run cost USD 0.004, the gate allows 0.001"),
        ({"max_usd": 0.0}, "the run cost USD 0.004, the gate allows 0.00"),
        ({"max_seconds": 1.2}, "the run took 1.4 s, the gate allows 1.2"),
        ({"min_pass_rate": 0.9}, "the pass rate is 89.98%, required is 90%"),
        ({"max_inconclusive": 0.1}, "1002 of 10002 episodes are inconclusive"),
    ],
)
def test_a_figure_is_never_rounded_onto_the_limit_that_it_misses(
    gate: dict[str, object], broken: str
) -> None:
    summary = summarize(
        [episode("a", elapsed_s=1.4, cost_usd=0.004)], {"gate": gate_to_record(gate_of_rules(**gate))}
    )
    lines = {"min_pass_rate": (2998, 334, 0), "max_inconclusive": (9000, 0, 1002)}.get(next(iter(gate)))
    if lines is not None:
        verdicts = (Verdict.PASSED, Verdict.FAILED, Verdict.INCONCLUSIVE)
        counted = zip(verdicts, lines, strict=True)
        many = [replace(summary.episodes[0], verdict=one) for one, times in counted for _ in range(times)]
        summary = replace(summary, episodes=tuple(many))
    assert [rule.why for rule in summary.rules() if not rule.passed] == [broken]


def test_a_name_in_the_gate_that_fits_nothing_is_told_beside_its_rule() -> None:
    gate = gate_of_rules(
        forbid=("delet_user",), max_calls_per_tool={"Send_mail": 1}, fail_on=("repeatd_write",)
    )
    tools, kinds = ["delete_user", "send_mail"], ["repeated_write", "loop"]
    slips = unmatched(gate, tools, kinds)
    assert [sentence for _, sentence in slips] == [
        "gate: forbid 'delet_user' matches no tool of this graph; did you mean 'delete_user'?",
        "gate: max_calls_per_tool 'Send_mail' matches no tool of this graph; did you mean 'send_mail'?",
        "gate: fail_on 'repeatd_write' matches no kind of finding; did you mean 'repeated_write'?",
    ]
    names = [pattern for pattern, _ in slips]
    measured = {rule.key: rule.measured for rule in run(gate, unmatched=names).rules()}
    assert "no such tool" in measured["forbid delet_user"]
    assert "no such tool" in measured["max_calls_per_tool Send_mail"]
    assert "no such kind" in measured["fail_on repeatd_write"]
    assert not unmatched(GateSettings(forbid=("delete_*",), fail_on=("*",)), tools, kinds)


def test_a_rule_that_a_thousand_tools_break_names_a_few() -> None:
    many = episode("many", *(f"tool_{number:03}" for number in range(1000)))
    (broken,) = (rule for rule in run(gate_of_rules(forbid=("tool_*",)), many).rules() if not rule.passed)
    shown = "tool_000, tool_001, tool_002, tool_003, tool_004, tool_005 and 994 more"
    assert broken.why == f"the agent called {shown} 1000 times, which is forbidden"


def test_two_failures_in_a_thousand_are_never_all_of_them() -> None:
    good = [episode(f"t{number}") for number in range(1000)]
    bad = [episode(f"b{number}", verdict=Verdict.FAILED, reason="no") for number in range(2)]
    summary = summarize([*good, *bad], {"mode": "dream"})
    assert "99% of 1,002 tasks (95% CI 99-100%, by task)" in render_run(summary)
    assert "| Pass rate | 99% of 1,002 tasks " in markdown(summary, str).replace("\\", "")


def test_a_gate_that_somebody_edited_in_a_run_is_refused_in_words() -> None:
    no_limits = [
        {name: None} for name in ("max_errors", "forbid", "fail_on", "max_calls_per_tool", "imagined")
    ]
    for gate in ({"success": "x"}, {"forbid": 5}, {"max": [1]}, {"fail_on": {"a": 1}}, *no_limits):
        with pytest.raises(UserError, match=r"the run's own gate \(was it edited\?\): gate"):
            summarize([episode("a")], {"mode": "dream", "gate": gate}).rules()
