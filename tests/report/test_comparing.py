"""Two runs side by side: paired over tasks, with intervals that hold, and one sentence."""

from dreamgym_kit.report.compare_text import render_comparison
from dreamgym_kit.report.comparing import Comparison, compared
from dreamgym_kit.report.summary import Summary, summarise
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

VERDICTS = {".": Verdict.PASSED, "x": Verdict.FAILED, "-": Verdict.INCONCLUSIVE}
LOOP = Finding("loop", "ran in circles", (1,))


def run(marks: dict[str, str], calls: int = 1, findings: tuple[Finding, ...] = (), seed: int = 0) -> Summary:
    episodes = []
    for task, signs in marks.items():
        for sibling, sign in enumerate(signs, start=1):
            steps = tuple(
                Transition(
                    Call("refund", {"n": number}),
                    Answer("x", Provenance.RECORDED),
                    Effect.DESTRUCTIVE,
                    "e",
                    number,
                )
                for number in range(1, calls + 1)
            )
            more = {"transitions": steps, "findings": findings, "cost_usd": 0.5 * calls}
            episodes.append(
                Episode(f"{task}.{sibling}", task, sibling, World(), VERDICTS[sign], "because", **more)
            )
    return summarise(episodes, {"matters": {"mode": "dream", "seed": seed}})


def found(before: Summary, after: Summary) -> Comparison:
    return compared(before, after, names=("old", "new"))


def test_what_changed_is_told_by_task_worse_first() -> None:
    told = found(
        run({"a": "..", "b": "xx", "c": "..", "d": "--"}), run({"a": ".x", "b": "..", "c": "..", "d": ".."})
    )
    assert [(one.task, one.word) for one in told.tasks] == [
        *(("a", "worse"), ("d", "unknown"), ("b", "better"), ("c", "same")),
    ]
    assert told.sentence.startswith("No clear change in success: 83% against 67% on 3 tasks (+17 points, ")
    assert told.sentence.endswith("; 1 better, 1 worse.")


def test_a_clear_change_is_called_one_either_way() -> None:
    bad = run({f"t{number}": "x" for number in range(20)})
    good = run({f"t{number}": "." for number in range(20)})
    assert found(bad, good).sentence.startswith("It succeeds more often: 100% against 0% on 20 tasks")
    assert found(good, bad).sentence.startswith("It succeeds less often: 0% against 100% on 20 tasks")
    assert "BETTER" in render_comparison(found(bad, good))
    assert "WORSE" in render_comparison(found(good, bad))


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
    assert told.success is not None
    assert told.success.after == 1.0
    assert found(run({"a": "."}), run({"b": "."})).sentence == "The two runs have no task in common."
    nothing = found(run({"a": "-"}), run({"a": "."}))
    assert nothing.sentence == "Nothing is known: of 1 task none is decided in both runs."


def test_other_settings_are_said() -> None:
    assert found(run({"a": "."}), run({"a": "."}, seed=7)).differs == ("seed: 0 before, 7 after",)


def test_text_and_json_say_the_same_figures() -> None:
    told = found(run({"a": "..", "b": "xx"}), run({"a": ".x", "b": ".."}, calls=3))
    said, text = told.to_json(), render_comparison(told)
    assert said["sentence"] in " ".join(text.split())
    success = said["success"]
    assert f"{success['before']:>6.0%} -> {success['after']:>6.0%}" in text
    refund = said["tools"]["refund"]
    assert f"{refund['before']:.2f} ->   {refund['after']:.2f}" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert [one["task"] for one in said["tasks"]] == ["a", "b"]
