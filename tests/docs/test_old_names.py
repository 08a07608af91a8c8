"""A public name or argument of an earlier version is an error that names the new one."""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest
from typer.main import get_command

import dreamgym_kit
from dreamgym_kit.adapters.pytest_plugin.dream import Dream
from dreamgym_kit.cli.main import app, flags_of
from dreamgym_kit.cli.options import OLD_COMMANDS, OLD_FLAGS
from dreamgym_kit.errors import OLD_NAMES
from dreamgym_kit.settings.read import renamed

CHECKOUT = Path(__file__).parents[2]
SHAPES = r"--[a-z][\w-]*|DREAMGYM_\w+|(?<![\w.])[a-z_]+\.[a-z_]+|\b[A-Z][a-zA-Z]+\b"
FOLDERS = (".ci", ".github", "adapters", "cli", "docs", "recipes", "toolkit")
TEXTS = (".in", ".ipynb", ".jinja", ".json", ".md", ".py", ".toml", ".yml")
NOT_READ = ("CHANGELOG.md", "options.py", "errors.py", "schema.py")  # the last three declare them
OTHERS = {"budget.calls", "budget.usd", "--no-reasoning"}  # attributes of a budget; a flag of recipes.nano


def test_no_file_has_an_old_command_key_flag_or_public_name() -> None:
    old = {*OLD_FLAGS} - {flag for flags in flags_of(get_command(app)).values() for flag in flags} - OTHERS
    for section, key in (names for names in renamed() if len(names) == 2):
        old |= {f"{section}.{key}", f"DREAMGYM_{section}_{key}".upper()} - OTHERS
    old |= {name.partition(".")[2] for name in OLD_NAMES} - {""}
    paths = [*CHECKOUT.glob("*"), *(path for folder in FOLDERS for path in (CHECKOUT / folder).rglob("*"))]
    read = [path for path in paths if path.suffix in TEXTS and path.name not in NOT_READ]
    texts = {path: path.read_text("utf-8") for path in read}
    hits = {path: {*re.findall(SHAPES, text)} & old for path, text in texts.items()}
    commands = [f"dreamgym-kit {command}" for command in OLD_COMMANDS]
    assert {path: names for path, names in hits.items() if names} == {}
    assert [(path, one) for path, text in texts.items() for one in commands if one in text] == []
    assert len(texts) > 400


def test_an_old_public_name_or_argument_names_the_new_one() -> None:
    for old, now in OLD_NAMES.items():
        module, _, name = f"dreamgym_kit.{old}".rpartition(".")
        with pytest.raises(ImportError, match=re.escape(f"dreamgym_kit.{old} is now {now}")):
            getattr(import_module(module), name)
        assert resolve_name(now)
    with pytest.raises(TypeError, match=r"asimulate\(\): store= is now buffer=, n= is now repeats="):
        dreamgym_kit.simulate("nowhere:graph", [], store=None, n=2)
    with pytest.raises(TypeError, match=r"answers= is now mocks=, unfinished= is now allow_incomplete="):
        Dream.run(None, None, "hi", answers={}, unfinished=True)  # type: ignore[call-arg, arg-type]
