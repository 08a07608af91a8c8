"""What an answer contradicts, by the names, calls and facts that a tool of nobody's would have."""

import json
from typing import Any

import pytest
from deciding_double import ScriptedChatDouble

from dreamgym_kit.dream.contradictions import contradictions
from dreamgym_kit.dream.user import PersonaUser
from dreamgym_kit.types import Answer, Call, Effect, ToolSpec, Transition

WRITES = ("create", "update", "delete", "remove", "add", "deposit", "cancel")


def spec(tool: str, **schema: Any) -> ToolSpec:
    return ToolSpec(tool, Effect.WRITE if tool.startswith(WRITES) else Effect.READ, answer_schema=schema)


def told(*calls: tuple[str, dict[str, Any], Any]) -> list[Transition]:
    return [
        Transition(Call(tool, args), Answer(content), spec(tool).effect, "e", step)
        for step, (tool, args, content) in enumerate(calls, start=1)
    ]


def check(
    before: list[tuple[str, dict[str, Any], Any]], call: tuple[str, dict[str, Any]], answer: Any
) -> list[str]:
    given = answer if isinstance(answer, Answer) else Answer(answer)
    return contradictions(Call(*call), given, spec=spec(call[0]), history=told(*before))


DOC = {"doc_id": "D1", "title": "Plan", "owner_id": "U1", "state": "draft"}
GET = ("get_doc", {"doc_id": "D1"})
RATE = ("get_rate", {"currency": "EUR"})
LIST = ("list_docs", {"owner_id": "U1"})
MADE = ("create_doc", {"owner_id": "U1", "title": "New"}, {"doc_id": "D9", "title": "New"})
TAGS = ("list_tags", {"doc_id": "D1"})
NEW = {"doc_id": "D9", "title": "New", "owner_id": "U1", "state": "draft"}


@pytest.mark.parametrize(
    ("before", "call", "answer", "why"),
    [
        ([(*GET, DOC)], GET, {**DOC, "title": "Other"}, "title of doc D1 is known to be 'Plan'"),
        ([(*LIST, [DOC])], GET, {**DOC, "state": "sent"}, "state of doc D1"),
        ([(*LIST, [DOC])], ("search_docs", {"query": "x"}), [{**DOC, "title": "X"}], "title of doc D1"),
        ([(*GET, {**DOC, "size": 10**400})], GET, {**DOC, "size": 5}, "size of doc D1"),
        (
            [(*GET, DOC)],
            ("get_doc", {"doc_id": "D1", "lang": "en"}),
            {**DOC, "title": "X"},
            "title of doc D1",
        ),
        ([(*GET, DOC)], GET, Answer(error="doc D1 not found"), "it is there"),
        ([(*GET, DOC)], GET, "Error: doc not found", "it is there"),
        ([], GET, {**DOC, "doc_id": "D2"}, "D1 was asked for"),
        ([(*LIST, [DOC]), MADE], LIST, [DOC], "D9 was made"),
        ([(*LIST, {"docs": [DOC], "total": 1}), MADE], LIST, {"docs": [NEW], "total": 1}, "D1 was listed"),
        ([MADE], LIST, [], "D9 was made"),
        ([(*GET, DOC)], LIST, [], "D1 was told of with owner_id 'U1'"),
        ([(*LIST, [])], GET, DOC, "D1 is not in it"),
        ([(*LIST, [DOC]), MADE], LIST, [DOC, NEW, {**NEW, "doc_id": "D8"}], "D8 was not listed before"),
        ([("delete_doc", {"doc_id": "D1"}, "deleted")], GET, DOC, "D1 was removed"),
        ([(*LIST, [DOC]), ("delete_doc", {"doc_id": "D1"}, "ok")], LIST, [DOC], "D1 was removed"),
        ([("update_doc", {"doc_id": "D1", "state": "sent"}, "ok")], GET, DOC, ""),
        ([(*GET, DOC), ("update_doc", {"doc_id": "D1", "state": "sent"}, "ok")], GET, DOC, "to be 'sent'"),
        ([(*GET, DOC)], MADE[:2], {**NEW, "doc_id": "D1"}, "D1 is there already"),
        ([], ("update_doc", {"doc_id": "D1", "state": "sent"}), {**DOC, "doc_id": "D3"}, "in the call"),
        (
            [
                ("listGroups", {}, [{"id": 1, "name": "A"}]),
                ("removeMember", {"groupId": 1, "userId": 5}, "ok"),
            ],
            ("listMembers", {"groupId": 1}),
            [{"userId": 5}],
            "was taken out",
        ),
        (
            [("get_rate", {"currency": "EUR"}, {"rate": 2})],
            ("get_rate", {"currency": "EUR"}),
            {"rate": 3},
            "rate",
        ),
        ([("get_motd", {}, "Hello")], ("get_motd", {}), "Bye", "the same call"),
        ([(*TAGS, ["a", "b"]), ("update_doc", {"doc_id": "D2"}, "ok")], TAGS, ["a"], "b was listed before"),
        ([(*TAGS, ["a", "b"]), ("update_doc", {"doc_id": "D2"}, "ok")], TAGS, ["a", "b", "c"], "c was not"),
        ([(*GET, DOC)], ("get_doc", {"doc_id": "D1", "full": True}), {**DOC, "title": "X"}, "title of doc"),
        (
            [("get_doc", {"doc_id": "D1", "full": True}, DOC)],
            ("get_doc", {"doc_id": "D1", "full": False}),
            {**DOC, "title": "X"},
            "title of doc D1",
        ),
        ([(*LIST, {"docs": [DOC], "total": 1})], LIST, {"docs": [DOC], "total": 5}, "there are no more"),
        ([(*GET, {**DOC, "price": 10})], GET, {**DOC, "price": "12 EUR"}, "price of doc D1"),
        ([(*GET, {**DOC, "price": "10 USD"})], GET, {**DOC, "price": "10 EUR"}, "price of doc D1"),
    ],
)
def test_what_was_told_is_not_contradicted(before: Any, call: Any, answer: Any, why: str) -> None:
    wrong = check(before, call, answer)
    assert any(why in each for each in wrong) if why else wrong == []


