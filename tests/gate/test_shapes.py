"""No real body runs in a dream, whatever the shape; and the dream was really asked."""

import pytest
from each_row import each_row
from shapes.canary import Canary, touch
from shapes.everything import KINDS, rows, run_dreamt
from shapes.stage import Shape

pytestmark = [
    pytest.mark.usefixtures("gate"),
    pytest.mark.filterwarnings("ignore"),  # other people's packages, in whatever version
]
ROWS = rows()


@each_row(("shape", "kind"), ROWS, ids=[f"{shape.name}, {kind}" for shape, kind in ROWS])
def test_a_dream_answers_and_no_body_runs(shape: Shape, kind: str, canary: Canary) -> None:
    ran = run_dreamt(shape, kind)
    assert [name for name in canary.written() if name not in shape.may_run] == []
    assert canary.heard() <= len(canary.written())
    assert ran.dreamt == shape.dreamt
    assert ran.looks_right
    assert ran.session.violations == []


def test_the_canary_is_heard_twice_when_a_body_runs(canary: Canary) -> None:
    touch("body")
    assert canary.written() == ["body"]
    assert canary.heard() == 1


def test_the_matrix_holds_every_family_in_both_kinds() -> None:
    assert {kind for _, kind in ROWS} == set(KINDS)
    families = ("create_agent,", "create_react_agent v1", "create_react_agent v2", "StateGraph and ToolNode")
    families += ("@tool,", "supervisor", "swarm", "deepagents", "MCP", "Send fan-out", "plain function")
    names = [shape.name for shape, _ in ROWS]
    assert [family for family in families if not any(family in name for name in names)] == []
