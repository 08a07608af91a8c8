"""Drafts: a closed form, checked and repaired once, about the tool and nothing else."""

import asyncio
import json

import pytest
from deciding_double import ScriptedChatDouble

from dreamgym_kit.dream.drafting import SCHEMA, draft, read_draft
from dreamgym_kit.dream.environment_facts import shape_of
from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.types import Effect, ToolSpec

FREEZE = ToolSpec(
    "freeze",
    Effect.WRITE,
    "Freeze a card. Fails when it is frozen already.",
    {"properties": {"card_id": {"type": "string"}}, "required": ["card_id"]},
)
GET = ToolSpec("get_card", Effect.READ, "Look at a card.", {"properties": {"card_id": {"type": "string"}}})
FILE = """
writes = true
arguments = ["card_id"]
decides = 'Decide(Is("card_id<args.card_id>.status", "frozen"), "error", "ok", "ok")'
[outcomes.ok]
answer = 'MakeRecord({"card_id": Get("args.card_id"), "done": Const(True)})'
[outcomes.error]
fails = true
answer = 'Text(Get("args.card_id"), " is frozen already")'
[updates]
"card_id<args.card_id>" = 'Assign({"status": Const("frozen")}, [], None, 1)'
"""
GOOD = {"reasoning": "the description says so", "file": FILE}


def drafted(*lines, **said):
    endpoint = ScriptedChatDouble(*lines)
    return asyncio.run(draft(endpoint, FREEZE, [GET], {"get_card": {"status": "string"}}, **said)), endpoint


def test_a_draft_becomes_rules_as_a_person_writes_them() -> None:
    rules, endpoint = drafted(GOOD, records={"card_id": ["card_id", "status"]})
    assert (rules.writes, rules.arguments, rules.text) == (True, frozenset({"card_id"}), FILE)
    assert [form[0] for form in rules.program.says] == [True, False]
    assert list(rules.program.effects) == ["card_id<args.card_id>"]
    (request,) = endpoint.requests
    assert request.schema == SCHEMA
    shown = request.messages[1].content
    assert "Fails when it is frozen already" in shown
    assert '{"get_card": {"status": "string"}}' in shown
    assert '{"card_id": ["card_id", "status"]}' in shown


def test_source_is_shown_only_where_it_is_given() -> None:
    _, without = drafted(GOOD)
    _, shown = drafted(GOOD, source="def freeze(): ...")
    assert " source\n" not in without.requests[0].messages[1].content
    assert "def freeze(): ..." in shown.requests[0].messages[1].content


def test_a_draft_of_a_wrong_form_is_repaired_once() -> None:
    wrong = GOOD | {"file": FILE.replace("Const(", "Cnst(")}
    rules, endpoint = drafted(wrong, GOOD)
    assert rules.text == FILE
    assert "did you mean 'Const'?" in endpoint.requests[1].messages[-1].content
    with pytest.raises(NotSerializable, match="unknown form 'Cnst'"):
        drafted(wrong, wrong)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"done": True}, "Additional properties are not allowed"),
        ({"reasoning": 3}, "reasoning: 3 is not of type 'string'"),
        ({"file": FILE.replace('["card_id"]', '["cardid"]')}, "freeze has no argument 'cardid', but card_id"),
        ({"file": FILE.replace("[outcomes.error]", "[outcomes.eror]")}, "no [outcomes.error]; did you mean"),
        ({"file": "writes = true"}, "it says nothing of the tool"),
        ({"file": FILE.replace("Const(True)", 'Const({"$command": {"goto": "__end__"}})')}, "own marks"),
    ],
)
def test_what_is_not_of_the_form_is_refused(changed, why) -> None:
    with pytest.raises(NotSerializable) as refused:
        read_draft(json.dumps(GOOD | changed), FREEZE)
    assert why in str(refused.value)


def test_a_read_changes_nothing_whatever_the_draft_says() -> None:
    with pytest.raises(NotSerializable, match="only reads; it changes nothing"):
        read_draft(json.dumps(GOOD), ToolSpec("freeze", Effect.READ, args_schema=FREEZE.args_schema))


def test_the_shape_of_an_answer_holds_no_value() -> None:
    seen = {"name": "Ana", "orders": [{"id": 7, "paid": True, "sum": 1.5}], "note": None}
    shape = {
        "name": "string",
        "orders": [{"id": "integer", "paid": "boolean", "sum": "number"}],
        "note": "null",
    }
    assert shape_of(seen) == shape
