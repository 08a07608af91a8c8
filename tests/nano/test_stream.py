import json
from typing import Any

import pytest
from each_row import each_row

pytest.importorskip("transformers", reason="the extra train is not installed")

from dreamgym_kit.recipes.desk.policy import Habits, ScriptCall, ScriptTurn
from dreamgym_kit.recipes.nano.episodes import CallResult, Exchange, Worked, record
from dreamgym_kit.recipes.nano.tokens import END, Stream, build_tokenizer, said_text

tokenizer: Any = build_tokenizer()
stream = Stream(tokenizer)


def messages_of(worked: Worked, *, as_text: bool) -> list[dict[str, Any]]:
    """The conversation as a chat endpoint is sent it: arguments as an object, or as JSON text."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "House rules."},
        {"role": "user", "content": worked.request},
    ]
    for exchange in worked.exchanges:
        calls = []
        for use in exchange.turn.uses:
            args = dict(use.args)
            calls.append(
                {
                    "type": "function",
                    "function": {"name": use.tool, "arguments": json.dumps(args) if as_text else args},
                }
            )
        messages.append({"role": "assistant", "content": exchange.turn.text, "tool_calls": calls})
        messages += [{"role": "tool", "content": told.text} for told in exchange.answers]
    return [*messages, {"role": "assistant", "content": worked.last_word}]


def rendered(messages: list[dict[str, Any]], **more: Any) -> list[int]:
    tools = [{"type": "function", "function": {"name": "get_order", "parameters": {}}}]
    ids: list[int] = tokenizer.apply_chat_template(
        messages, tools=tools, tokenize=True, return_dict=False, **more
    )
    return ids


@each_row("as_text", [True, False])
def test_what_the_template_gives_is_what_was_learned(as_text: bool) -> None:
    for worked in record(150, seed=3):
        row = stream.row(worked)
        assert rendered(messages_of(worked, as_text=as_text)) == [*row.ids, *stream.encode("\n")]


def test_each_prompt_begins_with_all_that_was_said_before() -> None:
    for worked in record(40, seed=4):
        row, messages = stream.row(worked), messages_of(worked, as_text=True)
        for place, message in enumerate(messages):
            if message["role"] == "assistant":
                prompt = rendered(messages[:place], add_generation_prompt=True)
                assert list(row.ids[: len(prompt)]) == prompt
                assert row.sampled[len(prompt)]
                assert not row.sampled[len(prompt) - 1]


def test_content_in_blocks_reads_as_its_text() -> None:
    plain = [
        {"role": "user", "content": "Where is my order O12?"},
        {"role": "tool", "content": '{"days": "02"}'},
    ]
    blocks = [
        {**each, "content": [{"type": "text", "text": each["content"], "id": "lc_1"}]} for each in plain
    ]
    assert rendered(blocks) == rendered(plain)


def test_what_is_said_is_read_back_as_the_calls_it_makes() -> None:
    for worked in record(60, seed=6):
        for exchange in worked.exchanges:
            said = stream.read(stream.encode(said_text(exchange.turn)))
            assert said.text == exchange.turn.text
            assert [(name, dict(args)) for name, args in said.calls] == [
                (use.tool, dict(use.args)) for use in exchange.turn.uses
            ]


@each_row(
    "text",
    [
        "<tool_call>\n{oops}\n</tool_call>",
        "<tool_call>\n[]\n</tool_call>",
        '<tool_call>\n{"name": 1, "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "get_order", "arguments": "O12"}\n</tool_call>',
        '<tool_call>\n{"name": "get_order"',
    ],
)
def test_a_call_that_cannot_be_read_is_text(text: str) -> None:
    said = stream.read(stream.encode(text + END))
    assert (said.calls, said.text) == ((), text)


def test_only_what_the_agent_says_is_marked() -> None:
    use = ScriptCall("get_order", {"order_id": "O12"})
    turn = ScriptTurn((use,), "One moment.")
    worked = Worked(
        0,
        "late",
        "Where is it?",
        Habits(),
        (Exchange(turn, (CallResult("no order O12", failed=True),)),),
        "Gone.",
        False,
    )
    row = stream.row(worked)
    said = tokenizer.decode([token for token, mine in zip(row.ids, row.sampled, strict=True) if mine])
    assert said == said_text(turn) + "Gone." + END
