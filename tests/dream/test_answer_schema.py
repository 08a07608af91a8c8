"""The form of a tool's answers: declared or as recorded, never fetched, never run."""

import asyncio
import json
import socket

import pytest
from deciding_double import ScriptedChatDouble, decided
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.dream.answer_schema import AnswerSchema, documented, infer, read_document, schema_for
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.dream.observed import observation
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, ToolSpec, Transition

ORDER = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(-9, 9), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
    ),
    max_leaves=6,
)


def tool(schema: dict | None = None, form: str = "value") -> ToolSpec:
    return ToolSpec("get_order", Effect.READ, answer_schema=schema or {}, answer_form=form)


def declared(schema: dict, form: str = "value") -> AnswerSchema:
    found = schema_for(tool(schema, form), ())
    assert found is not None
    return found


@given(st.lists(values, min_size=1, max_size=8))
def test_what_was_recorded_fits_the_form_read_from_it(recorded: list) -> None:
    schema = AnswerSchema(infer([observation(Answer(value)) for value in recorded]), "seen")
    assert [schema.breaks(Answer(value)) for value in recorded] == [None] * len(recorded)


def test_a_declaration_that_recordings_break_is_not_believed() -> None:
    schema = schema_for(tool({"type": "string"}), [Answer({"id": "a"})] * 3)
    assert schema is not None
    assert schema.form == "seen"


BLOCKS = [{"type": "text", "text": "{}"}]
ORDERS = [{"id": f"o{n}", "total": n} for n in range(6)]
IN_TEXT = [json.dumps({"id": f"o{n}"}) for n in range(5)]
TABLES = [{f"o{n}{k}": {"total": k} for k in range(n)} for n in range(1, 6)]
PATTERN = {"type": "string", "pattern": "(a+)+$"}
NAMED_SO = {"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]}
RIGHT, FORMLESS = "", None  # the answer has the form; nobody knows a form


@each_row(
    ("schema", "recorded", "answer", "wrong"),
    [
        (tool(), ORDERS, Answer({"id": "a", "total": 1}), RIGHT),
        (tool(), ORDERS, Answer({"id": "a"}), "the whole: 'total' is a required property"),
        (tool(), ORDERS, Answer({"id": "a", "total": "1"}), "total: '1' is not of type 'integer'"),
        (tool(), ORDERS, Answer({"id": "a", "total": 1, "x": 2}), "the whole: Additional properties"),
        (tool(), ORDERS, Answer("a text"), "the whole: 'a text' is not of type 'object'"),
        (tool(), ORDERS, Answer('{"id": "a", "total": 1}'), "the whole:"),
        (tool(), ORDERS[:2], Answer({}), FORMLESS),
        (tool(), IN_TEXT, Answer('{"id": "x"}'), RIGHT),
        (tool(), IN_TEXT, Answer('{"id": 5}'), "id: 5 is not of type 'string'"),
        (tool(), IN_TEXT, Answer("no order"), "the whole:"),
        (tool(), TABLES, Answer({"new": {"total": 5}}), RIGHT),
        (tool(), TABLES, Answer({"new": {"total": "5"}}), "new.total: "),
        # a declaration that says little holds together with the recordings
        (tool({"type": "object"}), ORDERS, Answer({}), "the whole: 'id' is a required property"),
        (tool({"type": "object"}), ORDERS, Answer({"id": "a", "total": 1, "note": "more"}), RIGHT),
        (tool(ORDER), [], Answer(error="gone"), RIGHT),
        (tool(ORDER), [], Answer(update={"a": 1}), RIGHT),
        (tool(ORDER, "structured"), [], Answer(BLOCKS, artifact={"structured_content": {"id": "a"}}), RIGHT),
        (
            tool(ORDER, "structured"),
            [],
            Answer(BLOCKS, artifact={"structured_content": {}}),
            "the whole: 'id'",
        ),
        (tool(ORDER, "structured"), [], Answer(BLOCKS), RIGHT),
        (tool(ORDER, "text"), [], Answer("id='a' total=3"), RIGHT),
        (tool(ORDER, "text"), [], Answer("order a"), "the whole: 'id=' is missing from the text"),
        (tool(ORDER, "text"), [], Answer({"id": "a"}), "the whole: a text was expected, not a dict"),
        # a regular expression of others is not run; a field may be called so
        (tool(PATTERN), [], Answer("a" * 60 + "!"), RIGHT),
        (tool(NAMED_SO), [], Answer({}), "the whole: 'pattern' is a required property"),
        (tool({"type": 7}), [], Answer(1), FORMLESS),
        (tool({"enum": "x"}), [], Answer(1), FORMLESS),
        (tool({"title": "x" * 100_000}), [], Answer(1), FORMLESS),
    ],
)
def test_an_answer_of_another_form_is_named(
    schema: ToolSpec, recorded: list, answer: Answer, wrong: str | None
) -> None:
    found = schema_for(schema, [Answer(content) for content in recorded])
    if wrong is FORMLESS:
        assert found is None
    else:
        assert (found.breaks(answer) or "").startswith(wrong)
        assert bool(found.breaks(answer)) is bool(wrong)


@each_row("url", ["http://169.254.169.254/latest", "file:///etc/passwd", "http://x.example/s"])
def test_a_reference_that_leads_outside_is_never_followed(monkeypatch, url: str) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    assert declared({"$ref": url}).breaks(Answer({"id": 1})) is None


def test_an_answer_off_the_form_is_repaired_once() -> None:
    model = ScriptedChatDouble(decided(answer='{"id": 5}'), decided(answer='{"id": "a"}'))
    situation = Situation(Environment(), "t", "t.1", [], "", tool(ORDER))
    answer = asyncio.run(ReasonedExperience(model).answer(Call("get_order", {}), situation))
    assert answer.content == {"id": "a"}
    told = model.requests[1].messages[-1].content
    assert "does not have the form of get_order's answers: id: 5 is not of type 'string'" in told
    assert '"properties": {"id": {"type": "string"}}' in model.requests[0].messages[1].content


async def test_an_answer_off_the_form_twice_is_kept_for_the_report() -> None:
    model = ScriptedChatDouble(decided(answer='{"id": 5}'))
    specs = {"get_order": tool(ORDER)}
    session = Session(CallRouter(Mode.DREAM, specs), experience=ReasonedExperience(model), abstain="error")
    call = Call("get_order", {})
    _, place = session.admit(call)
    answer = await session.drive_async(session.flow(call, place))
    assert (answer.source, session.counts["off_schema"]) == (Source.UNANSWERED, 1)
    (kept,) = session.ledger.transitions()
    assert "id: 5 is not of type 'string' (it said: {" in kept.answer.why


def test_an_mcp_answer_is_filled_in_its_text_and_beside_it() -> None:
    blocks = [{"type": "text", "text": json.dumps({"id": "a", "status": "open"})}]
    told = Answer(blocks, artifact={"structured_content": {"id": "a", "status": "open"}})
    seen = Transition(Call("get_order", {"id": "a"}), told, Effect.READ, "e", 1)
    model = ScriptedChatDouble(decided(like=1, leaves=[{"path": "0.text.status", "value": "sent"}]))
    dream = ReasonedExperience(model, retrieve=lambda call, situation: [seen])
    situation = Situation(Environment(), "t", "t.1", [], "", tool(ORDER, "structured"))
    answer = asyncio.run(dream.answer(Call("get_order", {"id": "b2"}), situation))
    assert json.loads(answer.content[0]["text"]) == {"id": "b2", "status": "sent"}
    assert answer.artifact == {"structured_content": {"id": "b2", "status": "sent"}}


SHOP_API = {
    "openapi": "3.0.3",
    "paths": {
        "/orders/{id}": {
            "get": {
                "operationId": "getOrder",
                "responses": {
                    "200": {
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}}
                    },
                    "404": {"$ref": "#/components/responses/Missing"},
                },
            },
            "delete": {"responses": {"204": {"description": "deleted"}}},
        }
    },
    "components": {
        "responses": {"Missing": {"description": "no such order"}},
        "schemas": {
            "Order": {
                "type": "object",
                "required": ["id", "total"],
                "properties": {"id": {"type": "string"}, "total": {"$ref": "#/components/schemas/Money"}},
            },
            "Money": {"type": "number", "nullable": True},
            "Unused": {"type": "object"},
        },
    },
}


