"""A call has the effect that its arguments show; where they do not show it for sure, that of its tool."""

import pytest
from each_row import each_row

from dreamgym_kit.argument_effects import guess_effect_when, of_call
from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.types import ArgumentReader, Effect, ToolSpec

READ, WRITE, DESTRUCTIVE = Effect.READ, Effect.WRITE, Effect.DESTRUCTIVE
TELLS = {  # reader -> calls that it tells
    "sql": {
        "SELECT * FROM artist": READ,
        "select count(*) from t where a in (1, 2) and b = 'x; DELETE'": READ,
        "-- look\nSELECT a.* FROM a JOIN b ON (a.id = b.id) LIMIT 3;": READ,
        "WITH t AS (SELECT 1) SELECT * FROM t": READ,
        "UPDATE t SET a = 1 WHERE b = 2": WRITE,
        "INSERT INTO t (a) VALUES (1)": WRITE,
        "INSERT INTO s.t SELECT max(a) FROM u": WRITE,
        "CREATE TABLE t (a VARCHAR(10), PRIMARY KEY (a))": WRITE,
        "SELECT a -- see\r\nFROM t WHERE b = 'https://x' OFFSET 2 ROWS FETCH NEXT 5 ROWS ONLY": READ,
        "DELETE FROM artist": DESTRUCTIVE,
        "SELECT 1; DROP TABLE t": DESTRUCTIVE,
    },
    "http": {"get": READ, "PUT": WRITE, "POST": DESTRUCTIVE, "FROB": DESTRUCTIVE},
    "shell": {
        **dict.fromkeys(["ls -la *.py | grep x", "git status && pwd", "git log --oneline -5"], READ),
        **dict.fromkeys(["grep -E '^a{2}|b$' x", "jq '.a | length' x", 'find . -name "*.py" ! -empty'], READ),
        "cat a; mkdir b": WRITE,
    },
}
UNSURE = {
    "sql": [
        "",
        "SELECT pg_terminate_backend(1)",
        "SELECT evil.count(1)",
        'SELECT "f"(1)',
        "SELECT * INTO u FROM t",
        "SELECT * FROM t FOR UPDATE",
        "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
        "EXPLAIN ANALYZE DELETE FROM t",
        r"SELECT '\'' ; DELETE FROM x; -- '",
        "SELECT 1--1; DELETE FROM x",
        "SELECT $$ ' $$; DELETE FROM x; SELECT $$ ' $$",
        "/*! DELETE FROM x */ SELECT 1",
        "SELECT ' open",
        "PRAGMA user_version = 3",
        # a comment or a string ends elsewhere
        "SELECT 1 -- x\r; DELETE FROM t",
        "SELECT 1 --\n; DELETE FROM t",
        "SELECT 1 --\u00a0; DELETE FROM t",
        "SELECT 1 // '\n; DELETE FROM t; // '",
        "SELECT ''' ' '''; DELETE FROM t; SELECT ''' ' '''",
        "SELECT q'! ' !'; DELETE FROM t; SELECT q'! ' !'",
        "INSERT INTO t VALUES ('open)",
        # a statement without ; or of the client
        *(f"SELECT 1 {act}" for act in ("kill 5", "SHUTDOWN", "use u", "rollback", "go sp_x")),
        *("SELECT 1 BACKUP DATABASE x", "SELECT 1 RESTORE DATABASE x", "SELECT 1 DENY ALL ON t TO u"),
        *("SELECT 1 DISABLE TRIGGER a ON t", "SELECT 1 END CONVERSATION x", "SELECT 1\n!!rm x"),
        "SELECT 1 FROM dual\n/\nhost rm x",
        # an expression that acts
        *("SELECT NEXT VALUE FOR s", "SELECT @x := 5", "SELECT \u00e9count(1)", "SELECT * FROM t FOR SHARE"),
        *(
            "EXPLAIN PLAN FOR SELECT 1",
            "SELECT system$abort(1)",
            "INSERT INTO a SELECT pg_terminate_backend(1)",
        ),
        *("UPDATE t SET a = evil(1)", "INSERT INTO t (a) VALUES (evil(1))", "INSERT INTO t VALUES (evil(1))"),
        *("INSERT OVERWRITE t SELECT 1", "INSERT INTO openquery(s, 'exec x') VALUES (1)"),
        *("CREATE INDEX i ON t (evil(a))", "INSERT INTO f(rowid, f) VALUES (1, 'delete')"),
    ],
    "shell": [
        *("", "rm -rf /", "ls > x", "ls $(rm x)", "ls `rm x`", "ls & rm x", "ls\nrm x", "X=1 ls", "(rm x)"),
        *(
            "echo a#b; rm x",
            "find . -delete",
            "find . -exec rm {} +",
            "git push",
            "git -c x=y status",
            "ls '",
            *("find . $'-delete'", 'find . $"-delete"', "find . $@-delete", "find . -d$@elete"),
            *("find . {-delete,-print}", "find . {-exec,rm,-rf,'{}',+}", "git diff $@--output=x"),
            *(
                "find *",
                "find . -d*",
                "f''ind . ?delete",
                "find . [-]delete",
                "git diff --outpu=x",
                "cat !rm",
            ),
            # PowerShell
            *(
                "ls\rrm x",
                "ls\u2028rm x",
                "echo 'a\u2019; rm x; echo \u2019b'",
                "ls | % Delete",
                "cat x @more",
            ),
            "echo [IO.File]::Delete('x')",
            # cmd
            *("echo 'a & del x'", """echo '"' "& del x &" '"'""", 'echo ^" & del x ^"', "echo %x%"),
            "echo 'a|del/q x'",
        ),
    ],
}


