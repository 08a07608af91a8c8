"""What a stranger's server, model or file may send to hold a run up: schemas, and long texts."""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

LENGTH = 80_000
WORDS = "please find the order of my customer named Anna and her friend Bert!"

# by pattern: an argument that takes Python's matcher longest
PATTERNS: Mapping[str, str] = {
    r"^([a-zA-Z0-9 ]+)+$": WORDS,
    r"^(a+)+$": "a" * 60 + "!",
    r"^(a|a)*$": "a" * 60 + "!",
    r"^(a|aa)+$": "a" * 90 + "!",
    r"^(\w+\s?)*$": WORDS,
    r"(x+x+)+y": "x" * 60,
    r"^(([a-z])+.)+[A-Z]([a-z])+$": "a" * 80,
    r"(.*)*b": "a" * 60,
    r"^(?:a?){60}a{60}$": "a" * 59,
    "a?" * 60 + "a" * 60: "a" * 59,
    "(?:a|a)" * 60 + "b": "a" * 60,
    r"(?:(?:a{0,9}){0,9}){0,9}b": "a" * 700,
    r".*.*.*=.*": "=" * 5 + "x" * 3000,
    r"[a-z]+[a-z]+[a-z]+[a-z]+!": "a" * LENGTH,
    r"\s+$": " " * LENGTH + "x",
    r"(.+)\1\1\1!": "ab" * 40_000,
    r"(?=(a+)+b)c": "a" * 60,
    r"^(?!(a+)+$)a": "a" * 60 + "!",
    r"^(?:(?:[a-z]+)(?:-[a-z]+)*)+$": "a" * 60 + "!",
    r"([a-z]*)*([a-z]*)*([a-z]*)*!": "a" * 60,
    r"(?i)^(?:[^\n]*\n)*[^\n]*;$": "a\n" * 40_000,
    r"^(((((a{1,40}){1,40}){1,40}){1,40}){1,40})b$": "a" * 200,
}


