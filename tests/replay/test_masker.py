"""What masking takes out, in which spellings, and what it leaves alone."""

import base64
import json
import pickle
from urllib.parse import quote

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.replay.masking import Masker, process_masker, secrets_in
from dreamgym_kit.replay.redaction import Redactor, parse_rules
from dreamgym_kit.settings.secrets import looks_secret

SECRET = 's3cret/7Qx+Wz="k4T'
KEY = "sk-proj-abcdef0123456789ABCDEF"


@each_row(
    "spelled",
    [
        SECRET,
        quote(SECRET, safe=""),
        json.dumps({"a": SECRET}),
        base64.b64encode(f"x:{SECRET}".encode()).decode(),
        base64.urlsafe_b64encode(f"xy:{SECRET}".encode()).decode(),
    ],
)
def test_a_known_secret_is_masked_in_every_spelling(spelled: str) -> None:
    masked = Masker([SECRET]).text(f"before {spelled} after")
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert "<masked>" in masked
    assert not any(part in masked for part in ("7Qx", "czNjcmV0", "3NlY3JldC83"))


@each_row(
    "key",
    [
        KEY,
        "sk_live_4eC39HqLyj",
        "sk_live_4eC39HqL_and-4eC39HqL",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "xoxo-1234567890-abcdef",
        "lsv2_pt_0123456789abcdef0123456789abcdef_0123456789",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        "odt-abcdEFGH12345678ijkl",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
    ],
)
def test_what_settings_refuse_as_a_key_is_masked_and_redacted(key: str) -> None:
    assert looks_secret(key)
    assert Masker().text(f"a {key}") == "a <masked>"
    assert "<key-" in Redactor(parse_rules(["key"]), key=b"k").text(f"a {key}")


