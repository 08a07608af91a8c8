"""Bar G6: with the kit, idle or recording, an agent says what it says without: 0 messages differ."""

from typing import Any

import pytest
from bench.transparent import Compared, transparent

from dreamgym_kit.adapters.langgraph.intercept import tools


def figure(found: Compared) -> tuple[str, ...]:
    print(f"G6 different {len(found.different)} of {found.said} messages")
    return found.different


@pytest.mark.slow
def test_a_fifth_of_the_rows_says_the_same() -> None:
    found = transparent(0, every=5)
    assert figure(found) == ()
    assert found.said > 200


@pytest.mark.slow
def test_a_recorder_that_tidies_answers_up_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tools.run_real

    def tidied(*args: Any, **kwargs: Any) -> Any:
        given = yield from real(*args, **kwargs)
        return lambda: str(given())

    found = transparent(0, every=25, sabotage=lambda: monkeypatch.setattr(tools, "run_real", tidied))
    assert len(found.different) > 0
    assert all("recording" in one for one in found.different)


@pytest.mark.nightly
@pytest.mark.slow
def test_every_row_says_the_same() -> None:
    found = transparent(1)
    assert figure(found) == ()
    assert found.said > 1_000
