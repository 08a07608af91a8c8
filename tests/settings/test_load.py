"""Reading settings: every refusal names its place, what is wrong and the nearest right thing."""

from contextlib import suppress
from pathlib import Path
from typing import get_origin

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.load import (
    check_nodes,
    environment_names,
    find_settings,
    load_settings,
    parse_settings,
)
from dreamgym_kit.settings.read import read_settings, renamed
from dreamgym_kit.settings.render import with_new_names
from dreamgym_kit.settings.schema import (
    GuardSettings,
    Limits,
    Settings,
    SimulateSettings,
    ToolSettings,
    declared,
    kind_of,
)
from dreamgym_kit.types import Effect

WHOLE = """\
graph = "desk.graph:build"
tasks = "tasks.jsonl"
structured_outputs = ["Reply"]

[simulate]
repeats = 4
on_unanswered = "error"

[limits]
max_seconds = 30

[budget]
max_calls = 500

[guard]
allow_hosts = ["api.openai.com", "localhost:8000"]

[tools.cancel_order]
effect = "destructive"

[functions."desk.mail:send"]
effect = "destructive"
name = "send_mail"

[nodes.notify]
effect = "write"

[checkers]
once = "desk.checks:once"

[environments.desk]
ref = "desk.worlds:Desk"
"""


def test_a_whole_file_is_read() -> None:
    settings = parse_settings(WHOLE)
    assert settings.graph == "desk.graph:build"
    assert settings.simulate == SimulateSettings(repeats=4, on_unanswered="error")
    assert settings.limits == Limits(max_seconds=30.0)
    assert settings.budget.max_calls == 500
    assert settings.budget.max_usd is None
    assert settings.guard == GuardSettings(allow_hosts=("api.openai.com", "localhost:8000"))
    assert settings.tools == {"cancel_order": ToolSettings(Effect.DESTRUCTIVE)}
    assert settings.functions["desk.mail:send"].name == "send_mail"
    assert settings.nodes["notify"].effect is Effect.WRITE
    assert settings.checkers == {"once": "desk.checks:once"}
    assert settings.environments == {"desk": "desk.worlds:Desk"}
    assert settings.structured_outputs == ("Reply",)