def schemas() -> Iterator[tuple[str, Any, Any]]:
    """Name, schema and arguments of checks that would never end."""
    for number, (pattern, text) in enumerate(PATTERNS.items(), 1):
        yield f"pattern {number}", _of({"type": "string", "pattern": pattern}), {"q": text}
    bad = next(iter(PATTERNS))
    yield "property names", {"type": "object", "propertyNames": {"pattern": bad}}, {WORDS: 1}
    yield "pattern properties", {"type": "object", "patternProperties": {bad: {}}}, {WORDS: 1}
    nested: Any = {"type": "object", "patternProperties": {bad: {}}, "additionalProperties": False}
    yield "nested pattern properties", {"patternProperties": {"^q": nested}}, {"q": {WORDS: 1}}
    within = {"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": bad}
    yield "another dialect inside", _of(within), {"q": WORDS}
    rows = [{"n": number} for number in range(9_000)]
    yield "unique rows", _of({"uniqueItems": True}), {"q": rows}
    yield "alike rows", _of({"uniqueItems": True}), {"q": [[["a"] * 200, n] for n in range(300)]}
    chain = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)}
    yield "doubling", {"$defs": {**chain, "a60": {}}, "$ref": "#/$defs/a0"}, {"q": 1}
    either = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)}
    yield "doubling choices", {"$defs": {**either, "a60": False}, "$ref": "#/$defs/a0"}, {"q": 1}
    yield "around in a circle", {"$ref": "#"}, {"q": 1}
    yield "unevaluated", {"unevaluatedProperties": False, **_all_of(40)}, {"q": 1}
    yield "many choices", _of({"anyOf": [{"type": "string"}] * 20_000}), {"q": [list("abc")] * 8_000}
    yield "long list of values", _of({"enum": rows}), {"q": {"n": -1}}
    yield "deep", {"$defs": {"t": {"items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"}, {"q": _deep(900)}
    yield "metaschema", {"$ref": "https://json-schema.org/draft/2020-12/schema"}, {"required": rows}


def _of(schema: Any) -> Any:
    return {"type": "object", "properties": {"q": schema}, "required": ["q"]}


def _all_of(depth: int) -> Any:
    return {"allOf": [_all_of(depth - 1)]} if depth else {"properties": {"p": {}}}


def _deep(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def texts(length: int = LENGTH) -> Iterator[tuple[str, str]]:
    """Long texts, most of one short piece over and over: what makes a matcher begin anew at each letter."""
    for piece in PIECES:
        yield repr(piece), piece * (length // len(piece))
    for begins, piece, ends in BEGUN:
        yield repr((begins[-20:], piece, ends)), begins + piece * (length // len(piece)) + ends
    drawn = random.Random(length)
    yield "hex", "".join(drawn.choice("0123456789abcdef") for _ in range(length))
    yield "letters", "".join(drawn.choice("aA1 _-./:@'\"{}[](),\\\n") for _ in range(length))


PIECES = (
    *"aA1 \n-_.'\"`{[(<@:/\\=,#$",
    *("a.", "a-", "a ", "1,", "1.", "a@", "a@b.", '\\"', '"a', "://", "://a:", "%40", "\x1b[", "\x1b]", "£1"),
    *("{a", "bearer ", "sk-", "eyJaaaaa.", "-----BEGIN ", "-----END A", "password=", "token: '", "no "),
    *("<tool_call>", "```\n", "error:", "Error(", "key='", "a=1 ", "id 1, ", "I did it. ", '{"a": ["'),
    *("cannot be ", "not ", "1 k"),
)  # fmt: skip
BEGUN = (
    ("<tool_call>", " ", ""), ("```", "\n", "x"), ("```\n", "\n``", ""), ("bearer", " ", ""),
    ("password", "\\", ""),
    ("password:", " ", "\\"), ("-----BEGIN ", "A", ""), ("-----BEGIN PRIVATE KEY-----", "-----END A", ""),
    ("://", "a", ""), ("a@", "b", ""), ("{$answer:{content:", ",error:", "}}"), ("[Errno 1] ", ": '", ""),
    ('{"a": "', "\\\\", '"}'), ("[", "[", ""), ('["', '","', ""), ("content='", "\\'", ""),
    ("ValueError(", "(", ")"),
    ('["' * 250, '\\"', "\\"), ("{'messages': [", "AIMessage(content='a'), ", "]}"), ("api_key", " ", ":"),
)  # fmt: skip


def matchers() -> Mapping[str, Callable[[str], Any]]:
    """What of the kit reads texts that tools, models and files bring, by name."""
    from dreamgym_kit.adapters.langgraph.intercept.answers import failure as raised
    from dreamgym_kit.adapters.models.local import parse_answer
    from dreamgym_kit.adapters.traces import seen as traced
    from dreamgym_kit.bounded_json import read_json
    from dreamgym_kit.dream.decision import read_decision
    from dreamgym_kit.dream.faults import is_transient
    from dreamgym_kit.findings import text as words
    from dreamgym_kit.replay.masking import Masker
    from dreamgym_kit.replay.redaction import Redactor, parse_rules
    from dreamgym_kit.replay.retrieval import terms_of
    from dreamgym_kit.report import documents
    from dreamgym_kit.report.sanitize import one_line
    from dreamgym_kit.settings.secrets import looks_secret
    from dreamgym_kit.types import Answer

    masker = Masker(["a-secret-of-some-length", "aaaaaaaaaaaaaaab"])

    def redacted(text: str) -> Any:
        redactor = Redactor(parse_rules(["all", "field:name"]), key=b"k")
        redactor.learn({"name": [f"a {number}" for number in range(5_000)], "text": text})
        return redactor.value({"text": text})

    return {
        "masked": masker.text,
        "masked field": lambda text: masker.plain({text[:200]: text, "b": [text]}),
        "redacted": redacted,
        "json": read_json,
        "trace value": traced.decoded,
        "trace reply": traced.reply,
        "trace failure": traced.failure,
        "tool call": lambda text: parse_answer(text, "t"),
        "decision": read_decision,
        "terms": terms_of,
        "one line": one_line,
        "secret": looks_secret,
        "failure": lambda text: raised(Answer(error=text, error_type="OSError")),
        "markdown": documents.plain,
        "numbers": lambda text: list(words.numbers(text)),
        "ids": words.ids_in_text,
        "sentences": lambda text: [words.done_in(one) for one in words.sentences(text)],
        "negated": words.negated,
        "unsettled": words.unsettled,
        "stems": words.stems,
        "passes": lambda text: is_transient(Answer(text, error=text)),
    }
