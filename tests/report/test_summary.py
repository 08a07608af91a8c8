"""A run in numbers: one pass, any order, every judgement in one place."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from each_row import each_row
from pages import runs
from pages.runs import call

from dreamgym_kit.report.comparing import compared, render_comparison
from dreamgym_kit.report.documents import junit, markdown
from dreamgym_kit.report.headline import (
    causes,
    format_changes,
    format_coverage,
    format_faults,
    format_findings,
    headline,
)
from dreamgym_kit.report.metrics import TrustPoint
from dreamgym_kit.report.percent import format_interval, format_points
from dreamgym_kit.report.summary import RunMetrics, curve_from_json, summarize
from dreamgym_kit.report.terminal import episode_list, render_run, verdict
from dreamgym_kit.types import Effect, Episode, Finding, Source, Transition, Verdict

DREAM = {"matters": {"mode": "dream"}}
REPEATED = Finding("repeated_write", "refunded twice: 176.00 of 88.00", (2, 3), "critical")


def step(number: int, tool: str, effect: Effect = Effect.READ, **answer: Any) -> Transition:
    return call(number, tool, {"payment": "p"}, "x", effect=effect, **{"confidence": 1.0} | answer)


def episode(task: str, repeat: int = 1, verdict: Verdict = Verdict.PASSED, **more: Any) -> Episode:
    return runs.episode(task, repeat, verdict, **{"reason": "checked", "elapsed_s": 0.0} | more)


def refund(number: int, source: Source = Source.RECORDED) -> Transition:
    return step(number, "refund_payment", Effect.DESTRUCTIVE, source=source)


def double_refund(task: str, repeat: int = 1) -> Episode:
    steps = (step(1, "get_payment"), refund(2, Source.FAULT), refund(3))
    return episode(task, repeat, Verdict.FAILED, transitions=steps, findings=(REPEATED,))


def test_verdicts_are_counted_and_inconclusive_is_neither() -> None:
    summary = summarize(
        [episode("a"), episode("b", verdict=Verdict.FAILED), episode("c", verdict=Verdict.INCONCLUSIVE)],
        DREAM,
    )
    assert (summary.passed, summary.failed, summary.inconclusive, summary.conclusive) == (1, 1, 1, 2)
    assert summary.rate == 0.5
    assert summary.interval == pytest.approx((0.0945, 0.9055), abs=1e-4)
    one = summarize([episode("a", verdict=Verdict.ERROR)], DREAM)
    assert headline(one) == "ERROR  0 passed, 0 failed, 0 inconclusive, 1 error"


def test_tools_are_counted_with_the_irreversible_ones_first() -> None:
    summary = summarize([double_refund("a"), double_refund("b")], DREAM)
    assert [tool.name for tool in summary.tools] == ["refund_payment", "get_payment"]
    refunds = summary.tools[0]
    assert (refunds.calls, refunds.episodes, refunds.repeated, refunds.wrong) == (4, 2, 2, 2)
    assert refunds.sources == {"fault": 2, "recorded": 2}


def test_a_call_that_two_findings_point_at_is_wrong_once() -> None:
    twice = episode(
        "a", transitions=(refund(1), refund(2)), findings=(REPEATED, Finding("x", "y", (2,), "critical"))
    )
    assert summarize([twice], DREAM).tools[0].wrong == 1


def test_trust_leaves_out_what_was_not_dreamt() -> None:
    steps = (
        step(1, "add", Effect.PURE, source=Source.REAL),
        step(2, "get", source=Source.RECORDED),
        step(3, "get", source=Source.FAULT, error="timeout"),
        step(4, "track", source=Source.MODEL),
        step(5, "track", source=Source.DERIVED),
        step(6, "track", source=Source.UNANSWERED),
    )
    summary = summarize([episode("a", transitions=steps)], DREAM)
    assert summary.grounded == 0.5
    assert summary.weakest is not None
    assert (summary.weakest.name, summary.weakest.grounded, summary.weakest.dreamt) == ("track", 1, 3)
    assert summary.abstentions == 1
    assert summary.real_calls == 0


ANSWERED = (Source.RECORDED, Source.UNANSWERED)


def test_a_write_without_an_answer_is_no_simulated_side_effect() -> None:
    steps = (
        step(1, "pay", Effect.WRITE, source=Source.RECORDED),
        step(2, "pay", Effect.WRITE, source=Source.UNANSWERED),
    )
    assert format_changes(summarize([episode("a", transitions=steps)], DREAM)) == "simulated: pay 1"
    assert format_changes(summarize([episode("a", transitions=steps[1:])], DREAM)) == "none"


def test_what_was_presumed_does_not_rest_on_recordings_and_the_line_tells_what_does() -> None:
    recorded, composed = Source.RECORDED, Source.DERIVED
    sure = [step(1, "track", source=recorded), step(2, "track", source=composed)]
    low = step(3, "pay", source=composed)
    guessed = replace(low, answer=replace(low.answer, confidence=0.49))
    summary = summarize([episode("a", transitions=(*sure, guessed, guessed))], DREAM)
    assert (summary.grounded, summary.presumed) == (0.5, 2)
    assert format_coverage(summary) == (
        "50% of 4 calls answered from recordings and rules: 1 recorded, 3 derived, 2 of these presumed; "
        "weakest: pay (0 of 2)"
    )
    assert summary.to_json()["coverage"]["presumed"] == 2
    only = summarize([episode("a", transitions=(sure[0],))], DREAM)
    assert format_coverage(only) == "100% of 1 call answered from recordings: 1 recorded"
    many = summarize([episode("a", transitions=(sure[0],) * 1200)], DREAM)
    assert format_coverage(many).startswith("100% of 1,200 calls answered")


def test_a_finding_of_an_inconclusive_episode_does_not_lead() -> None:
    dim = episode("a", verdict=Verdict.INCONCLUSIVE, findings=(REPEATED,), transitions=(refund(2), refund(3)))
    summary = summarize([dim], DREAM)
    assert summary.episodes[0].mark == "-"
    assert format_findings(summary) == "1 in episodes that are not conclusive"
    judged = summarize([dim, double_refund("b")], DREAM)
    assert format_findings(judged) == (
        "1 critical: repeated_write in b.1, call 3; 1 in episodes that are not conclusive"
    )


def test_the_order_in_which_episodes_finished_changes_nothing() -> None:
    episodes = [double_refund(f"refund-{number}", repeat) for number in range(1, 12) for repeat in (1, 2)] + [
        episode("b", cost_usd=0.1 * number, violations=(f"v{number}",)) for number in range(1, 4)
    ]
    shuffled = list(episodes)
    random.Random(7).shuffle(shuffled)
    assert json.dumps(summarize(shuffled, DREAM).to_json()) == json.dumps(
        summarize(episodes, DREAM).to_json()
    )


def test_the_worst_task_comes_first() -> None:
    summary = summarize(
        [
            episode("fine"),
            episode("fails", verdict=Verdict.FAILED),
            double_refund("refunds"),
            episode("open", verdict=Verdict.INCONCLUSIVE),
            episode("broken", verdict=Verdict.ERROR),
        ],
        DREAM,
    )
    assert list(summary.tasks) == ["refunds", "fails", "broken", "open", "fine"]
    assert "".join(lines[0].mark for lines in summary.tasks.values()) == "!xE-."


def test_equal_causes_are_told_once_and_failures_come_first() -> None:
    set_up = 'environment "default" could not be set up: AttributeError'
    lost = [episode(f"e{number}", verdict=Verdict.ERROR, reason=set_up) for number in range(8)]
    crashed = [
        episode("c", number, Verdict.FAILED, reason="the graph raised KeyError", traceback=("agent.py:4",))
        for number in (1, 2)
    ]
    summary = summarize([*lost, *crashed, episode("good")], DREAM)
    told = [str(cause) for cause in causes(summary)]
    assert told == [
        "c.1  failed: the graph raised KeyError (same in .2)",
        f"8 episodes  error: {set_up}",
    ]
    text = render_run(summary)
    assert text.count("could not be set up") == 1
    assert "agent.py:4" in text


def test_a_lower_bound_is_told_as_the_interval_tells_it() -> None:
    gate = {"mode": "dream", "gate": {"min_pass_rate_low": 0.9}}
    text = render_run(summarize([episode(f"t{number}") for number in range(5)], gate))  # 0.5655
    assert "95% CI 56-100%" in text
    assert "gate min_pass_rate_low: 56%, required 90%" in text


def test_errors_that_differ_in_the_id_of_a_request_are_one_cause() -> None:
    reasons = [f"the agent's model did not answer: 401, request req_011CSHoEeqs{n}" for n in ("a1b2", "C3d4")]
    reasons += [f"{reasons[0]}; before that the episode was passed: ok", "the checker raised KeyError: 3"]
    lost = [episode(f"e{n}", verdict=Verdict.ERROR, reason=why) for n, why in enumerate(reasons)]
    failed = [episode(f"f{n}", verdict=Verdict.FAILED, reason=why) for n, why in enumerate(reasons)]
    assert [len(cause.episodes) for cause in causes(summarize(lost, DREAM))] == [3, 1]
    assert len(causes(summarize(failed, DREAM))) == 4  # what an agent did is told as it is


def test_the_json_form_says_what_it_promises() -> None:
    gate = {"mode": "dream", "gate": {"fail_on": ["critical"]}}
    said = summarize([double_refund("a"), episode("b")], gate).to_json()
    assert json.loads(json.dumps(said, allow_nan=False)) == said
    assert (said["verdict"], said["exit_code"]) == ("failed", 1)
    broken = {rule["key"]: rule["verdict"] for rule in said["gate"] if not rule["passed"]}
    assert broken == {"min_pass_rate": "failed", "fail_on critical": "failed"}
    assert said["counts"] == {"passed": 1, "failed": 1, "inconclusive": 0, "errors": 0}
    assert said["would_have"] == ["refund_payment"]
    assert said["findings"] == [
        {
            "kind": "repeated_write",
            "severity": "critical",
            "tool": "refund_payment",
            "text": "refunded twice: 176.00 of 88.00",
            "count": 1,
            "at": [{"episode": "a.1", "step": 3}],
        }
    ]


def test_the_pass_rate_is_told_with_what_the_other_episodes_could_make_of_it() -> None:
    dim = [episode("a", 2, Verdict.INCONCLUSIVE), episode("b", 2, Verdict.ERROR)]
    summary = summarize([episode("a"), episode("b"), *dim], DREAM)
    told = summary.to_json()["pass_rate"]
    assert (told["value"], told["all_low"], told["all_high"]) == (1.0, 0.5, 1.0)
    assert "50-100% with the 2 that are not conclusive failed or passed" in " ".join(
        render_run(summary).split()
    )


def test_every_field_of_the_json_form_is_documented() -> None:
    from dreamgym_kit.report import jsonform

    for name in summarize([double_refund("a")], DREAM).to_json():
        assert f"\n    {name} " in (jsonform.__doc__ or ""), name


def test_a_summary_is_small_whatever_the_episodes_hold() -> None:
    heavy = (episode(f"t{number}", final="x" * 100_000) for number in range(200))
    summary: RunMetrics = summarize(heavy, DREAM)
    assert len(json.dumps(summary.to_json())) < 100_000


CURVE = (TrustPoint(0.5, 0.91, 0.987_654), TrustPoint(0.99, 0.0, None))


def test_the_curve_of_mined_answers_is_in_json_and_terminal_and_comes_back_from_json() -> None:
    report = summarize([episode("a")], DREAM, CURVE).to_json()
    assert report["fidelity"]["curve"] == [
        {"confidence": 0.5, "answered": 0.91, "exact": 0.9877},
        {"confidence": 0.99, "answered": 0.0, "exact": None},
    ]
    assert curve_from_json(report) == (TrustPoint(0.5, 0.91, 0.9877), CURVE[1])
    assert summarize([episode("a")], DREAM).to_json()["fidelity"]["curve"] == []
    told = verdict(summarize([episode("a", transitions=(step(1, "look"),))], DREAM, CURVE))
    assert "Fidelity      90% of held-out recordings reproduced exactly (91% answered)\n" in told
    assert "Fidelity" not in verdict(summarize([episode("a")], DREAM))


@each_row("report", [{}, {"trust": None}, {"trust": {"curve": [{"threshold": 1}]}}])
def test_a_report_without_a_curve_gives_none(report: dict[str, object]) -> None:
    assert curve_from_json(report) == ()


def test_planned_faults_are_told_apart_from_the_agents_own_failures_in_every_form() -> None:
    own = episode("own", verdict=Verdict.FAILED, transitions=(step(1, "get_payment"),))
    summary = summarize([double_refund("under"), own, episode("good")], DREAM)
    told = "1 call made to fail, in 0 of 1 passed, 1 of 2 failed episodes"
    noted = "refunded twice: 176.00 of 88.00 (with 1 injected fault)"
    data = summary.to_json()
    assert data["faults"] == {"calls": 1, "passed": 0, "failed": 1, "inconclusive": 0, "error": 0}
    assert {line["id"]: line["faults"] for line in data["list"]} == {"own.1": 0, "under.1": 1, "good.1": 0}
    assert {line["id"]: line["anomaly"] for line in data["list"]}["under.1"] == noted
    assert told in " ".join(render_run(summary).split())
    assert "ith 1 injected fault)" in " ".join(episode_list(summary).split())
    for form in (markdown(summary, str), junit(summary, str)):
        assert told in form.replace("\\", "")
        assert noted in form.replace("\\", "")
    both = compared(summary, summarize([episode("under")], DREAM), names=("a", "b"))
    assert both.to_json()["faults"] == {"before": 1, "after": 0}
    assert "faults       1 -> 0 calls made to fail by plan" in render_comparison(both)
    assert format_faults(summarize([own], DREAM)) == ""


@each_row(
    ("low", "high", "told"),
    [(0.721, 0.991, "72 to 100"), (0.07, 0.29, "7 to 29"), (0, 1, "0 to 100"), (0.0001, 0.9999, "0 to 100")],
)
def test_bounds_are_rounded_outwards(low: float, high: float, told: str) -> None:
    assert format_interval(low, high) == told
    assert format_points(-high, -low) == " to ".join(
        f"{-int(one):+d}" for one in reversed(told.split(" to "))
    )
