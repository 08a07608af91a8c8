"""Tool calls in a model's text: whole and valid ones are calls, all else stays what the model wrote."""

import json

from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.adapters.models.local import parse_answer

CALL = '<tool_call>\n{"name": "get_order", "arguments": {"order": "O-7"}}\n</tool_call>'


def test_one_call_has_its_name_arguments_and_an_id_of_its_turn() -> None:
    said = parse_answer(CALL, "ab12")
    assert said.content == ""
    assert [(call.name, call.args, call.id) for call in said.calls] == [
        ("get_order", '{"order": "O-7"}', "call_ab12_0")
    ]


def test_several_calls_and_the_text_before_them() -> None:
    said = parse_answer(f"Let me look.\n{CALL}\n{CALL}", "t")
    assert (said.content, [call.id for call in said.calls]) == ("Let me look.", ["call_t_0", "call_t_1"])


@each_row(
    "text",
    [
        "no call at all",
        "<tool_call>\n{oops}\n</tool_call>",
        '<tool_call>\n{"name": "a", "arguments": [1]}\n</tool_call>',
        '<tool_call>\n{"name": "a", "arguments": "x"}\n</tool_call>',
        '<tool_call>\n{"name": "", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "a", "arguments": {"x": NaN}}\n</tool_call>',
        '<tool_call>\n{"name": "a", "arguments": {}}',
        f'{CALL}\n<tool_call>\n{{"name": "b", "arg',
        f"{CALL}\n<tool_call>\nnot json\n</tool_call>",
    ],
)
def test_what_is_malformed_stays_content(text: str) -> None:
    said = parse_answer(text, "t")
    assert (said.content, said.calls) == (text, ())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(st.tuples(st.text(min_size=1), st.dictionaries(st.text(), json_values, max_size=3)), min_size=1)
)
def test_what_was_written_is_read(calls: list[tuple[str, dict]]) -> None:
    text = "\n".join(
        f"<tool_call>\n{json.dumps({'name': name, 'arguments': args})}\n</tool_call>" for name, args in calls
    )
    if any("tool_call>" in json.dumps(one) for one in calls):
        return
    said = parse_answer(text, "t")
    assert [(call.name, json.loads(call.args)) for call in said.calls] == [(n, a) for n, a in calls]
