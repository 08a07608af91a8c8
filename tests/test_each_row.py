"""A table of rows is one test, in which no row hides another one."""

from pathlib import Path

import pytest
from each_row import each_row


def test_every_row_runs_and_those_that_fail_are_named(tmp_path: Path) -> None:
    ran = []

    @each_row("given, expected", [("a", "a"), ("b", "c"), ("d", "d"), ("e", "")], ids=["A", "B", "D", "E"])
    async def test(given: str, expected: str, tmp_path: Path) -> None:
        ran.append(given)
        assert list(tmp_path.iterdir()) == []  # nothing of the rows before
        (tmp_path / given).touch()
        if not expected:
            pytest.fail("DID NOT RAISE")
        assert given == expected

    with pytest.raises(BaseExceptionGroup, match=r"2 of 4 rows fail: 2 \(B\); 4 \(E\)") as failed:
        test(tmp_path=tmp_path)
    assert ran == ["a", "b", "d", "e"]
    assert [error.__notes__ for error in failed.value.exceptions] == [["row: 2 (B)"], ["row: 4 (E)"]]


def test_a_table_of_which_no_row_can_run_is_skipped_and_an_empty_one_is_none() -> None:
    @each_row("row", [1, 2])
    def test(row: int) -> None:
        pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception, match="not here"):
        test()
    with pytest.raises(AssertionError, match="no rows for row"):
        each_row("row", [])