@pytest.mark.parametrize(
    ("before", "call", "answer"),
    [
        ([], GET, DOC),
        ([], GET, Answer(error="doc D1 not found")),
        ([(*GET, DOC)], GET, Answer(error="timed out")),
        ([(*GET, DOC)], ("get_invoice", {"doc_id": "D1"}), Answer(error="no invoice with doc D1")),
        ([(*LIST, [DOC]), MADE], LIST, [DOC, NEW]),
        ([(*LIST, [DOC]), ("delete_doc", {"doc_id": "D1"}, "ok")], LIST, []),
        ([("delete_doc", {"doc_id": "D1"}, "ok")], GET, {"doc_id": "D1", "deleted": True}),
        ([MADE], ("list_recent_docs", {"owner_id": "U1"}), []),
        ([MADE], ("list_docs", {"owner_id": "U2"}), []),
        ([MADE], ("list_docs", {"owner_id": "U1", "limit": 1}), [DOC]),
        ([(*RATE, {"amount": 5}), ("deposit", {"amount": 5}, "ok")], RATE, {"amount": 10}),
        # a row that refers to a thing says nothing of it, and two kinds may share a number
        (
            [("get_order", {"order_id": 1}, {"order_id": 1, "payments": [{"card_id": "C1", "amount": 5}]})],
            ("get_order", {"order_id": 2}),
            {"order_id": 2, "payments": [{"card_id": "C1", "amount": 7}]},
        ),
        # what else was asked may decide what a thing shows
        (
            [("get_doc", {"doc_id": "D1", "lang": "de"}, {**DOC, "title": "Vorhaben"})],
            ("get_doc", {"doc_id": "D1", "lang": "en"}),
            DOC,
        ),
        # what loses a tag or all of its rows is not removed, and what is removed may be kept, marked as such
        ([(*GET, DOC), ("remove_tag", {"doc_id": "D1", "tag": "a"}, "ok")], GET, {**DOC, "tags": []}),
        ([(*LIST, [DOC]), ("delete_all_docs", {"owner_id": "U1"}, "ok")], LIST, []),
        ([("delete_doc", {"doc_id": "D1"}, "ok")], GET, {"doc_id": "D1", "active": False}),
        ([], ("get_doc", {"doc_id": "d1"}), DOC),
        # a list may say that it goes on
        ([(*LIST, {"docs": [DOC], "total": 2})], ("get_doc", {"doc_id": "D9"}), NEW),
        ([("get_doc", {"doc_id": "D9"}, NEW)], LIST, {"docs": [DOC], "next_page": 2}),
        # a status and what a row is a part of name nothing
        (
            [("get_page", {"url": "a"}, {"code": 200, "body": "x"})],
            ("get_page", {"url": "b"}),
            {"code": 200, "body": "y"},
        ),
        (
            [("list_cities", {"country_code": "DE"}, [{"name": "Bonn", "country_code": "DE"}])],
            ("list_cities", {"country_code": "DE", "page": 2}),
            [{"name": "Ulm", "country_code": "DE"}],
        ),
        ([("get_user", {"id": 1}, {"id": 1, "name": "A"})], ("get_team", {"id": 1}), {"id": 1, "name": "B"}),
        ([(*LIST, [DOC]), ("cancel_doc", {"doc_id": "D1"}, "ok")], LIST, []),
        ([("delete_doc", {"doc_id": "D1"}, "Error: doc not found")], GET, DOC),
        # a date or a language decides what the rows of a search show
        (
            [("search_docs", {"query": "x", "date": "2026-01-01"}, [{**DOC, "seats": 4}])],
            ("search_docs", {"query": "x", "date": "2026-01-02"}),
            [{**DOC, "seats": 1}],
        ),
        # a status with its text is a value, not a thing
        (
            [(*GET, {**DOC, "state": {"code": 2, "text": "sent"}})],
            ("get_doc", {"doc_id": "D2"}),
            {"doc_id": "D2", "state": {"code": 2, "text": "Sent to the client"}},
        ),
        ([(*GET, {**DOC, "now": "10:00"})], GET, {**DOC, "now": "10:01"}),
        ([("get_server_time", {}, "10:00")], ("get_server_time", {}), "10:01"),
        # one value in two spellings
        ([(*GET, {**DOC, "price": 10, "of": "#u1"})], GET, {**DOC, "price": "10 EUR", "of": "U1"}),
        ([], GET, {**DOC, "doc_id": "#d1"}),
        # a write that names a list's owner or its kind may change its items
        ([(*TAGS, ["a", "b"]), ("remove_tag", {"doc_id": "D1", "tag": "a"}, "ok")], TAGS, ["b"]),
        ([("get_stock", {"of": "x", "at": "y"}, {"of": "x", "at": "y"})], ("list_names", {"of": "x"}), ["a"]),
        ([(*TAGS, ["a", "b"]), ("delete_all_tags", {}, "ok")], TAGS, []),
    ],
)
def test_what_nothing_tells_may_be_made_up(before: Any, call: Any, answer: Any) -> None:
    assert check(before, call, answer) == []