@each_row(
    ("text", "masked"),
    [
        (f"key {KEY}!", "key <masked>!"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer <masked>"),
        ("postgres://svc:pw@db/x and http://token@h", "postgres://svc:<masked>@db/x and http://<masked>@h"),
        ('{"client_secret": "hunter2", "a": 1}', '{"client_secret": "<masked>", "a": 1}'),
        ('{\\"password\\": \\"hunter2\\"}', '{\\"password\\": \\"<masked>\\"}'),
        ("Login(password='hunter2', user='eva')", "Login(password='<masked>', user='eva')"),
        ("mail eva@example.com, page_token=abc, the secret is out", None),
        ("order ORD-2026-0001 of 5f2b8c1e-9d1a-4c3e-8a77-1b2c3d4e5f60", None),
    ],
)
def test_forms_of_secrets_in_texts(text: str, masked: str | None) -> None:
    assert Masker().text(text) == (text if masked is None else masked)


@each_row(
    "text",
    [
        "FATAL: password=hunter2 for user",
        "https://x.example/cb?access_token=abc&a=1",
        "Set-Cookie: session=abcdef; HttpOnly",
        "Authorization: Basic dXNlcjpwYXNz",
        "deploy --api-key a1b2c3d4e5",
        "<userPassword>hunter2</userPassword>",
        '{"name": "DB_PASSWORD", "value": "hunter2"}',
        "password is 'hunter2'",
        "SLACK=xoxb-1234567890-abcdef",
        "dop_v1_a1b2c3d4e5f60718293a4b5c6d7e8f901a2b3c4d5e6f708192a3b4c5d6e7f809",  # a rule of gitleaks
    ],
)
def test_what_stands_in_a_text_under_a_name_or_in_a_form_is_masked(text: str) -> None:
    masked = Masker().text(text)
    assert masked.count("<masked>") == 1
    assert Masker().text(masked) == masked


@each_row(
    ("names", "secret"),
    [
        ("dbPassword SecretAccessKey clientSecret session_token x-api-key DB_PASS jwtsecret", True),
        ("page_token nextPageToken token_type primary_key max_tokens passport description pin", False),
    ],
)
def test_names_are_read_in_any_spelling(names: str, secret: bool) -> None:
    given = dict.fromkeys(names.split(), "abc")
    masked = Masker().plain(given)
    assert [value == "<masked>" for value in masked.values()] == [secret] * len(given)


def test_an_identifier_is_no_secret_under_a_name_that_may_be_a_key_s() -> None:
    given = {
        "cache_key": "Zq7vK2pL9xWm4RtY8nB3",
        "order_key": "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        "sid": "5d41402abc4b2a76b9719d911017c592",
        "s3_key": "invoices/2026/01/ORD-2026-0001.pdf",
    }
    assert Masker().plain(given) is given
    assert Masker().plain({"service_key": "Zq7vK2pL9xWm4RtY8nB3"}) == {"service_key": "<masked>"}


PIECES = [
    *(
        SECRET,
        quote(SECRET, safe=""),
        KEY,
        KEY[:9],
        KEY[9:],
        "AKIAIOSFODNN7EXAMPLE",
        "Bearer ",
        "abcdefgh12345",
    ),
    *("https", "://", "svc", ":", "pw", "@", "db", "/", "password", "=", '"', "'", " ", "-", "_", "word"),
    *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "\0", "\n", "é"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


@given(st.lists(texts, max_size=6), st.dictionaries(st.sampled_from(["a", "b", "note", KEY]), texts))
def test_a_value_is_masked_as_each_of_its_texts_is(items: list[str], fields: dict[str, str]) -> None:
    masker = Masker([SECRET])
    text = masker.text
    value = {"rows": [items, [1, {"deep": fields}]]}
    made = {text(name): text(field) for name, field in fields.items()}
    assert masker.plain(value) == {"rows": [[text(item) for item in items], [1, {"deep": made}]]}


@each_row(
    ("secret", "patterns"),
    [
        ("npm_a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p6q7r8", []),
        ("glsa_a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p6_a1b2c3d4", []),
        ("EMP-123456", [r"^EMP-\d{6}$"]),
    ],
)
def test_what_stands_beside_a_secret_does_not_save_it(secret: str, patterns: list[str]) -> None:
    masker = Masker(patterns=patterns)
    assert masker.plain([secret, "tail"]) == ["<masked>", "tail"]
    assert masker.plain({"id": secret, "b": "hello"}) == {"id": "<masked>", "b": "hello"}


def test_plain_data_is_masked_by_name_and_value_and_otherwise_the_same_object() -> None:
    data = {"login": {"password": "short", "next_page_token": "p2"}, "rows": [SECRET, 5, None], SECRET: True}
    assert Masker([SECRET]).plain(data) == {
        "login": {"password": "<masked>", "next_page_token": "p2"},
        "rows": ["<masked>", 5, None],
        "<masked>": True,
    }
    clean = {"a": [1, {"b": "text"}], "password": None}
    assert Masker([SECRET]).plain(clean) is clean


def test_variables_hold_secrets_by_name_by_form_and_in_addresses() -> None:
    environ = {
        "SHOP_API_KEY": "abc123XYZ",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG",
        "DATABASE_URL": "postgres://svc:pw-9Zr4Kp@db/x",
        "WHATEVER": KEY,
        "NAMED": "plain-but-named",
        "PGPASSWORD": "postgres",
        "TOKEN_FILE": "/run/secrets/token",
        "HOME": "/home/eva-1234567",
        "API_KEY": "short",
    }
    found = secrets_in(environ, ["NAMED"])
    assert {"abc123XYZ", "wJalrXUtnFEMI/K7MDENG", "pw-9Zr4Kp", KEY, "plain-but-named"} <= set(found)
    assert not {"postgres", "/run/secrets/token", "/home/eva-1234567", "short"} & set(found)


def test_a_variable_that_is_set_later_is_known_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert process_masker().text("late-Secret-77") == "late-Secret-77"
    monkeypatch.setenv("LATE_TOKEN", "late-Secret-77")
    assert process_masker().text("late-Secret-77") == "<masked>"


def test_a_masker_shows_no_secret() -> None:
    masker = Masker([SECRET])
    assert SECRET not in repr(masker)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(masker)


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_text_around_a_secret_saves_it(before: str, after: str) -> None:
    assert SECRET not in Masker([SECRET]).text(f"{before}{SECRET}{after}")


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=8),
        lambda one: st.lists(one) | st.dictionaries(st.text(max_size=5), one),
    )
)
def test_masking_twice_is_masking_once(data: object) -> None:
    masker = Masker([SECRET])
    once = masker.plain({"x": data, "password": "p"})
    assert masker.plain(once) == once


def test_code_that_says_where_a_secret_is_stays_and_what_only_looks_like_it_does_not() -> None:
    masker = Masker()
    for code in (
        'api_key=os.environ["VLLM_API_KEY"])',
        "password = get_password()",
        "token=vault.read('db')",
    ):
        assert masker.text(code) == code
    for secret in (
        "password=hunter(2",
        "password=Summer[2026",
        "password=abc()def99",
        "api_key=key(9x8y7z6w)",
    ):
        assert "<masked" in masker.text(secret), secret