@each_row(
    "declared, form, good, bad",
    [
        ({}, "value", {"id": "O1", "total": None}, {"id": "O1", "total": "ten"}),
        ({"type": "object", "additionalProperties": True}, "value", {"id": "O1", "total": 3}, {"id": "O1"}),
        ({"type": "string"}, "json", '{"id": "O1", "total": 3}', "order O1"),
    ],
)
def test_openapi_operation_says_what_a_tool_named_after_it_answers(declared, form, good, bad) -> None:
    (tool,) = documented(
        [ToolSpec("get_order", Effect.READ, "An order.", answer_schema=declared)], [SHOP_API]
    )
    schema = schema_for(tool, ())
    assert tool.description == "An order.\nFails with: 404 no such order"
    assert (schema.form, set(schema.schema["$defs"])) == (form, {"Order", "Money"})
    assert schema.breaks(Answer(good)) is None
    assert schema.breaks(Answer(bad))


def test_openapi_leaves_declared_forms_and_other_tools_alone(tmp_path) -> None:
    own = ToolSpec("getOrder", Effect.READ, answer_schema={"type": "object", "properties": {"x": {}}})
    others = [ToolSpec("delete /orders/{id}", Effect.DESTRUCTIVE), ToolSpec("list_orders", Effect.READ)]
    assert [tool.answer_schema for tool in documented([own, *others], [SHOP_API])] == [
        own.answer_schema,
        {},
        {},
    ]
    file = tmp_path / "api.yaml"
    file.write_text(
        "paths:\n  /a:\n    get: {operationId: see, responses: {200: {schema: {type: integer}}}}\n"
    )
    (tool,) = documented([ToolSpec("see", Effect.READ)], [read_document(file)])
    assert tool.answer_schema == {"type": "integer"}
    for text in ("{", "{}"):
        (tmp_path / "api.json").write_text(text)
        with pytest.raises(UserError, match="Correct `openapi` in the settings"):
            read_document(tmp_path / "api.json")