def test_facts_of_the_environment_hold_for_every_episode_until_a_write() -> None:
    facts = [{"tool": "get_doc", "args": {"doc_id": "D1"}, "answer": DOC}]
    other = Answer({**DOC, "title": "Other", "state": "sent"})
    call = Call(*GET)
    assert contradictions(call, other, spec=spec("get_doc"), facts=facts)
    written = told(("update_doc", {"doc_id": "D1", "title": "Other"}, "ok"))
    assert contradictions(call, other, spec=spec("get_doc"), history=written, facts=facts) == []


def test_the_declared_form_comes_first() -> None:
    tool = spec("get_doc", type="object", required=["doc_id"])
    assert "declared form" in contradictions(Call(*GET), Answer([DOC]), spec=tool)[0]


@pytest.mark.parametrize(
    ("text", "reply", "requests"),
    [
        ("It is CC-1234.", "I do not know that.", 2),
        ("write to me@home.example", "I do not know that.", 2),
        ("It is CC-4100, 2 seats.", "It is CC-4100, 2 seats.", 1),
        ("order o7 please", "order o7 please", 1),
    ],
)
async def test_a_user_names_no_identifier_that_they_were_not_told(
    text: str, reply: str, requests: int
) -> None:
    said = json.dumps({"reasoning": "", "action": "reply", "text": text})
    double = ScriptedChatDouble(f"Here it is:\n```json\n{said}\n```")
    user = PersonaUser(double, {"goal": "a seat", "knows": {"cost centre": "CC-4100"}})
    said = await user.reply([{"role": "assistant", "content": "Which cost centre, for order o7?"}])
    assert (said, len(double.requests)) == (reply, requests)


def test_a_write_that_timed_out_may_have_taken_effect() -> None:
    lost = Answer(error="no answer after 30 s", error_type="TimeoutError")
    refused = Answer(error="doc D1 is locked", error_type="ToolException")
    for failure, contradicted in ((lost, False), (refused, True)):
        before = [
            *told((*GET, DOC)),
            Transition(Call("send_doc", {"doc_id": "D1"}), failure, Effect.WRITE, "e", 2),
        ]
        answer = Answer({**DOC, "state": "sent"})
        assert bool(contradictions(Call(*GET), answer, spec=spec("get_doc"), history=before)) is contradicted
