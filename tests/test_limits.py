"""`tests/limits.py` finds circles, and says what is over its ceiling."""

import runpy
from pathlib import Path

import pytest

LIMITS = runpy.run_path(str(Path(__file__).with_name("limits.py")))


def test_modules_that_import_each_other_are_a_circle() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str]()}
    assert sorted(map(sorted, LIMITS["_circles"](imports))) == [["a", "b", "c"], ["d"]]


def test_what_is_over_its_ceiling_is_said_last(capsys: pytest.CaptureFixture[str]) -> None:
    ceilings = {what: ceiling for what, (ceiling, _) in LIMITS["CEILINGS"].items()}
    assert LIMITS["main"](ceilings) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ok"
    assert LIMITS["main"]({**ceilings, "circles": 1}) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "circles 1 > 0"
