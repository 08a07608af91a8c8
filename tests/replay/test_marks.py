"""Marks keep identity: equal secrets meet again in a dream, and another secret is another argument."""

import asyncio
import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from dreamgym_kit.adapters.stores.factory import salt_file, salt_of
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.dream.chain import chain_over
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.replay.masking import Masker, process_masker
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.settings.secrets import keep_secret
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, ToolSpec, Transition

MASKER = Masker(salt=b"salt")


def row(masker: Masker, args: Mapping[str, str], answer: str, number: int) -> Transition:
    call = Call("login", masker.plain(dict(args)))
    return Transition(call, Answer(answer, source=Source.REAL), Effect.READ, f"e{number}", 1)


def asked(rows: list[Transition], args: Mapping[str, str]) -> Answer:
    tool = ToolSpec("login", Effect.READ)
    situation = Situation(Environment(), "t", "d", (), "", tool)
    call = Call("login", MASKER.plain(dict(args)))
    return asyncio.run(chain_over(rows, threshold=0.5).answer(call, situation))


ROWS = [row(MASKER, {"user": f"user{n}", "password": f"right-{n}"}, f"welcome user{n}", n) for n in range(12)]


def test_equal_secrets_have_equal_marks_and_masking_again_changes_none() -> None:
    once = MASKER.plain({"password": "hunter2", "note": "password=hunter2", "header": "Bearer abcdef123456"})
    assert once["password"] == once["note"].removeprefix("password=")
    assert MASKER.plain(once) == once
    assert MASKER.plain({"authorization": once["header"]}) == {"authorization": once["header"]}
    others = {Masker(salt=b"salt").mark("hunter3"), Masker(salt=b"other").mark("hunter2"), once["password"]}
    assert len(others) == 3
    assert "hunter2" not in str(once)


@pytest.mark.parametrize(
    ("args", "given"),
    [
        ({"user": "user1", "password": "right-1"}, "welcome user1"),
        ({"user": "user1", "password": "wrong"}, None),
        ({"user": "user1", "password": "right-2"}, None),
    ],
)
def test_a_dream_answers_to_the_recorded_secret_and_to_no_other(
    args: Mapping[str, str], given: str | None
) -> None:
    answer = asked(ROWS, args)
    assert (None if answer.unanswered else answer.content) == given


def test_a_recorded_key_answers_beside_arguments_that_were_never_recorded() -> None:
    rows = [row(MASKER, {"api_key": "k-1", "id": f"o{n}"}, "no such order", n) for n in range(12)]
    known, other = ({"api_key": key, "id": "o99"} for key in ("k-1", "k-2"))
    assert asked(rows, other).unanswered
    assert "was not recorded with this secret in 'api_key'" in asked(rows, other).why
    assert "this secret" not in asked(rows, known).why


@pytest.mark.parametrize(("told", "known"), [("tok-3-aZ9x", True), ("tok-99-aZ9x", False)])
def test_a_token_that_the_dream_told_is_known_with_what_another_session_asked(told: str, known: bool) -> None:
    rows = []
    for n in range(30):
        token, order = f"tok-{n}-aZ9x", f"W{n % 6}"
        steps = [("login", {"user": "eva"}, {"session_token": token})]
        steps += [("order", {"session_token": token, "id": order}, {"id": order, "state": f"s{n % 6}"})]
        for number, (tool, args, answer) in enumerate(steps, 1):
            call, kept = Call(tool, MASKER.plain(args)), Answer(MASKER.plain(answer), source=Source.REAL)
            rows.append(Transition(call, kept, Effect.READ, f"e{n}", number))
    history = (replace(rows[6], episode="d"),)  # the login of the fourth session
    call = Call("order", MASKER.plain({"session_token": told, "id": "W5"}))
    situation = Situation(Environment(), "t", "d", history, "", ToolSpec("order", Effect.READ))
    answer = asyncio.run(chain_over(rows, threshold=0.5).answer(call, situation))
    assert answer.content == ({"id": "W5", "state": "s5"} if known else None)


def test_a_mark_without_identity_is_some_secret() -> None:
    old = [row(Masker(), {"user": "eva", "password": "x"}, "welcome", 1)]
    assert asked(old, {"user": "eva", "password": "any"}).content == "welcome"
    assert asked(old, {"user": "bob", "password": "any"}).unanswered


def test_the_salt_lies_beside_the_buffer_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "b.db")
    first = salt_of(store, Settings())
    path = salt_file(tmp_path / "b.db", Settings())
    assert (path.name, stat.S_IMODE(path.stat().st_mode)) == ("b.db.salt", 0o600)
    assert salt_of(store, Settings()) == first != salt_of(None, Settings())
    path.unlink()
    store.put([row(MASKER, {"user": "eva", "password": "x"}, "welcome", 1)])
    store.close()
    monkeypatch.setattr("os.link", lambda *_: os.stat("/proc/self/none"))  # an OSError: no links there
    with pytest.warns(UserWarning, match="Overwrite it with the b.db.salt"):
        assert salt_of(store, Settings()) not in (None, first, salt_of(None, Settings()))
    assert [one.name for one in tmp_path.iterdir() if "salt" in one.name] == ["b.db.salt"]
    path.write_text("no salt")
    with pytest.raises(UserError, match="is not a salt"):
        salt_of(store, Settings())


def test_settings_add_variables_fields_and_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_LOGIN", "plain-but-named")
    text = '[secrets]\nvariables = ["ACME_LOGIN"]\nfields = ["badge"]\npatterns = ["acme:([0-9]+)"]\n'
    keep_secret(parse_settings(text))
    try:
        given = {"badge": "B7", "note": "acme:4711 plain-but-named badge=B712"}
        masked = process_masker().plain(given)
    finally:
        keep_secret(Settings())
    assert masked == {"badge": "<masked>", "note": "acme:<masked> <masked> badge=<masked>"}
    with pytest.raises(UserError, match="matches an empty text"):
        keep_secret(replace(parse_settings(text.replace("acme:([0-9]+)", "x*"))))
