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


@each_row(
    ("answer", "wrong"),
    [
        ({"id": "a", "total": 1}, None),
        ({"id": "a"}, "the whole: 'total' is a required property"),
        ({"id": "a", "total": "1"}, "total: '1' is not of type 'integer'"),
        ({"id": "a", "total": 1, "x": 2}, "the whole: Additional properties are not allowed"),
        ("a text", "the whole: 'a text' is not of type 'object'"),
        (json.dumps({"id": "a", "total": 1}), "the whole:"),
    ],
)
def test_an_answer_of_another_form_is_named(answer: object, wrong: str | None) -> None:
    schema = schema_for(tool(), [Answer({"id": f"o{n}", "total": n}) for n in range(5)])
    assert schema is not None
    said = schema.breaks(Answer(answer))
    assert (said is None) if wrong is None else said.startswith(wrong)


def test_json_in_text_has_a_form_too() -> None:
    schema = schema_for(tool(), [Answer(json.dumps({"id": f"o{n}"})) for n in range(5)])
    assert schema is not None
    assert schema.breaks(Answer('{"id": "x"}')) is None
    assert schema.breaks(Answer('{"id": 5}')) == "id: 5 is not of type 'string'"
    assert schema.breaks(Answer("no order")) is not None


def test_a_table_by_id_may_have_another_row() -> None:
    rows = [Answer({f"o{n}{k}": {"total": k} for k in range(n)}) for n in range(1, 6)]
    schema = schema_for(tool(), rows)
    assert schema is not None
    assert schema.breaks(Answer({"new": {"total": 5}})) is None
    assert schema.breaks(Answer({"new": {"total": "5"}})) is not None


def test_too_few_recordings_say_nothing() -> None:
    assert schema_for(tool(), [Answer({"id": "a"})] * 2) is None


def test_a_declaration_that_recordings_break_is_not_believed() -> None:
    schema = schema_for(tool({"type": "string"}), [Answer({"id": "a"})] * 3)
    assert schema is not None
    assert schema.form == "seen"


def test_a_declaration_that_says_little_is_held_together_with_the_recordings() -> None:
    schema = schema_for(tool({"type": "object"}), [Answer({"id": f"o{n}"}) for n in range(6)])
    assert schema is not None
    assert schema.breaks(Answer({})) == "the whole: 'id' is a required property"
    assert schema.breaks(Answer({"id": "a", "note": "declared tools may have more"})) is None


def test_failures_and_updates_have_no_form() -> None:
    assert declared(ORDER).breaks(Answer(error="gone")) is None
    assert declared(ORDER).breaks(Answer(update={"a": 1})) is None


def test_structured_content_is_what_an_mcp_schema_is_of() -> None:
    schema = declared(ORDER, "structured")
    blocks = [{"type": "text", "text": "{}"}]
    assert schema.breaks(Answer(blocks, artifact={"structured_content": {"id": "a"}})) is None
    assert schema.breaks(Answer(blocks, artifact={"structured_content": {}})) is not None
    assert schema.breaks(Answer(blocks)) is None


def test_a_model_shown_as_text_names_its_fields() -> None:
    schema = declared(ORDER, "text")
    assert schema.breaks(Answer("id='a' total=3")) is None
    assert schema.breaks(Answer("order a")) == "the whole: 'id=' is missing from the text"
    assert schema.breaks(Answer({"id": "a"})) == "the whole: a text was expected, not a dict"


@each_row("url", ["http://169.254.169.254/latest", "file:///etc/passwd", "http://x.example/s"])
def test_a_reference_that_leads_outside_is_never_followed(monkeypatch, url: str) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    assert declared({"$ref": url}).breaks(Answer({"id": 1})) is None


def test_a_foreign_regular_expression_is_not_run() -> None:
    schema = declared({"type": "string", "pattern": "(a+)+$"})
    assert schema.breaks(Answer("a" * 60 + "!")) is None
    kept = declared(
        {"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]}
    )
    assert kept.breaks(Answer({})) is not None


@each_row("schema", [{"type": 7}, {"enum": "x"}, {"title": "x" * 100_000}])
def test_a_schema_that_is_none_declares_nothing(schema: dict) -> None:
    assert schema_for(tool(schema), ()) is None


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
