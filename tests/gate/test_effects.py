"""Guesses err towards harm and never let a tool run in a dream; arguments may show the effect."""

import copy
import functools
from typing import Any

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.tools import BaseTool, StructuredTool, tool

from dreamgym_kit.argument_effects import guess_effect_when, of_call
from dreamgym_kit.errors import UserError
from dreamgym_kit.routing.effects import declared_effect, effect, guess_effect
from dreamgym_kit.routing.router import CallRouter, Mode, Route
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.types import ArgumentReader, Effect, ToolSpec

READ, WRITE, DESTRUCTIVE = Effect.READ, Effect.WRITE, Effect.DESTRUCTIVE


NAMES = {
    READ: (
        "get_order getOrder list_orders searchRefunds find-customer is_open HTTPGet "
        "email.search_emails github__get_issue web_search find_user_id_by_name_and_zip "
        "read_item_items__item_id__get requests_get"
    ),
    DESTRUCTIVE: (
        "email.delete_email delete.item status_update find_replace search_and_book order_status "
        "browser_select_option return_order_items sql_db_query track_event refund_payment send_mail "
        "delete_user requests_post make_payment create_refund submit_wire_transfer get_and_delete "
        "get_or_create_user check_out_cart check_in_guest please_delete_it frobnicate заказ 1234"
    ),
    WRITE: ("user_create create_ticket update_address request_put cancel_order draft_email"),
}


@each_row(
    ("name", "guessed"),
    [("", DESTRUCTIVE), *((name, effect) for effect, names in NAMES.items() for name in names.split())],
)
def test_a_name_is_guessed(name: str, guessed: Effect) -> None:
    found, reason = guess_effect(name)
    assert found is guessed
    assert reason


@given(st.text(max_size=30), st.text(max_size=60))
def test_no_guess_ever_runs_in_a_dream(name: str, description: str) -> None:
    found, reason = guess_effect(name, description)
    assert not found.runs_in_dream
    assert reason


@each_row(
    ("name", "description", "guessed"),
    [
        ("weather", "Get the weather of a city.", READ),
        ("weather", "This tool fetches the weather.", READ),
        ("weather", "Label: Displays the weather.", READ),
        ("weather", "GET /v1/weather", READ),
        ("weather", "POST /v1/weather, gets the weather", DESTRUCTIVE),
        ("weather", "Gets the weather and sends it.", DESTRUCTIVE),
        ("weather", "Return the weather station to the shop.", DESTRUCTIVE),
        ("order_status", "Get the status of an order.", READ),
        ("message_get_login_status", "Get the login status.", READ),
        ("order_pizza", "Get a pizza to your door.", DESTRUCTIVE),
        ("slack_post", "Returns the id of the message.", DESTRUCTIVE),
        ("take_hours", "Take hours of a person; returns the hours left.", DESTRUCTIVE),
        ("get_update_status", "Get the status of an update.", READ),
        ("query", "Query the SQL database.", DESTRUCTIVE),
        ("wikipedia", "A wrapper around Wikipedia.", READ),
        ("wikipedia", "Edits a page of Wikipedia.", WRITE),
    ],
)
def test_a_description_tells_what_a_name_leaves_open(name: str, description: str, guessed: Effect) -> None:
    assert guess_effect(name, description)[0] is guessed


@each_row("word", ["Deletes", "sends", "charges", "refunds", "cancels", "creates", "updates"])
def test_a_description_warns_but_never_calms(word: str) -> None:
    assert guess_effect("get_order", f"{word} the order.")[0] is DESTRUCTIVE
    assert guess_effect("delete_order", "Reads an order.")[0] is DESTRUCTIVE


@each_row(
    ("name", "told", "guessed"),
    [
        ("frobnicate", {"readOnlyHint": True}, DESTRUCTIVE),
        ("update_order", {"readOnlyHint": True}, WRITE),
        ("delete_order", {"readOnlyHint": True}, DESTRUCTIVE),
        ("get_order", {"readOnlyHint": True}, READ),
        ("get_order", {"destructiveHint": True}, DESTRUCTIVE),
        ("get_order", {"destructive_hint": True}, DESTRUCTIVE),
        ("get_order", {"annotations": {"destructive_hint": True}}, DESTRUCTIVE),
        ("get_order", {"metadata": {"annotations": {"destructiveHint": True}}}, DESTRUCTIVE),
        ("get_order", {"destructiveHint": True, "readOnlyHint": True}, DESTRUCTIVE),
        ("get_order", {"destructiveHint": False, "annotations": {"destructiveHint": True}}, DESTRUCTIVE),
        ("update_order", {"destructiveHint": True}, DESTRUCTIVE),
        ("update_order", {"destructiveHint": False, "readOnlyHint": True}, WRITE),
        ("get_order", {"readOnlyHint": False}, WRITE),
        ("get_order", {"annotations": {"read_only_hint": False}}, WRITE),
        ("get_order", {"readOnlyHint": None, "destructiveHint": None}, READ),
        ("delete_order", {"dreamgym_effect": "pure", "__handoff_destination": "x"}, DESTRUCTIVE),
    ],
)
def test_what_a_server_says_of_its_tool_is_believed_only_towards_harm(
    name: str, told: dict[str, object], guessed: Effect
) -> None:
    assert guess_effect(name, annotations=told)[0] is guessed


