"""Writing settings: what is written reads back the same, and a graph's texts cannot add a key."""

import string
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.load import environment_names, parse_settings
from dreamgym_kit.settings.read import sections
from dreamgym_kit.settings.render import render_reference, render_settings
from dreamgym_kit.settings.schema import (
    GuardSettings,
    Key,
    Settings,
    ToolSettings,
    declared,
    kind_of,
    without_none,
)
from dreamgym_kit.settings.secrets import looks_secret
from dreamgym_kit.types import Effect, ToolSpec

text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12
).filter(lambda value: bool(value.strip()) and not looks_secret(value))
reference = st.builds("{}:{}".format, st.text(string.ascii_letters, min_size=1, max_size=6), text)


def values(kind: Any, declaration: Key) -> st.SearchStrategy[Any]:
    """Any value that a declaration allows."""
    if is_dataclass(kind):
        keys = {name: key for name, key in declared(kind).items() if name not in ("effect_when", "view")}
        hints = get_type_hints(kind)
        parts = {name: values(without_none(hints[name]), key) for name, key in keys.items()}
        return st.builds(kind, **parts)
    if kind is bool or kind is Effect:
        return st.booleans() if kind is bool else st.sampled_from(list(Effect))
    if kind is int:
        return st.integers(int(declaration.least), int(declaration.most or 2**62))
    if kind is float:
        return st.floats(declaration.least, declaration.most or 1e12)
    if get_origin(kind) is not None and get_origin(kind) is not tuple:
        return st.dictionaries(text, values(get_args(kind)[1], declaration), max_size=3)
    one = reference if declaration.form == "reference" else text
    one = st.sampled_from(declaration.among) if declaration.among else one
    return one if get_origin(kind) is None else st.lists(one, max_size=3).map(tuple)


@st.composite
def some_settings(draw: st.DrawFn) -> Settings:
    """Settings in which any keys have any values."""
    settings = Settings()
    for key in draw(st.lists(st.sampled_from(list(environment_names().values())), max_size=15)):
        section, name = kind_of(key[:-1]) if key[:-1] else Settings, key[-1]
        value = draw(values(kind_of(key), declared(section)[name]))
        if key == ("functions",):
            value = {f"a:{function}": row for function, row in value.items()}
        if key != ("buffer",) or "://" not in value:  # else an address
            settings = settings.with_overrides({".".join(key): value})
    return settings


@pytest.mark.slow
@profile(deadline=None)
@given(some_settings())
def test_what_is_written_reads_back_the_same(settings: Settings) -> None:
    assert parse_settings(render_settings(settings)) == settings


def test_the_file_of_an_agent_with_eight_tools_has_at_most_25_lines_and_every_line_is_known() -> None:
    said = {"type": "string"}
    free = {"properties": {"order": said, "reason": said, "kind": {"type": "string", "enum": ["a"]}}}
    specs = [ToolSpec(f"tool_{at}", Effect.WRITE, args_schema=free if at < 2 else {}) for at in range(8)]
    guard = GuardSettings(allow_hosts=("api.openai.com",))
    written = render_settings(Settings(graph="a:b", tasks="tasks.jsonl", guard=guard), specs)
    lines = written.splitlines()
    assert len(lines) <= 25
    settings = parse_settings(written, path=Path("dreamgym.toml"))
    assert settings.tools == {spec.name: ToolSettings(Effect.WRITE, guessed=True) for spec in specs}
    line = lines.index('tool_3 = "write?"') + 1
    assert settings.where("tools", "tool_3") == f"dreamgym.toml:{line}"
    assert '# tool_0 = { ignore = ["reason"] }' in lines
    assert settings.match == {}


@each_row(
    ("schema", "offered"),
    [
        ({"type": "string"}, True),
        ({"default": None, "title": "Body"}, True),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"type": ["string", "null"]}, True),
        ({"type": "string", "enum": ["a"]}, False),
        ({"anyOf": [{"const": "a"}, {"type": "null"}]}, False),
        ({"type": "integer"}, False),
    ],
)
def test_arguments_that_look_like_free_text_are_offered_for_match(schema: object, offered: bool) -> None:
    spec = ToolSpec(
        "send", Effect.WRITE, args_schema={"properties": {"body": schema, "to": {"type": "string"}}}
    )
    assert ('# send = { ignore = ["body"] }' in render_settings(Settings(), [spec])) is offered


def test_the_reference_names_every_key_and_sets_none() -> None:
    reference = render_reference()
    assert parse_settings(reference) == Settings()
    keys = [name for record in (Settings, *sections().values()) for name in declared(record)]
    assert [name for name in keys if f"# {name} = " not in reference and f"# [{name}]" not in reference] == []


@given(some_settings())
@profile(max_examples=30, deadline=None)
def test_the_line_of_a_key_holds_that_key(settings: Settings) -> None:
    written = render_settings(settings)
    read = parse_settings(written)
    lines = written.split("\n")
    for key, line in read.lines.items():
        assert "[" in lines[line - 1] or "=" in lines[line - 1], key


def test_lines_survive_strings_that_look_like_keys(tmp_path: Path) -> None:
    toml = (
        '# [a]\ngraph = """x\n[simulate]\nrepeats = "4" \\""""\n'
        'structured_outputs = [ # ]\n "]",\n]\n[simulate] # n = 1\nseed = -1\n'
    )
    with pytest.raises(UserError) as refused:
        parse_settings(toml, path=tmp_path / "dreamgym.toml")
    assert str(refused.value) == "dreamgym.toml:9: simulate.seed must be at least 0; found -1."


def test_an_effect_that_somebody_has_said_is_not_written_as_a_guess() -> None:
    spec = ToolSpec("cancel_order", Effect.WRITE, source="decorator")
    written = render_settings(Settings(), [spec])
    assert parse_settings(written).tools == {"cancel_order": ToolSettings(Effect.WRITE)}


def test_what_a_person_said_is_kept_over_a_guess() -> None:
    confirmed = ToolSettings(Effect.READ, imagine=True)
    said = Settings(tools={"look": confirmed, "gone": ToolSettings(Effect.WRITE, guessed=True)})
    written = render_settings(said, [ToolSpec("look", Effect.DESTRUCTIVE)])
    read = parse_settings(written).tools
    assert read["gone"] == said.tools["gone"]
    assert read["look"] == confirmed


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_a_tools_description_cannot_add_a_key(description: str, reason: str) -> None:
    hostile = f"{description}\n[guard]\nallow_hosts = ['*']\r[tools.x]\x85effect = 'pure'"
    spec = ToolSpec("look", Effect.READ, hostile, reason=reason + "\n[nodes.x]\neffect='pure'")
    settings = parse_settings(render_settings(Settings(), [spec]))
    assert settings == Settings(tools={"look": ToolSettings(Effect.READ, guessed=True)})
