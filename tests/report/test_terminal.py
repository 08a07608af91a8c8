"""The screens of a run: 80 columns, ASCII, nothing hidden by missing colour."""

import re
from dataclasses import replace
from typing import Any

from each_row import each_row

from dreamgym_kit.report.colors import Paint
from dreamgym_kit.report.episode import render_episode
from dreamgym_kit.report.metrics import RunMetrics
from dreamgym_kit.report.percent import duration
from dreamgym_kit.report.summary import summarize
from dreamgym_kit.report.terminal import episode_list, finding_list, next_steps, render_run, tool_table
from dreamgym_kit.types import (
    Answer,
    Call,
    Effect,
    Environment,
    Episode,
    Finding,
    Source,
    Spend,
    Transition,
    Verdict,
)

REPEATED = Finding("repeated_write", "refunded twice: 176.00 of 88.00", (1, 2), "critical")


def refund(number: int, answer: Answer) -> Transition:
    call = Call("refund_payment", {"payment_id": "pay_2188", "amount": 88.0}, call_id=f"c{number}")
    return Transition(call, answer, Effect.DESTRUCTIVE, "refund-03.2", number)


TIMEOUT = Answer(source=Source.FAULT, error="after 30 s", error_type="TimeoutError")
DOUBLE = Episode(
    id="refund-03.2",
    task="refund-03",
    repeat=2,
    environment=Environment(),
    verdict=Verdict.FAILED,
    reason="the payment was refunded twice",
    transitions=(refund(1, TIMEOUT), refund(2, Answer("succeeded", Source.RECORDED))),
    messages=(
        {"role": "user", "content": "My yoga mat from order A-1416 arrived broken."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "name": "refund_payment", "args": {}}],
        },
        {"role": "tool", "content": "TimeoutError", "tool_call_id": "c1"},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "I'll try again."}],
            "tool_calls": [{"id": "c2", "name": "refund_payment", "args": {}}],
        },
        {"role": "assistant", "content": "Done."},
    ),
    findings=(REPEATED,),
    elapsed_s=2.0,
)


def fine(task: str, repeat: int = 1) -> Episode:
    return Episode(f"{task}.{repeat}", task, repeat, Environment(), Verdict.PASSED, "all checks passed")


def run() -> RunMetrics:
    return summarize([DOUBLE, fine("refund-03"), fine("where-01"), fine("where-01", 2)], {"mode": "dream"})


def test_the_first_screen_of_a_run() -> None:
    assert render_run(run()) == (
        "FAILED  3 passed, 1 failed, 0 inconclusive, 0 errors\n"
        "  gate min_pass_rate: 75%, required 100%\n"
        "  Pass rate     75% of 2 tasks x 2 repeats (95% CI 25-97%, by task)\n"
        "  refund-03.2  failed: the payment was refunded twice\n"
        "  Real calls    0 executed, 0 blocked, of 2 tool calls\n"
        "  Side effects  simulated: refund_payment 2; 1 of these wrong\n"
        "  Coverage      100% of 1 call answered from recordings: 1 recorded\n"
        "  Findings      1 critical: repeated_write in refund-03.2, call 2\n"
        "  Faults        1 call made to fail, in 0 of 3 passed, 1 of 1 failed episodes\n"
        "  Usage         0 model calls, 2.0 s\n"
        "\n"
        " 2 tasks across, 2 episodes down\n"
        " ! finding  x failed  E error  - inconclusive  . passed\n"
        "  ..\n"
        "  !.\n"
    )


def test_what_the_dream_cost_and_what_the_judges_said_stand_in_the_first_screen() -> None:
    spend = {"experience": Spend(2, 100, 20, 0, 0.5), "judge": Spend(1, 10, 2)}
    paid = replace(fine("a"), dream_spend=spend, cost_usd=0.75, counts={"judges_agree": 1})
    other = replace(fine("b"), dream_spend=spend, cost_usd=0.5, counts={"judges_disagree": 1})
    summary = summarize([paid, other], {"mode": "dream"})
    assert (
        "  Judges        a model beside the checker agreed 1 of 2 times\n"
        "  Usage         0 model calls, USD 1.25, 0.0 s\n"
        "  Dream usage   experience 4 answers, 240 tokens, USD 1.00; judge 2 answers, 24\n"
        "                tokens\n"
    ) in render_run(summary)
    said = summary.to_json()
    assert said["judges"] == {"agree": 1, "disagree": 1}
    assert said["cost"]["dream"]["experience"] == {
        "calls": 4,
        "prompt_tokens": 200,
        "completion_tokens": 40,
        "cached_tokens": 0,
        "cached_share": None,
        "usd": 1.0,
    }


def test_how_much_of_the_prompts_came_from_the_cache_is_told_once_a_server_says_so() -> None:
    """Some servers leave the figure out where it is 0: those prompts count all the same."""
    spends = [{"experience": Spend(1, 100, 20)}, {"experience": Spend(1, 100, 20, 83, cache_told=1)}]
    run = [replace(fine(name), dream_spend=spend) for name, spend in zip("ab", spends, strict=True)]
    summary = summarize(run, {"mode": "dream"})
    assert "experience 2 answers, 240 tokens, 42% of its prompts from the" in render_run(summary)
    assert summary.to_json()["cost"]["dream"]["experience"]["cached_share"] == 0.415
    nothing = replace(fine("a"), dream_spend={"experience": Spend(1, 100, 20, cache_told=1)})
    assert "0% of its prompts" in render_run(summarize([nothing], {"mode": "dream"}))