@each_row(
    ("reader", "text", "effect"), [(name, *pair) for name, calls in TELLS.items() for pair in calls.items()]
)
def test_a_reader_tells_what_a_call_does(reader: str, text: str, effect: Effect) -> None:
    tool = ToolSpec(
        "t", DESTRUCTIVE if effect is not DESTRUCTIVE else WRITE, effect_when={"q": ArgumentReader(reader)}
    )
    assert of_call(tool, {"q": text}).effect is effect


@each_row(("reader", "text"), [(name, text) for name, texts in UNSURE.items() for text in texts])
def test_a_reader_that_is_unsure_leaves_the_effect_of_the_tool(reader: str, text: str) -> None:
    tool = ToolSpec("t", DESTRUCTIVE, effect_when={"q": ArgumentReader(reader)})
    assert of_call(tool, {"q": text}).effect is DESTRUCTIVE


def test_settings_name_values_and_what_they_do_not_name_has_the_effect_of_the_tool() -> None:
    text = '[tools.t]\neffect = "destructive"\neffect_when = { action = { list = "read", add = "write" } }'
    said = parse_settings(text).tools["t"]
    tool = ToolSpec("t", said.effect, effect_when=said.effect_when)
    effects = [
        of_call(tool, args).effect for args in ({"action": "list"}, {"action": "add"}, {"action": "x"}, {})
    ]
    assert effects == [READ, WRITE, DESTRUCTIVE, DESTRUCTIVE]


def test_of_several_arguments_the_worst_counts() -> None:
    tool = ToolSpec("t", WRITE, effect_when={"method": ArgumentReader.HTTP, "sql": ArgumentReader.SQL})
    effects = [
        of_call(tool, {"method": "GET", "sql": sql}).effect for sql in ("SELECT 1", "DELETE FROM t", "?")
    ]
    assert effects == [READ, DESTRUCTIVE, WRITE]


@each_row(
    ("effect", "rules", "told"),
    [
        ("read", '{ q = "sql" }', "changes nothing"),
        ("pure", '{ q = "sql" }', "changes nothing"),
        ("write", '{ q = "sqll" }', "did you mean 'sql'"),
        ("write", '{ q = { a = "pure" } }', "of tools"),
        ("write", "3", "wants a table"),
    ],
)
def test_rules_that_could_not_hold_are_refused(effect: str, rules: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        parse_settings(f'[tools.t]\neffect = "{effect}"\neffect_when = {rules}')


@each_row(
    ("name", "description", "arguments", "rules"),
    [
        ("sql_db_query", "Input is a SQL query.", ["query"], {"query": "sql"}),
        ("http_request", "", ["url", "method"], {"method": "http"}),
        ("terminal", "Run shell commands.", ["commands"], {"commands": "shell"}),
        ("search_mails", "Search mails.", ["query"], {}),
        ("pay", "Pay.", ["method"], {}),
    ],
)
def test_init_guesses_which_argument_decides(
    name: str, description: str, arguments: list[str], rules: dict[str, str]
) -> None:
    assert guess_effect_when(name, description, {"properties": dict.fromkeys(arguments)}) == rules
