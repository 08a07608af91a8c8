"""An evaluation in figures, JSON and text: the same in each, and nothing claimed beyond the episodes."""

import json

from dreamgym_kit.report.evaluation import Evaluation, Scores, evaluated, scores_of
from dreamgym_kit.report.evaluation_text import render_evaluation, stamp_of
from dreamgym_kit.report.summary import summarise
from dreamgym_kit.vocabulary import Episode, Task, Verdict, World

VERDICTS = {".": Verdict.PASSED, "x": Verdict.FAILED, "-": Verdict.INCONCLUSIVE}


def scores(marks: dict[str, str], *, mode: str = "dream", agent: str = "desk", n: int = 1) -> Scores:
    episodes = [
        Episode(f"{task}.{at}", task, at, World(), VERDICTS[sign], "because", cost_usd=0.25)
        for task, signs in marks.items()
        for at, sign in enumerate(signs, start=1)
    ]
    facts = {"mode": mode, "matters": {"mode": mode, "n": n}, "about": {"tasks": len(marks)}}
    tasks = [Task(task, {}, meta={"family": task.partition("-")[0]}) for task in marks]
    return scores_of(
        summarise(episodes, facts), tasks, run="runs/a", directory="/somewhere/runs/a", agent=agent
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
        "It solves 50 % of 2 tasks on the real tools (95 %: 9 to 91); 1 of 4 episodes are inconclusive and "
        "count as neither: between 50 and 75 %, whichever way they went."
    )
    nothing = evaluated(scores({"double-1": "--"}))
    assert nothing.sentence == "Nothing is known: no episode of 1 task was decided in the dream."
    assert (stamp_of(found), stamp_of(nothing)) == ("EVALUATED", "INCONCLUSIVE")


def test_b_against_a_says_which_settings_were_not_the_same() -> None:
    found = evaluated(scores(many("."), mode="record"), scores(many("x")))
    assert stamp_of(found) == "B IS BETTER"
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
    assert told["b"]["episodes"] == {
        "total": 44,
        "passed": 40,
        "failed": 1,
        "inconclusive": 3,
        "errors": 0,
        "not_run": 0,
    }
    assert told["b"]["cost_usd"] == 11.0
    assert "\n  pass^2       100 %  (83 to 100)   2 tasks left out, too little decided\n" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "\x1b" not in text
    assert "cost         0 model calls, USD 11.00" in text
    assert [one["family"] for one in told["b"]["by_task"]][-2:] == ["forget", "late"]


def test_many_tries_are_told_by_doubling() -> None:
    text = render_evaluation(evaluated(scores({"double-1": "." * 9}, n=9)))
    told = [line.split()[0] for line in text.splitlines() if line.startswith("  pass")]
    assert told == ["pass@1", "pass^2", "pass^4", "pass^8", "pass^9", "pass@9"]