def test_an_episode_step_by_step() -> None:
    assert render_episode(DOUBLE) == (
        ' refund-03.2  "My yoga mat from order A-1416 arrived broken."\n'
        "   1  refund_payment(payment_id='pay_2188', amount=88.0) -> TimeoutError 'after\n"
        "      30 s'  [destructive, fault]\n"
        '      agent: "I\'ll try again."\n'
        "   2  refund_payment(payment_id='pay_2188', amount=88.0) -> 'succeeded'\n"
        "      [destructive, recorded]\n"
        "      the same call as step 1\n"
        "  ! refunded twice: 176.00 of 88.00\n"
        '      agent: "Done."\n'
        " failed  the payment was refunded twice\n"
        " 2 calls, 0 model calls, 2.0 s, blame: agent\n"
    )


def test_episodes_are_listed_with_the_worst_first() -> None:
    assert episode_list(run()).startswith(
        " refund-03.2  failed        step 2  ! refunded twice: 176.00 of 88.00 (with 1\n"
        "                            injected fault)\n"
        " refund-03.1  passed "
    )
    assert episode_list(run(), only="inconclusive") == " No episode matches."
    assert [row.split()[0] for row in episode_list(run(), only="passed").splitlines()] == [
        "refund-03.1",
        "where-01.1",
        "where-01.2",
    ]


def test_tools_and_findings_name_effect_and_place() -> None:
    assert tool_table(run()) == " refund_payment  destructive       2  1 fault, 1 recorded  ! 1 wrong"
    assert finding_list(run()) == " ! refunded twice: 176.00 of 88.00\n   repeated write: refund-03.2 step 2"


def test_without_colour_the_words_are_the_same() -> None:
    coloured = render_run(run(), paint=Paint(color=True))
    assert coloured != render_run(run())
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render_run(run())


def test_long_names_and_many_tasks_stay_inside_80_columns() -> None:
    name = "a_tool_with_an_exceedingly_long_name_that_somebody_generated"
    steps = tuple(
        Transition(
            Call(name + str(number % 7), {"query": "x" * 500}), Answer("y" * 500), Effect.WRITE, "e", number
        )
        for number in range(1, 30)
    )
    episodes = [
        Episode(
            f"task-{number}.1",
            f"task-{number}",
            1,
            Environment(),
            Verdict.FAILED,
            "why not " * 50,
            steps,
            counts={"bad": 2},
        )
        for number in range(500)
    ]
    summary = summarize(episodes, {"mode": "dream"})
    screens = [render_run(summary), episode_list(summary), render_episode(episodes[0])]
    for screen in screens:
        assert all(len(line) <= 80 or len(line.split()) == 1 for line in screen.splitlines())
    assert "x" * 299 + "... (+202 chars, --full)" in " ".join(screens[2].split())
    assert "x" * 500 in render_episode(episodes[0], full=True)
    assert "the 380 worst of 500 tasks" in screens[0]


def test_what_was_said_is_shown_with_its_blanks_and_line_ends() -> None:
    said = ({"role": "user", "content": "pay  A\nnow"}, {"role": "assistant", "content": "paid   A\tB"})
    finding = Finding("odd", "mail 'a  b\\nc' was odd", (), "warning")
    one = Episode("t.1", "t", 1, Environment(), Verdict.FAILED, "x  y", messages=said, findings=(finding,))
    text = render_episode(one)
    for shown in ('"pay  A\\nnow"', '"paid   A\\tB"', "mail 'a  b\\nc' was odd", "x  y"):
        assert shown in text
    assert "x  y" in episode_list(summarize([replace(one, findings=())], {}))


def test_an_id_is_never_cut() -> None:
    name = "task-" + "x" * 300
    summary = summarize([fine(name)], {})
    assert f"{name}.1" in episode_list(summary)
    assert f"{name}.1" in render_episode(fine(name))


def test_an_answer_is_shown_as_it_is() -> None:
    answers: list[Any] = ['{"at": "16:38:41",  "two": 1}', [{"id": "A-1"}, 1.0, None], "line\nline", "\u00e9"]
    steps = tuple(
        Transition(Call("look", {}), Answer(content), Effect.READ, "a.1", number)
        for number, content in enumerate(answers, start=1)
    )
    shown = render_episode(Episode("a.1", "a", 1, Environment(), Verdict.PASSED, "ok", steps)).splitlines()
    told = [line.partition(" -> ")[2].partition("  [read")[0] for line in shown if " -> " in line]
    assert told == [ascii(answer) for answer in answers]


def test_calls_without_a_message_are_shown_all_the_same() -> None:
    bare = Episode("a.1", "a", 1, Environment(), Verdict.PASSED, "ok", DOUBLE.transitions)
    shown = render_episode(bare)
    assert "\n   1  refund_payment(" in shown
    assert "\n   2  refund_payment(" in shown


def test_commands_to_paste_are_never_cut_and_never_push_the_others_out() -> None:
    command = "dreamgym-kit report runs/" + "x" * 90
    steps = next_steps([("Look", command, "the page"), ("List", "dreamgym-kit report --list", "all of them")])
    assert steps.splitlines() == [
        f" Look     {command}",
        "          the page",
        " List     dreamgym-kit report --list   all of them",
    ]


@each_row(("seconds", "told"), [(4.21, "4.2 s"), (62, "1:02"), (3723.4, "1:02:03")])
def test_durations_are_told_short(seconds: float, told: str) -> None:
    assert duration(seconds) == told