@each_row(
    ("text", "line", "said"),
    [
        ("\n[simulate]\nconcurency = 4\n", 3, "not in the section [simulate]; did you mean 'concurrency'?"),
        ("grap = 'a:b'", 1, "not in the settings; did you mean 'graph'?"),
        ("\nseed = 4", 2, "belongs to [simulate], not to the top of the file"),
        ("[limits]\nrepeats = 2", 2, "belongs to [simulate], not to [limits]"),
        ("[simulate]\nrepeats = 'four'", 2, "wants a whole number, found the text 'four'"),
        ("[simulate]\nrepeats = true", 2, "wants a whole number, found true"),
        ("[simulate]\nrepeats = 0", 2, "must be at least 1"),
        ("[limits]\n\nmax_seconds = nan", 3, "is no number to work with"),
        ("[limits]\nmax_tool_calls = 1e3", 2, "wants a whole number"),
        ("graph = ' '", 1, "is empty"),
        ("graph = 1979-01-01", 1, "wants text, found a date"),
        ("simulate = 3", 1, "wants a table"),
        ("[[tools]]\neffect = 'read'", 1, "wants a table, found a list"),
        ("[simulate]\non_unanswered = 'halt'", 2, "known: stop, error"),
        ("[tools.cancel_order]\neffect = 'destructiv'", 2, "did you mean 'destructive'?"),
        ("[tools.cancel_order]\n", 1, "says no 'effect'"),
        ("[tools.x]\neffect = 'read'\neffects = 'read'", 3, "did you mean 'effect'?"),
        ("[guard]\nallow_hosts = 'localhost'", 2, "wants a list of texts"),
        ("[guard]\nallow_hosts = [1]", 2, "wants text"),
        ("[guard]\nactive = false", 2, "known: allow_hosts, allow_paths, allow_commands, sandbox"),
        ("[checkers]\nonce = 'checks'", 2, "names no object"),
        ("[functions.send]\neffect = 'write'", 1, "names no object"),
        ("[environments.desk]\n", 1, "says no 'ref'"),
        ("[environments.desk]\nref = 'a:B'\nreff = 'a:B'", 3, "did you mean 'ref'?"),
        ("graph = ", 0, "not TOML"),
        ("a = " + "[" * 5000 + "]" * 5000, 0, "dreamgym.toml: not TOML"),
        ("a = " + "9" * 5000, 0, "dreamgym.toml: not TOML"),
        (f"[simulate]\nseed = {'9' * 400}", 2, "is no number to work with"),
        ("[gate]\nmin_pass_rate = 90\n", 2, "gate.min_pass_rate must be at most 1; found 90"),
        ("[gate]\nmax_calls_per_tool = {pay = true}", 2, "max_calls_per_tool.pay wants a whole number"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_settings(text, path=Path("dreamgym.toml"))
    assert str(refused.value).startswith(f"dreamgym.toml:{line}: " if line else "dreamgym.toml: ")
    assert said in str(refused.value)


SECRETS = [
    "sk-proj-abcdefghijklmnopqrstuvwx",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3.c2lnbmF0dXJl",
    "https://user:hunter2@example.com/v1",
    "Bearer abcdef0123456789",
    "k3J9xQ2mZ8vL5tR7wB1nH4cY6pD0sF9gTqWe",
]


@each_row("secret", SECRETS)
@each_row(
    "text",
    [
        "graph = '{}'",
        "[guard]\nallow_hosts = ['a', '{}']",
        "[tools.x]\neffect = '{}'",
        "nonsense = '{}'",
        "[checkers]\n'{}' = 'a:b'",
    ],
)
def test_a_secret_is_refused_and_never_repeated(text: str, secret: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_settings(text.format(secret), path=Path("dreamgym.toml"))
    assert "name the environment variable instead" in str(refused.value)
    assert secret not in str(refused.value)


@each_row(
    "value",
    [
        "my_company.agents.customer_support.graph_with_long_name_v2:build_graph",
        "recordings/2026-11-21-customer-support-final-v2.sqlite3",
        "tools/ReadTheDocumentationOfEverything",
        "localhost:8000",
    ],
)
def test_long_ordinary_names_are_no_secrets(value: str) -> None:
    assert parse_settings(f"graph = '{value}'").graph == value


def test_a_tool_may_be_called_reset_password() -> None:
    settings = parse_settings("[tools.reset_password]\neffect = 'write'")
    assert settings.tools["reset_password"].effect is Effect.WRITE
    read = parse_settings("[gate]\nmax_calls_per_tool = {reset_password = 1}\nforbid = ['delete_*']\n")
    assert (read.gate.max_calls_per_tool, read.gate.forbid) == ({"reset_password": 1}, ("delete_*",))


def test_the_nearest_file_upwards_holds(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert load_settings(inner, environ={}) == Settings()
    (tmp_path / "dreamgym.toml").write_text("graph = 'far:graph'")
    assert load_settings(inner, environ={}).graph == "far:graph"
    (tmp_path / "a" / "dreamgym.toml").write_text("graph = 'near:graph'")
    assert load_settings(inner, environ={}).graph == "near:graph"
    assert find_settings(inner) == tmp_path / "a" / "dreamgym.toml"


def test_paths_start_at_the_file(tmp_path: Path) -> None:
    (tmp_path / "dreamgym.toml").write_text("runs = 'out'")
    settings = load_settings(tmp_path, environ={})
    assert settings.resolve(settings.runs) == tmp_path / "out"
    assert settings.resolve("/elsewhere") == Path("/elsewhere")


def test_a_byte_order_mark_and_windows_line_ends_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "dreamgym.toml").write_bytes(b"\xef\xbb\xbf\r\n[simulate]\r\nrepeats = 'x'\r\n")
    with pytest.raises(UserError, match=r"^dreamgym\.toml:3: simulate\.repeats wants a whole number"):
        load_settings(tmp_path, environ={})


@each_row(
    ("raw", "message"),
    [
        (b"graph = '\xff'", "not UTF-8 at byte 9; save it as UTF-8."),
        (b"#" * 2**20 + b"#", "1048577 bytes are more"),
    ],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, raw: bytes, message: str) -> None:
    (tmp_path / "dreamgym.toml").write_bytes(raw)
    with pytest.raises(UserError) as refused:
        load_settings(tmp_path, environ={})
    assert str(refused.value).startswith(f"{tmp_path / 'dreamgym.toml'}: ")
    assert message in str(refused.value)


def test_a_file_that_was_named_and_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"settings cannot be read: No such file.*dreamgym-kit init"):
        load_settings(file=tmp_path / "other.toml", environ={})


def test_the_environment_is_laid_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "dreamgym.toml").write_text("[simulate]\nrepeats = 2\nseed = 7\n[tools.a]\neffect = 'read'\n")
    settings = load_settings(
        tmp_path,
        environ={
            "DREAMGYM_SIMULATE_REPEATS": "4",
            "DREAMGYM_BUDGET_MAX_USD": "2.5",
            "DREAMGYM_GUARD_ALLOW_HOSTS": "localhost:8000, api.openai.com",
            "DREAMGYM_TOOLS": '{"b": {"effect": "write"}}',
            "DREAMGYM_RUNS": "elsewhere",
            "DREAMGYM_TENANT": "",
            "HOME": "/nowhere",
        },
    )
    assert settings.simulate == SimulateSettings(repeats=4, seed=7)
    assert settings.budget.max_usd == 2.5
    assert settings.guard.allow_hosts == ("localhost:8000", "api.openai.com")
    assert settings.tools == {"a": ToolSettings(Effect.READ), "b": ToolSettings(Effect.WRITE)}
    assert settings.runs == str(Path("elsewhere").absolute())
    assert settings.tenant == "default"


@each_row(
    ("variable", "text", "said"),
    [
        ("DREAMGYM_SIMULATE_REPEATS", "four", "simulate.repeats wants a whole number"),
        ("DREAMGYM_SIMULATE_REPEAT", "4", "did you mean 'DREAMGYM_SIMULATE_REPEATS'?"),
        ("DREAMGYM_TOOLS", "[1", "wants a JSON object"),
        ("DREAMGYM_TOOLS", "[1]", "tools wants a table"),
        ("DREAMGYM_EXPERIENCE_JUDGE", "perhaps", "wants true or false"),
        ("DREAMGYM_GRAPH", "sk-proj-abcdefghijklmnopqrstuvwx", "name the environment variable instead"),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, variable: str, text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        load_settings(tmp_path, environ={variable: text})
    assert variable in str(refused.value)
    assert said in str(refused.value)


TABLES = {
    "tools": '{"t": {"effect": "read"}}',
    "functions": '{"a:b": {"effect": "read"}}',
    "nodes": '{"n": {"effect": "read"}}',
    "checkers": '{"c": "a:b"}',
    "environments": '{"w": {"ref": "a:b"}}',
    "faults": '{"t": {"rate": 0.5}}',
    "match": '{"t": {"ignore": ["x"]}}',
}


def another_value(key: tuple[str, ...]) -> str:
    """A value of this key that is not its default, as a variable spells it."""
    *section, name = key
    record = kind_of(section)() if section else Settings()
    default, declaration, kind = getattr(record, name), declared(record)[name], kind_of(key)
    if kind is bool:
        return str(not default).lower()
    if declaration.among:
        return next(choice for choice in declaration.among if choice != default)
    if kind is int or kind is float:
        low, high = declaration.least, declaration.most
        top = low + 170 if high is None else high
        return str(top if kind is int else (low + top) / 3)
    if get_origin(kind) not in (None, tuple):
        return TABLES.get(
            name, '{"reset_password": "a:b"}' if name == "checkers" else '{"reset_password": 1}'
        )
    return "a:b"


def test_every_key_has_a_variable_that_sets_it(tmp_path: Path) -> None:
    for variable, key in environment_names().items():
        changed = load_settings(tmp_path, environ={variable: another_value(key)})
        assert changed != Settings(), variable


def test_a_node_that_the_graph_lacks_gets_the_nearest_name() -> None:
    settings = parse_settings("[nodes.notfy]\neffect = 'write'\n", path=Path("dreamgym.toml"))
    assert [str(unknown) for unknown in check_nodes(settings, ["notify"])] == [
        "dreamgym.toml:1: node 'notfy' is not in the graph; did you mean 'notify'?"
    ]


def test_flags_are_laid_over_and_none_leaves_a_key_as_it_is() -> None:
    settings = parse_settings("graph = 'a:b'").with_overrides({"simulate.repeats": 3, "graph": None})
    assert (settings.graph, settings.simulate.repeats) == ("a:b", 3)


@given(
    st.dictionaries(st.text(min_size=1, max_size=8), st.none() | st.booleans() | st.integers() | st.text())
)
def test_no_data_ends_in_anything_but_a_named_refusal(data: dict[str, object]) -> None:
    with suppress(UserError):
        Settings(**read_settings(data, lambda *key: ".".join(key)))


@each_row(("old", "now"), [pair for pair in renamed().items() if len(pair[0]) == 2])
def test_a_key_of_an_older_version_is_refused_with_its_new_name(
    old: tuple[str, str], now: tuple[str, str]
) -> None:
    with pytest.raises(UserError) as refused:
        parse_settings(f"[{old[0]}]\n{old[1]} = 0\n", path=Path("dreamgym.toml"))
    first = f"dreamgym.toml:2: '{'.'.join(old)}' is now '{'.'.join(now)}'."
    assert str(refused.value) == f"{first}\nRename them, or run: dreamgym-kit init --update"


def test_all_that_is_wrong_in_a_file_or_laid_over_it_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        parse_settings("[simulate]\nn = 4\nseed = 1\nthreshold = 0.7\n[engine]\nworkers = 2\n")
    assert str(refused.value).splitlines()[:3] == [
        "dreamgym.toml:2: 'simulate.n' is now 'simulate.repeats'.",
        "dreamgym.toml:4: 'simulate.threshold' is now 'simulate.min_confidence'.",
        "dreamgym.toml:6: 'engine.workers' is now 'workers.count'.",
    ]
    variables = {"DREAMGYM_SIMULATE_N": "4", "DREAMGYM_SEED": "1", "DREAMGYM_RUNS": "r"}
    assignments = ["simulate.n=4", "runs=x", "gate.max_errors=a"]
    with pytest.raises(UserError) as refused:
        load_settings(tmp_path, environ=variables, assignments=assignments)
    assert [line.partition(";")[0] for line in str(refused.value).splitlines()] == [
        "DREAMGYM_SIMULATE_N is now called DREAMGYM_SIMULATE_REPEATS. Rename it.",
        "environment: variable 'DREAMGYM_SEED' is not in the settings",
        "--set simulate.n is now --set simulate.repeats.",
        "--set gate.max_errors: gate.max_errors wants a number, found the text 'a'.",
    ]
    with pytest.raises(UserError, match=r"known: alarms\.\*, budget\.\*, buffer, "):  # not each of 190 keys
        load_settings(tmp_path, environ={}, assignments=["foo.bar=1"])


def test_new_names_leave_all_else_of_a_file_as_it_is() -> None:
    text = (
        "# mine\n[simulate]  # of n\nn = 4  # n = 4\nseed = 1\n\n[engine]\nworkers = 2\n[s2r]\nmost = {n=3}\n"
    )
    now, told = with_new_names(text)
    assert now == (
        "# mine\n[simulate]  # of n\nrepeats = 4  # n = 4\nseed = 1\n\n[workers]\ncount = 2\n"
        "[s2r]\nmax_calls_per_tool = {n=3}\n"
    )
    assert told == [
        "simulate.n -> simulate.repeats",
        "engine -> workers",
        "engine.workers -> workers.count",
        "s2r.most -> s2r.max_calls_per_tool",
    ]
    assert parse_settings(now).simulate.repeats == 4
    assert with_new_names(now) == (now, [])


def test_two_sections_that_became_one_are_joined_with_their_comments() -> None:
    text = (
        '[endpoint]  # ours\nurls = ["http://a/v1"]\nattempts = 2\n\n[worlds.desk]\nref = "a:B"\n'
        '[learned]\n# taught in May\nmodel = "m"\nurls = ["http://b/v1"]\n'
    )
    now, _ = with_new_names(text)
    assert now == (
        '[experience]  # ours\nurls = ["http://a/v1"]\nmax_attempts = 2\n\n# taught in May\ndir = "m"\n'
        '# urls = ["http://b/v1"]\n\n[environments.desk]\nref = "a:B"\n'
    )
    assert parse_settings(now).experience.dir == "m"


def test_a_tool_model_of_earlier_versions_says_where_each_of_its_parts_is_written_now() -> None:
    text = (
        '[tools.pay]\neffect = "write"\n[tools.pay.model]\nanswer = "paid"\nkeeps = ["*"]\nsaid_by = "me"\n'
    )
    with pytest.raises(UserError) as refused:
        parse_settings(text, path=Path("dreamgym.toml"))
    head, *parts = str(refused.value).split("\n")
    assert head.startswith("dreamgym.toml:3: 'tools.pay.model' is written in rules/pay.toml now")
    assert [part.strip().split(": ", 1)[0] for part in parts] == [f"dreamgym.toml:{at}" for at in (4, 5, 6)]
    assert "[outcomes.ok]" in parts[0]
    assert parts[2].endswith("has no counterpart")
