"""Two runs side by side: paired over tasks, with intervals that hold, and one sentence."""

from dataclasses import replace

from pages.runs import call, episode

from dreamgym_kit.report.comparing import Comparison, compared, render_comparison
from dreamgym_kit.report.summary import RunMetrics, summarize
from dreamgym_kit.trust.comparison import Conclusion
from dreamgym_kit.types import Effect, Finding, Verdict

VERDICTS = {".": Verdict.PASSED, "x": Verdict.FAILED, "-": Verdict.INCONCLUSIVE}
LOOP = Finding("loop", "ran in circles", (1,))


def run(
    marks: dict[str, str], calls: int = 1, findings: tuple[Finding, ...] = (), seed: int = 0
) -> RunMetrics:
    episodes = []
    for task, signs in marks.items():
        for repeat, sign in enumerate(signs, start=1):
            refund = Effect.DESTRUCTIVE
            steps = tuple(call(number + 1, "refund", {"n": number}, effect=refund) for number in range(calls))
            more = {"transitions": steps, "findings": findings, "cost_usd": 0.5 * calls}
            episodes.append(episode(task, repeat, VERDICTS[sign], reason="because", **more))
    return summarize(episodes, {"matters": {"mode": "dream", "seed": seed}})


def found(before: RunMetrics, after: RunMetrics) -> Comparison:
    return compared(before, after, names=("old", "new"))


def test_what_changed_is_told_by_task_worse_first() -> None:
    told = found(
        run({"a": "..", "b": "xx", "c": "..", "d": "--"}), run({"a": ".x", "b": "..", "c": "..", "d": ".."})
    )
    assert [(one.task, one.word) for one in told.tasks] == [
        *(("a", "worse"), ("d", "unknown"), ("b", "better"), ("c", "same")),
    ]
    assert told.word is Conclusion.NO_DIFFERENCE
    assert told.sentence.startswith("No difference can be seen: the run after solves 17 points more than")
    assert told.pass_rate is not None
    assert (round(told.pass_rate.before, 2), round(told.pass_rate.after, 2)) == (0.67, 0.83)


def test_a_clear_change_is_called_one_either_way() -> None:
    bad = run({f"t{number}": "x" for number in range(20)})
    good = run({f"t{number}": "." for number in range(20)})
    better, worse = render_comparison(found(bad, good)), render_comparison(found(good, bad))
    assert better.startswith(
        "BETTER  The run after solves 100 points more than the run before on the same 20"
    )
    assert worse.startswith("WORSE  The run after solves 100 points less than the run before on the same 20")
    assert "  pass rate        0% ->   100%" in better


def test_inconclusive_episodes_that_could_turn_it_round_leave_it_inconclusive() -> None:
    before = run({f"t{number}": "x--" for number in range(20)})
    told = found(before, run({f"t{number}": "..." for number in range(20)}))
    assert (told.word, told.to_json()["word"]) == (Conclusion.BETTER, "better")
    told = found(
        run({f"t{number}": "x---" for number in range(20)}), run({f"t{n}": ".---" for n in range(20)})
    )
    assert (told.word, told.to_json()["word"]) == (Conclusion.INCONCLUSIVE, "inconclusive")
    assert render_comparison(told).startswith(
        "INCONCLUSIVE  It cannot be said: the run after solves 100 points"
    )


def test_tools_and_findings_are_compared_by_episode() -> None:
    tasks = {f"t{number}": ".." for number in range(12)}
    told = found(run(tasks), run(tasks, calls=2, findings=(LOOP,)))
    refund, loop = told.tools["refund"], told.findings["loop"]
    assert (refund.before, refund.after, refund.clear) == (1.0, 2.0, True)
    assert (loop.before, loop.after, loop.clear) == (0.0, 1.0, True)
    assert told.cost_usd is not None
    assert told.cost_usd.change == 0.5


def test_only_shared_tasks_are_compared_and_the_others_named() -> None:
    told = found(run({"a": ".", "gone": "."}), run({"a": ".", "new": "x"}))
    assert (told.only_before, told.only_after) == (("gone",), ("new",))
    assert told.pass_rate is not None
    assert told.pass_rate.after == 1.0
    text = render_comparison(found(run({"a": "."}), run({"b": "."})))
    assert text.startswith("NO COMMON TASKS  The run before and the run after have no task in common.\n")
    nothing = found(run({"a": "-"}), run({"a": "."}))
    assert nothing.word is Conclusion.INCONCLUSIVE
    assert nothing.sentence == (
        "It cannot be said: the only common task is not conclusive in both the run before and the run after."
    )


def test_other_settings_are_said() -> None:
    assert found(run({"a": "."}), run({"a": "."}, seed=7)).differs == ("seed: 0 before, 7 after",)


def test_runs_that_rest_on_imagined_answers_are_called_so() -> None:
    before, after = run({"a": "."}), run({"a": "x"})
    after = replace(after, episodes=tuple(replace(line, imagined=True) for line in after.episodes))
    text = " ".join(render_comparison(found(before, after)).split())
    assert "imagined answers" in text
    assert "imagined answers" in str(found(before, after).to_json()["sentence"])
    assert "imagined" not in render_comparison(found(before, before))
