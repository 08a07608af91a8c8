"""Bar G3: dreams beside each other and a real agent: no wrong answer, real call or false refusal."""

from typing import Any

import pytest
from bench.crosstalk import Talk, crosstalk

from dreamgym_kit.adapters.langgraph.intercept import tools
from dreamgym_kit.routing.process import live_sessions

NOTHING = (0, 0, 0)


def figures(talk: Talk) -> tuple[int, int, int]:
    print(f"G3 wrong {talk.wrong} real {talk.real_calls} refusals {talk.false_refusals} calls {talk.calls}")
    return talk.wrong, talk.real_calls, talk.false_refusals


def test_sixteen_dreams_and_a_real_agent_do_not_meet() -> None:
    talk = crosstalk(0, 16, 4)
    assert figures(talk) == NOTHING
    assert talk.calls == 16 * 4 * 11
    assert talk.bodies == {-1: 4 * 11}
    assert talk.rightly_refused == 16 * 4


def test_a_gate_that_takes_any_session_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_session(key: str | None, tool: str) -> Any:
        return live_sessions()[0]

    monkeypatch.setattr(tools, "find", any_session)
    talk = crosstalk(0, 4, 2)
    assert talk.wrong + talk.real_calls + talk.false_refusals > 0


@pytest.mark.slow
@pytest.mark.nightly
def test_sixty_four_dreams_and_a_real_agent_do_not_meet_in_twenty_thousand_calls() -> None:
    talk = crosstalk(1, 64, 32)
    assert figures(talk) == NOTHING
    assert talk.calls >= 20_000
