"""`[tools.NAME.model]`: what is wrong is named by file, line and field, with the nearest known word."""

from contextlib import suppress
from pathlib import Path

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.settings.load import check_models, parse_settings, read_drafts
from dreamgym_kit.settings.render import render_drafts
from dreamgym_kit.settings.templates import escaped, parse_path, parse_text
from dreamgym_kit.settings.tool_models import ToolModelSettings, read_model
from dreamgym_kit.types import Effect, ToolSpec

HEAD = '[tools.pay]\neffect = "write"\n[tools.pay.model]\n'
TABLE = "tools.pay.model"
CHANGE = f"[[{TABLE}.changes]]\nread = 'a'\n"
TWICE = f"{CHANGE}set = {{ x = 1 }}\n{CHANGE}set = {{ x = '{{arg.y}}' }}"


@each_row(
    ("text", "message"),
    [
        ("keep = []", f"dreamgym.toml:4: key 'keep' is not in {TABLE}; did you mean 'keeps'?"),
        (
            '[[tools.pay.model.changes]]\nread = "a"\nsett = { x = 1 }',
            f"dreamgym.toml:6: key 'sett' is not in {TABLE}.changes.1; did you mean 'set'?",
        ),
        (
            TWICE,
            f"dreamgym.toml:9: name 'arg.y' is not in what {TABLE}.changes.2.set.x can name; did you mean",
        ),
        (
            '[[tools.pay.model.fails]]\nwhen = { of = "args.x", equals = 1 }\nerror = "no"',
            f"dreamgym.toml:5: key 'equals' is not in {TABLE}.fails.1.when.1; ",
        ),
        (
            '[[tools.pay.model.fails]]\nwhen = { of = "args.x" }\nerror = "no"',
            f"dreamgym.toml:5: {TABLE}.fails.1.when.1: wants one test beside of: is, is_not, one_of, ",
        ),
        (
            '[[tools.pay.model.fails]]\nwhen = { of = "crd.x", is = 1 }\nerror = "no"',
            "dreamgym.toml:5: name 'crd.x' is not in what ",
        ),
        (
            '[[tools.pay.model.fails]]\nwhen = { of = "args.x", is = 1 }',
            f'dreamgym.toml:4: {TABLE}.fails.1: says either error = "message" or answer = ',
        ),
        ('answer = "{args.a"', f"dreamgym.toml:4: {TABLE}.answer: a lone '{{'; double it where it is meant."),
        (
            'answer = "{args.a ** 2}"',
            f"dreamgym.toml:4: {TABLE}.answer: '{{args.a ** 2}}' is none of the forms ",
        ),
        ('answer = "{args.a} {args.b + 1}"', "inside a longer text a hole can only be a name"),
        ("answer = 1979-05-27", f"dreamgym.toml:4: {TABLE}.answer: wants JSON values, found a date; "),
        ('views.args = { read = "a" }', "'args' cannot be a view's name; take another."),
        ('views.card = { bind = { a = "args.a" } }', f"dreamgym.toml:4: {TABLE}.views.card: says no 'read'."),
        ('[[tools.pay.model.changes]]\nread = "a"', "wants either operations (set, add, "),
        ('[[tools.pay.model.changes]]\nread = "a"\ndelete = ["x..y]"]', "'x..y]' is no path: keys, <name> "),
        ("keeps = 3", f"dreamgym.toml:4: {TABLE}.keeps: wants a list of texts."),
        ("fails = {}", f"dreamgym.toml:4: {TABLE}.fails: wants a list of tables."),
        ('answer = "{args.}"', f"{TABLE}.answer: 'args.' names no argument; write args.NAME."),
        (
            CHANGE + 'bind = { "" = "args.x" }\nwhole = 1',
            f"{TABLE}.changes.1.bind: '' names no argument and no field.",
        ),
    ],
)
def test_a_bad_model_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_settings(HEAD + text)
    assert message in str(refused.value)
    assert str(refused.value).startswith("dreamgym.toml:")


