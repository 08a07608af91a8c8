"""Which tool a failure was about."""

from each_row import each_row

from dreamgym_kit.curriculum.records import failed_at, tool_of
from dreamgym_kit.types import Answer, Call, Effect, Environment, Episode, Transition, Verdict

READS = ("find", "list")


def episode(verdict: Verdict, *calls: tuple[str, str] | tuple[str, str, str]) -> Episode:
    """Calls as (tool, argument) or (tool, argument, error)."""
    steps = tuple(
        Transition(
            Call(tool, {"id": argument}),
            Answer(error=error[0] if error else None),
            Effect.READ if tool in READS else Effect.WRITE,
            "e",
            place,
        )
        for place, (tool, argument, *error) in enumerate(calls, start=1)
    )
    return Episode("e", "t", 1, Environment(), verdict, "", steps)


GOOD = episode(Verdict.PASSED, ("find", "C1"), ("refund", "P1"), ("mail", "C1"))


@each_row(
    ("calls", "place"),
    [
        ([("find", "C1"), ("refund", "P1")], "missing mail"),
        ([("find", "C1"), ("mail", "C1")], "missing refund"),
        ([("find", "C1"), ("refund", "P2"), ("mail", "C1")], "otherwise refund"),
        ([("find", "C1"), ("refund", "P1"), ("cancel", "O1"), ("mail", "C1")], "extra cancel"),
        ([("find", "C1"), ("refund", "P1", "no"), ("mail", "C1")], "refused refund"),
        ([("find", "C2"), ("refund", "P1"), ("mail", "C1")], "asks find"),
    ],
)
def test_beside_a_good_sibling_it_is_what_was_done_otherwise(calls: list, place: str) -> None:
    assert failed_at([GOOD, episode(Verdict.FAILED, *calls)]) == {place: 1}


def test_without_a_good_sibling_it_is_where_it_ended() -> None:
    assert failed_at([episode(Verdict.FAILED, ("find", "C1"), ("refund", "P1"), ("find", "C1"))]) == {
        "ended refund": 1
    }
    assert failed_at([episode(Verdict.FAILED, ("find", "C1", "no such"))]) == {"refused find": 1}
    assert failed_at([episode(Verdict.FAILED)]) == {}


def test_inconclusive_and_good_episodes_fail_at_nothing() -> None:
    assert failed_at([GOOD, episode(Verdict.INCONCLUSIVE, ("find", "C1"))]) == {}
    assert tool_of("missing mail") == "mail"
