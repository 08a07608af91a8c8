"""An evaluation in figures, JSON and text: the same in each, and nothing claimed beyond the episodes."""

import json
from typing import Any

from each_row import each_row

from dreamgym_kit.report.evaluation import Evaluation, Scores, evaluated, render_evaluation, scores_of
from dreamgym_kit.report.summary import summarize
from dreamgym_kit.types import Environment, Episode, Task, Verdict

VERDICTS = {".": Verdict.PASSED, "x": Verdict.FAILED, "-": Verdict.INCONCLUSIVE}


def scores(
    marks: dict[str, str], *, mode: str = "dream", agent: str = "desk", n: int = 1, **more: Any
) -> Scores:
    episodes = [
        Episode(f"{task}.{at}", task, at, Environment(), VERDICTS[sign], "because", cost_usd=0.25)
        for task, signs in marks.items()
        for at, sign in enumerate(signs, start=1)
    ]
    facts = {"mode": mode, "matters": {"mode": mode, "n": n}, "about": {"tasks": len(marks)}, **more}
    tasks = [Task(task, {}, meta={"family": task.partition("-")[0]}) for task in marks]
    return scores_of(
        summarize(episodes, facts), tasks, run="runs/a", directory="/somewhere/runs/a", agent=agent
    )


def many(sign: str, count: int = 20) -> dict[str, str]:
    return {f"double-{at}": sign for at in range(count)}


def test_tasks_weigh_the_same_however_many_of_their_episodes_are_decided() -> None:
    found = scores({"double-1": "....", "double-2": "x---", "late-1": "xxxx"}, n=4)
    assert found.once is not None
    assert round(found.once.mean, 3) == 0.333
    assert list(found.in_a_row) == [2, 3, 4]
    assert found.in_a_row[4].left_out == 1
    assert {name: share.mean for name, share in found.families.items()} == {"double": 0.5, "late": 0.0}
    assert found.inconclusive == 3


def test_one_run_is_told_in_one_sentence_with_its_bounds() -> None:
    found = evaluated(scores({"double-1": "..", "double-2": "x-"}, mode="record"))
    assert found.sentence == (
        "The pass rate on the real tools is 50% of 2 tasks x 2 repeats (95% CI 9-91%, by task); "
        "50-75% with the one that is not conclusive failed or passed."
    )
    nothing = evaluated(scores({"double-1": "--"}))
    assert nothing.sentence == "The pass rate in the dream is not known: no episode is conclusive."
    assert (nothing.verdict, nothing.exit_code) == (Verdict.INCONCLUSIVE, 3)
    assert render_evaluation(nothing).startswith(
        "INCONCLUSIVE  0 passed, 0 failed, 2 inconclusive, 0 errors\n  gate min_pass_rate: "
    )


@each_row(
    ("evaluates", "gate", "word"),
    [
        ("measured", {"min_pass_rate": 0.0}, "EVALUATED"),
        ("required", {"min_pass_rate": 0.5}, "PASSED"),
        ("required", {"min_pass_rate": 1.0}, "FAILED"),
        ("measured", {"min_pass_rate": 0.0, "max_inconclusive": 0.0}, "INCONCLUSIVE"),
    ],
)
def test_a_run_of_which_nothing_was_required_is_evaluated(evaluates: str, gate: Any, word: str) -> None:
    gate = {"max_errors": 0, "max_inconclusive": 0.5, **gate}
    found = evaluated(scores({"double-1": "..", "late-1": "x-"}, n=2, evaluates=evaluates, gate=gate))
    text = render_evaluation(found)
    assert text.startswith(f"{word}  2 passed, 1 failed, 1 inconclusive, 0 errors\n  ")
    assert found.to_json()["verdict"] == found.verdict == {"EVALUATED": "passed"}.get(word, word.lower())
    broken = next((line for line in text.splitlines() if line.startswith("  gate ")), None)
    assert (broken is None) is found.passed


@each_row(
    ("a", "must_be", "code", "line"),
    [
        ("x", "better", 0, ""),
        (".", "better", 1, "  gate must_be: no difference, required better"),
        (".", "not-worse", 0, ""),
        ("-", "not-worse", 3, "  gate must_be: inconclusive, required not-worse"),
    ],
)
def test_what_is_required_against_another_run_is_a_rule(a: str, must_be: str, code: int, line: str) -> None:
    gate = {"max_errors": 0, "min_pass_rate": 0.0}
    b = scores(many("."), evaluates="required", gate=gate)
    found = evaluated(b, scores(many(a)), must_be=must_be)
    assert (found.exit_code, found.passed) == (code, code == 0)
    text = render_evaluation(found).splitlines()
    assert (line in text) if line else not any(told.startswith("  gate must_be") for told in text)
    word = text[text.index(" B") + 1].split()[0]
    assert word == {0: "PASSED", 1: "FAILED", 3: "INCONCLUSIVE"}[code]


def test_b_against_a_says_which_settings_were_not_the_same() -> None:
    found = evaluated(scores(many("."), mode="record"), scores(many("x")))
    assert render_evaluation(found).startswith("BETTER  B solves 100 points more than A")
    assert found.sentence.startswith("B solves 100 points more than A on the same 20 tasks")
    assert found.differs == ('mode: "dream" of A, "record" of B',)
    assert "! other settings" in render_evaluation(found)


def test_text_and_json_tell_the_same_and_fit_a_terminal() -> None:
    b = scores(many("..") | {"late-1": "x-", "forget-and-much-more-1": "--"}, n=2, agent="b\x1b[31m")
    found: Evaluation = evaluated(b, scores(many("x.") | {"late-1": "x."}, n=2))
    text, told = render_evaluation(found), json.loads(json.dumps(found.to_json()))
    assert found.sentence in " ".join(text.split())
    assert told["sentence"] == found.sentence
    assert told["comparison"]["word"] == "better"
    assert told["b"]["counts"] == {"passed": 40, "failed": 1, "inconclusive": 3, "errors": 0}
    assert told["b"]["not_run"] == 0
    assert told["b"]["cost_usd"] == 11.0
    assert "\n  pass^2        100% (95% CI 83-100%)   2 tasks left out, too few conclusive" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "\x1b" not in text
    assert "Usage         0 model calls, USD 11.00" in text
    assert [one["family"] for one in told["b"]["by_task"]][-2:] == ["forget", "late"]


def test_many_tries_are_told_by_doubling() -> None:
    text = render_evaluation(evaluated(scores({"double-1": "." * 9}, n=9)))
    told = [line.split()[0] for line in text.splitlines() if line.startswith("  pass")]
    assert told == ["pass^2", "pass^4", "pass^8", "pass^9", "pass@9"]