@each_row("effect", ["read", "pure"])
def test_what_a_reading_tool_is_said_to_keep_or_change_is_refused_with_what_to_do(effect: str) -> None:
    head = HEAD.replace("write", effect)
    with pytest.raises(UserError) as refused:
        parse_settings(head + 'keeps = ["get_*"]')
    assert str(refused.value) == (
        f"dreamgym.toml:4: {TABLE}.keeps: 'pay' has the effect '{effect}', which changes nothing; "
        "delete 'keeps', or say effect = \"write\" in [tools.pay]."
    )
    with pytest.raises(UserError, match="delete 'changes'"):
        parse_settings(f"{head}{CHANGE}set = {{ x = 1 }}")
    assert parse_settings(head + 'answer = "paid"').tools["pay"].model.answer == "paid"


def test_the_example_of_the_documentation_is_read() -> None:
    text = (Path(__file__).parents[2] / "docs" / "tool-rules.md").read_text(encoding="utf-8")
    block = text.split("## Declare a rule in dreamgym.toml")[1].split("```toml")[1].split("```")[0]
    model = parse_settings(block).tools["cancel_order"].model
    assert model is not None
    assert (len(model.fails), len(model.changes), model.views["order"].read) == (1, 2, "get_order")


def test_reads_and_arguments_that_the_graph_lacks_get_the_nearest_name() -> None:
    specs = {
        "pay": ToolSpec("pay", Effect.WRITE, args_schema={"properties": {"card_id": {}, "amount": {}}}),
        "get_card": ToolSpec("get_card", Effect.READ),
    }
    with pytest.raises(UnknownName) as refused:
        check_models(parse_settings(HEAD + 'keeps = ["get_*", "get_crd"]'), specs)
    assert str(refused.value).endswith("tool 'get_crd' is not in the graph; did you mean 'get_card'?")
    text = HEAD + 'views.card = { read = "get_card", bind = { card_id = "args.crd_id" } }'
    with pytest.raises(UnknownName) as refused:
        check_models(parse_settings(text), specs)
    assert "argument 'crd_id' is not in those of pay; did you mean 'card_id'?" in str(refused.value)


def test_a_secret_in_a_model_is_refused_and_not_repeated() -> None:
    with pytest.raises(UserError) as refused:
        parse_settings(HEAD + 'answer = { key = "sk-abcdefghijklmnopqrstuv" }')
    assert "abcdef" not in str(refused.value)


def test_drafts_are_kept_beside_the_buffer_with_who_said_them(tmp_path) -> None:
    drafts = {"x y": ToolModelSettings(answer={"a": "{args.b}"}, said_by="m, 2026-01-01")}
    (file := tmp_path / "b.drafts.toml").write_text(render_drafts(drafts))
    assert read_drafts(file) == drafts
    assert read_drafts(tmp_path / "none.toml") == {}
    file.write_text("[tools.a.model]\nanswr = 1\n")
    with pytest.raises(UserError) as refused:
        read_drafts(file)
    assert str(refused.value).startswith("b.drafts.toml:2: key 'answr' is not in tools.a.model; did you mean")


@given(st.text())
def test_a_text_that_is_meant_as_it_stands_stays_so(text: str) -> None:
    assert "".join(str(part) for part in parse_text(escaped(text))) == text


@given(st.text(max_size=30))
def test_no_text_and_no_path_ends_in_anything_but_a_refusal(text: str) -> None:
    for read in (parse_text, parse_path):
        with suppress(ValueError):
            read(text)


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["views", "fails", "answer", "changes", "keeps", "when", "of", "is", "read", "set"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(json)
def test_no_data_ends_in_anything_but_a_named_place(data: object) -> None:
    refused = ""
    try:
        read_model(data, ("tools", "a", "model"), lambda *_: "here")
    except UserError as error:
        refused = str(error)
    assert not refused or refused.startswith("here: ")
