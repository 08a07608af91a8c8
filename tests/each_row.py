"""A test that walks a table: every row runs, and the rows that fail are named together."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fresh
import pytest
from _pytest.mark import ParameterSet

Test = Callable[..., Any]


def each_row(
    names: str | Sequence[str], table: Iterable[Any], ids: Iterable[Any] | Callable[[Any], Any] | None = None
) -> Callable[[Test], Test]:
    """Give one test for the whole table, written as for `pytest.mark.parametrize`.

    Fixtures are set up once. What a row must not leave to the next one is given anew: `tmp_path` (a folder in
    it), `monkeypatch`, the event loop of an async test, captured output, and whatever has a method `new_row`.

    Raises:
        BaseExceptionGroup: what each failing row raised, named in the message and in a note.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    alone = isinstance(names, str) and len(keys) == 1
    table = list(table)
    assert not any(isinstance(row, ParameterSet) for row in table), "a row with marks is a test of its own"
    rows = [dict(zip(keys, [row] if alone else row, strict=True)) for row in table]
    assert rows, f"no rows for {names}"
    called = list(zip(_names(rows, ids), rows, strict=True))

    def one_test(test: Test) -> Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def walk(**fixtures: Any) -> None:
            failed: dict[str, BaseException] = {}
            skipped: dict[str, str] = {}
            for number, (name, values) in enumerate(called):
                try:
                    with _of_its_own(fixtures, number) as given:
                        ended = test(**given, **values)
                        if inspect.iscoroutine(ended):
                            asyncio.run(ended)
                except (KeyboardInterrupt, SystemExit, pytest.exit.Exception):
                    raise
                except pytest.skip.Exception as reason:
                    skipped[name] = str(reason)
                except BaseException as error:  # a refusal of the gate is none of `Exception`
                    error.add_note(f"row: {name}")
                    failed[name] = error
                fresh.after_test()
            if failed:
                said = f"{len(failed)} of {len(rows)} rows fail: {'; '.join(failed)}"
                raise BaseExceptionGroup(said, list(failed.values()))
            if len(skipped) == len(rows):
                pytest.skip(next(iter(skipped.values())))
            for name, reason in skipped.items():
                print(f"row {name} skipped: {reason}")

        left = [one for name, one in signature.parameters.items() if name not in keys]
        walk.__signature__ = signature.replace(parameters=left, return_annotation=None)  # type: ignore[attr-defined]
        return walk

    return one_test


def _names(rows: Sequence[dict[str, Any]], ids: Iterable[Any] | Callable[[Any], Any] | None) -> Iterator[str]:
    """Each is unique by its number."""
    spell = ids if callable(ids) else _short
    given = (", ".join(str(spell(value)) for value in row.values()) for row in rows)
    for number, name in enumerate(given if ids is None or callable(ids) else ids, start=1):
        yield f"{number} ({name})"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


@contextmanager
def _of_its_own(fixtures: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    given = dict(fixtures)
    with pytest.MonkeyPatch.context() as patch:
        for name, fixture in fixtures.items():
            if isinstance(fixture, pytest.MonkeyPatch):
                given[name] = patch
            elif name == "tmp_path":
                given[name] = Path(fixture, str(number))
                given[name].mkdir(exist_ok=True)
            elif isinstance(fixture, pytest.CaptureFixture):
                fixture.readouterr()
            elif isinstance(fixture, pytest.LogCaptureFixture):
                fixture.clear()
            elif hasattr(fixture, "new_row"):
                fixture.new_row()
        yield given
