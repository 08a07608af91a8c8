"""What a rule names is taken out of everything before it is stored, and what it joined stays joined."""

import asyncio
import json
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.adapters.traces.importing import import_traces
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.replay.redaction import Redactor, parse_rules, redact_episode
from dreamgym_kit.replay.transfer import export_jsonl
from dreamgym_kit.types import Answer, Call, Effect, Environment, ToolSpec, Transition, history_digest

CARD = "4111 1111 1111 1111"


def redactor(*rules: str, key: bytes = b"one file") -> Redactor:
    return Redactor(parse_rules(rules), key=key)


@each_row(
    ("rule", "text", "left"),
    [
        ("email", "write to Ann.B+x@mail.example.co.uk now", "write to <email> now"),
        ("email", "?to=ann%40example.com&x=1", "?to=<email>&x=1"),
        ("email", "a@b and @home", "a@b and @home"),
        (
            "card",
            f"card {CARD}, {CARD.replace(' ', '')}, 4111-1111-1111-1111.",
            "card <card>, <card>, <card>.",
        ),
        (
            "card",
            "order 4111111111111112 of 1700000000000000000",
            "order 4111111111111112 of 1700000000000000000",
        ),
        ("key", "Authorization: Bearer abcdef0123456789", "Authorization: Bearer <key>"),
        ("key", "sk-proj-abcdefghij0123456789 AKIAABCDEFGHIJKLMNOP", "<key> <key>"),
        (
            "key",
            "postgres://me:hunter2@db/x password=hunter22, ok",
            "postgres://me:<key>@db/x password=<key>, ok",
        ),
        ("key", "ghp_abcdefghijklmnopqrstuv.", "<key>."),
        ("key", "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY----- end", "<key> end"),
        ("key", "the token was refused", "the token was refused"),
        (r"regex:ORD-\d+", "see ORD-17 and ORD-18", "see <redacted> and <redacted>"),
        (r"regex:name is (?P<secret>\w+)", "my name is Cleo", "my name is <redacted>"),
        ("field:customer", "{'customer': 'Cleo', 'n': 1}", "{'customer': '<customer>', 'n': 1}"),
        ("field:customer", '{"customer": "Cleo", "cut off', '{"customer": "<customer>", "cut off'),
    ],
)
def test_rules_take_out_what_they_name_and_leave_the_rest(rule: str, text: str, left: str) -> None:
    assert without_marks(redactor(rule).text(text)) == left


def without_marks(text: str) -> str:
    import re

    return re.sub(r"<([a-z_]+)-[0-9a-f]{10}>", r"<\1>", text)


def test_one_value_has_one_placeholder_in_a_file_and_another_in_the_next() -> None:
    first = redactor("email")
    assert first.text("a@b.com") == first.text("to a@b.com")[3:]
    assert first.text("a@b.com") != first.text("c@b.com")
    assert first.text("a@b.com") != redactor("email", key=b"another file").text("a@b.com")
    assert first.counts["email"] == 5


def test_a_field_is_found_at_any_depth_in_json_text_and_in_other_places_once_it_is_learned() -> None:
    rules = redactor("field:Customer_ID")
    answer = {"rows": json.dumps([{"customer_id": "C-1001", "age": 4}]), "note": "C-1001 called, not C-10011"}
    rules.learn(answer)
    mark = rules.text("C-1001")
    assert mark.startswith("<customer_id-")
    assert rules.value(answer) == {
        "rows": json.dumps([{"customer_id": mark, "age": 4}]),
        "note": f"{mark} called, not C-10011",
    }
    assert rules.value({"id": "C-1001", "n": 1001, "C-1001": True}) == {"id": mark, "n": 1001, mark: True}


def test_numbers_and_lists_under_a_field_and_cards_that_are_numbers_are_taken_out() -> None:
    rules = redactor("field:pin", "card")
    found = rules.value({"pin": 1234, "more": {"pin": [1, True, None, ""]}, "card": 4111111111111111, "n": 7})
    text = without_marks(json.dumps(found))
    assert json.loads(text) == {
        "pin": "<pin>",
        "more": {"pin": ["<pin>", True, None, ""]},
        "card": "<card>",
        "n": 7,
    }


def test_what_overlaps_is_taken_out_as_one() -> None:
    text = redactor(r"regex:ann@\w+", "email", r"regex:\w+\.com now").text("ann@example.com now")
    assert without_marks(text) == "<email>"


