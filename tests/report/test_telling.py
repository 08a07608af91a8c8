"""The order of an episode: an interrupt stands where the graph stopped, in terminal and page alike."""

from dataclasses import replace

import pytest
from pages.runs import call, episode

from dreamgym_kit.report.episode import Utterance, render_episode, telling
from dreamgym_kit.report.page.gathering import steps_of
from dreamgym_kit.types import Effect, Episode, Source, Transition, UserTurn

LOOKED = call(1, "look", {"id": "A"})
PAID = call(2, "pay", {"id": "A"}, effect=Effect.DESTRUCTIVE)


def approved(*turns: UserTurn) -> Episode:
    """Asks, looks, asks to pay, is stopped for a yes, pays, is asked again, ends."""
    made = episode("a", transitions=(LOOKED, PAID), said="Pay A.")
    messages = (
        *made.messages,
        {"role": "user", "content": "And B?"},
        {"role": "assistant", "content": "No B."},
    )
    return replace(made, messages=messages, user_turns=turns)


TURNS = (UserTurn("interrupt", "script", 3, 1, "Pay A?", "yes"), UserTurn("reply", "persona", 4, 2))


def order(told: Episode) -> list[str]:
    names = []
    for one in telling(told):
        if isinstance(one, Transition):
            names.append(one.call.tool)
        elif isinstance(one, UserTurn):
            names.append(f"? {one.asked}")
        elif one.message.get("content"):
            names.append(f"{one.message['content']}{' *' if one.turn else ''}")
    return names


def test_an_interrupt_stands_between_the_asking_and_the_call_that_it_held_back() -> None:
    assert order(approved(*TURNS)) == ["Pay A.", "look", "? Pay A?", "pay", "Done.", "And B? *", "No B."]


@pytest.mark.parametrize(
    ("source", "shown"), [(Source.MODEL, True), (Source.IMAGINED, True), (Source.RECORDED, False)]
)
def test_a_reason_stands_below_the_answer_that_a_model_gave_for_it(source: Source, shown: bool) -> None:
    given = replace(LOOKED.answer, source=source, why="its order\nwas shipped")
    text = render_episode(episode("a", transitions=(replace(LOOKED, answer=given),)))
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if "look(" in line)
    assert (lines[at + 1].split() == ["because", "its", "order", "was", "shipped"]) is shown, text
    assert ("its order" in text) is shown


def test_each_is_told_once_wherever_it_stood() -> None:
    odd = (
        UserTurn("interrupt", "task", 0, 0, "first"),
        UserTurn("interrupt", "task", 99, 99, "last"),
        UserTurn("interrupt", "task", 99, 99, "very last"),
    )
    assert order(approved(*odd)) == [
        *("? first", "Pay A.", "look", "pay", "Done.", "And B?", "No B.", "? last", "? very last"),
    ]
    silent = replace(approved(*odd), messages=())
    assert order(silent) == ["? first", "look", "pay", "? last", "? very last"]
    assert all(isinstance(one, Utterance) for one in telling(replace(approved(), transitions=())))


def test_terminal_and_page_tell_it_at_the_same_place() -> None:
    told = approved(*TURNS)
    text = render_episode(told)
    assert [text.index(word) for word in ("look", "waits for", "pay(", "And B?")] == sorted(
        text.index(word) for word in ("look", "waits for", "pay(", "And B?")
    )
    assert '"And B?"  [persona]\n' in text
    assert all(len(line) <= 80 for line in text.splitlines())
    steps = steps_of(told)["steps"]
    assert isinstance(steps, list)
    kinds = [(step["kind"], step.get("tool") or step.get("played") or step.get("by")) for step in steps]
    assert kinds == [
        *(("said", "user"), ("call", "look"), ("interrupt", "script"), ("call", "pay")),
        *(("said", "agent"), ("said", "persona"), ("said", "agent"), ("verdict", None)),
    ]
    assert steps[2] == {"kind": "interrupt", "by": "script", "text": "Pay A?", "reply": {"text": "yes"}}
