"""A public name or argument of an earlier version is an error that names the new one."""

import re

import pytest

import dreamgym_kit
from dreamgym_kit import OLD_NAMES
from dreamgym_kit.adapters.pytest_plugin.dream import Dream


def test_an_old_public_name_or_argument_names_the_new_one() -> None:
    for old, now in OLD_NAMES.items():
        with pytest.raises(ImportError, match=re.escape(f"dreamgym_kit.{old} is now {now}")):
            __import__("dreamgym_kit", fromlist=[old])  # from dreamgym_kit import World
    with pytest.raises(TypeError, match=r"asimulate\(\): store= is now buffer=, n= is now repeats="):
        dreamgym_kit.simulate("nowhere:graph", [], store=None, n=2)


def test_an_old_argument_of_the_pytest_fixture_names_the_new_one() -> None:
    with pytest.raises(TypeError, match=r"answers= is now mocks=, unfinished= is now allow_incomplete="):
        Dream.run(None, None, "hi", answers={}, unfinished=True)  # type: ignore[call-arg, arg-type]