def test_an_author_may_declare_an_effect_on_function_or_tool() -> None:
    @effect("pure")
    def square(x: int) -> int:
        """Square."""
        return x * x

    @effect("control")
    @tool
    def think(thought: str) -> str:
        """Think."""
        return thought

    assert declared_effect(square) is Effect.PURE
    assert declared_effect(think) is Effect.CONTROL
    assert declared_effect(tool(square)) is None
    assert declared_effect(lambda: None) is None


def test_an_effect_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="'harmless' is not a valid Effect"):
        effect("harmless")


@each_row("kind", list(Effect))
def test_in_a_dream_only_pure_and_control_are_real(kind: Effect) -> None:
    policy = CallRouter(Mode.DREAM, {"x": ToolSpec("x", kind)})
    assert policy.route("x") is (Route.REAL if kind in (Effect.PURE, Effect.CONTROL) else Route.DREAM)


def test_a_stranger_is_destructive_and_dreamt() -> None:
    policy = CallRouter(Mode.DREAM)
    assert policy.spec("never seen").effect is DESTRUCTIVE
    assert policy.route("never seen") is Route.DREAM


@each_row(
    ("source", "kind", "judged"),
    [
        ("decorator", Effect.PURE, Effect.PURE),
        ("declared", Effect.PURE, Effect.PURE),
        ("guessed", READ, DESTRUCTIVE),
    ],
)
def test_of_a_stranger_only_a_persons_word_is_believed(source: Any, kind: Effect, judged: Effect) -> None:
    def judge(called: object, known: ToolSpec) -> ToolSpec:
        return ToolSpec(known.name, kind, source=source)

    policy = CallRouter(Mode.DREAM, judge=judge)
    assert policy.spec("never seen", pay).effect is judged
    assert policy.spec("never seen").effect is DESTRUCTIVE


def test_recording_runs_everything() -> None:
    assert CallRouter(Mode.RECORD).route("delete_all") is Route.REAL


class Calc(BaseTool):
    """Computes."""

    name: str = "calc"
    description: str = "Computes."

    def _run(self, x: int) -> int:
        return x


class Renamed(Calc):
    name: str = "calc2"


class Paying(Calc):
    def _run(self, x: int) -> int:
        return -x


class Bookkeeping:
    def _run(self, x: int) -> int:
        return -x


class Mixed(Bookkeeping, Calc):
    pass


effect("pure")(Calc)


def pay(x: int) -> int:
    """Pay."""
    return -x


async def apay(x: int) -> int:
    """Pay."""
    return -x


def pure_tool() -> StructuredTool:
    @tool
    def square(x: int) -> int:
        """Square."""
        return x * x

    return effect("pure")(square)


def test_what_is_declared_of_a_tool_is_in_no_mapping_that_a_server_could_write() -> None:
    square = pure_tool()
    assert declared_effect(square) is Effect.PURE
    assert square.metadata is None
    forged = tool(pay)
    forged.metadata = {"dreamgym_effect": "pure"}
    assert declared_effect(forged) is None
    forged.__dict__["__dreamgym_effect__"] = "pure"
    assert declared_effect(forged) is None


@each_row("copied", [copy.copy, copy.deepcopy, lambda one: one.model_copy(update={"name": "q"})])
def test_a_copy_of_a_tool_keeps_what_was_declared(copied: Any) -> None:
    assert declared_effect(copied(pure_tool())) is Effect.PURE


@each_row("update", [{"func": pay}, {"coroutine": apay}])
def test_a_copy_that_runs_something_else_does_not(update: dict[str, Any]) -> None:
    assert declared_effect(pure_tool().model_copy(update=update)) is None


def test_a_tool_that_was_given_another_body_is_no_more_what_was_declared() -> None:
    square = pure_tool()
    square.func = pay
    assert declared_effect(square) is None


def test_a_function_that_wraps_a_pure_one_is_not_pure() -> None:
    @effect("pure")
    def square(x: int) -> int:
        return x * x

    @functools.wraps(square)
    def paying(x: int) -> int:
        return pay(square(x))

    assert declared_effect(square) is Effect.PURE
    assert declared_effect(paying) is None


def test_what_is_said_of_a_cache_is_said_of_what_it_keeps() -> None:
    cached = functools.lru_cache(lambda x: x)
    effect("pure")(cached)
    assert declared_effect(cached) is Effect.PURE
    assert declared_effect(cached.__wrapped__) is Effect.PURE


def test_a_class_hands_on_what_was_declared_only_where_no_code_is_added() -> None:
    assert declared_effect(Calc()) is Effect.PURE
    assert declared_effect(Renamed()) is Effect.PURE
    assert declared_effect(Paying()) is None
    assert declared_effect(Mixed()) is None


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