@each_row(
    ("rule", "said"),
    [
        ("emails", "redact: 'emails' is no rule; use email, key, card, all, field:NAME or regex:PATTERN."),
        ("field:", "redact: 'field:' is no rule"),
        ("regex:(", "redact: regex '(' cannot be used"),
        ("regex:x*", "redact: regex 'x*' fits the empty text"),
    ],
)
def test_a_rule_that_is_none_is_named(rule: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_rules([rule])
    assert str(caught.value).startswith(said)


SECRETS = ("ann@example.com", "sk-live-0123456789abcdefgh", "4111111111111111", "Cleopatra", "hunter2222")


def trace() -> list[dict[str, Any]]:
    mail, key, card, name, password = SECRETS
    asked = [
        (
            "find_customer",
            {"name": name, "mail": mail},
            json.dumps({"customer_name": name, "card": int(card)}),
        ),
        ("update_customer", {"customer_name": name, mail: key}, f"{name} <{mail}> has card {card}"),
        (
            "find_customer",
            {"name": name, "mail": mail},
            {"password": password, "owner": {"customer_name": [name]}},
        ),
    ]
    messages: list[dict[str, Any]] = []
    for number, (tool, args, content) in enumerate(asked):
        called = {"id": f"{mail}/{number}", "function": {"name": tool, "arguments": args}}
        messages.append({"role": "assistant", "tool_calls": [called]})
        message = {"type": "tool", "tool_call_id": called["id"], "content": content}
        messages.append(
            {**message, "status": "error"} if number == 2 and isinstance(content, str) else message
        )
    failed = {"id": "x", "function": {"name": "find_customer", "arguments": repr({"name": name})}}
    messages += [
        {"role": "assistant", "tool_calls": [failed]},
        {
            "type": "tool",
            "tool_call_id": "x",
            "status": "error",
            "content": f"no {name}, password={password}",
        },
        {"role": "tool", "tool_call_id": mail, "content": "lost"},
    ]
    return [{"id": f"chat with {mail}", "messages": messages}]


def test_canary_nothing_that_a_rule_names_is_in_the_database_or_in_what_is_told(tmp_path: Path) -> None:
    (path := tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, trace())))
    rules = parse_rules(["all", "field:customer_name"])
    for wanted, database in ((None, "plain.db"), (rules, "clean.db")):
        with closing(SqliteStore(tmp_path / database)) as store:
            report = import_traces(path, store, redaction=wanted)
            export_jsonl(store, tmp_path / f"{database}.jsonl")
        assert (report.new, report.unread) == (4, 1)
    assert report.redacted.keys() == {"email", "key", "card", "customer_name", "password"}
    for secret in SECRETS:
        assert secret in " ".join(everything(tmp_path / "plain.db"))  # the test would see a leak
        assert not [text for text in everything(tmp_path / "clean.db") if secret in text]
        assert secret not in repr(report)
    for file in tmp_path.glob("clean.db*"):
        assert not [secret for secret in SECRETS if secret.encode() in file.read_bytes()]


def everything(database: Path) -> list[str]:
    """Every value of every table, and of the export beside it (tables without contents tell none)."""
    found = [database.with_name(f"{database.name}.jsonl").read_text()]
    with closing(sqlite3.connect(database)) as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            with suppress(sqlite3.OperationalError):
                found += [
                    str(value) for row in connection.execute(f'SELECT * FROM "{table}"') for value in row
                ]
    return found


def test_what_a_named_argument_told_is_taken_out_of_earlier_answers_too(tmp_path: Path) -> None:
    early = {"id": "a", "function": {"name": "list_people", "arguments": {}}}
    late = {"id": "b", "function": {"name": "get_person", "arguments": {"person": "Cleopatra"}}}
    messages = [
        {"role": "assistant", "tool_calls": [early]},
        {"role": "tool", "tool_call_id": "a", "content": "Cleopatra, Marc"},
        {"role": "assistant", "tool_calls": [late]},
        {"role": "tool", "tool_call_id": "b", "content": "age 4"},
    ]
    (path := tmp_path / "rows.jsonl").write_text(json.dumps({"messages": messages}))
    import_traces(path, store := MemoryStore(), redaction=parse_rules(["field:person"]))
    first, second = store.scan()
    assert first.answer.content == f"{second.call.args['person']}, Marc"


def test_importing_a_redacted_file_again_adds_nothing(tmp_path: Path) -> None:
    (path := tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, trace())))
    store, rules = MemoryStore(), parse_rules(["all", "field:customer_name"])
    assert [import_traces(path, store, redaction=rules).new for _ in range(2)] == [4, 0]


def test_a_dream_still_answers_from_a_redacted_recording_after_the_same_writes() -> None:
    def seen(step: int, tool: str, effect: Effect, after: str) -> Transition:
        return Transition(Call(tool, {"mail": "a@b.com"}), Answer(f"{step}"), effect, "e", step, after=after)

    write = seen(2, "set", Effect.WRITE, "")
    rows = [
        seen(1, "get", Effect.READ, ""),
        write,
        seen(3, "get", Effect.READ, history_digest([write.call.key])),
    ]
    rules = redactor("email")
    clean = redact_episode(rows[::-1], rules)
    assert [row.step for row in clean] == [3, 2, 1]
    dream = RecordedExperience(lambda world, tenant: clean)
    args = {"mail": rules.text("a@b.com")}
    tool = ToolSpec("get", Effect.READ)
    for after, content in (("", "1"), (history_digest([Call("set", args).key]), "3")):
        place = Situation(Environment(), "", "x", (), after, tool)
        assert asyncio.run(dream.answer(Call("get", args), place)).content == content
