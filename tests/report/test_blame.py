"""Whose doing it is that an episode did not pass."""

import pytest

from dreamgym_kit.report.metrics import EpisodeLine
from dreamgym_kit.types import KIT_FAILED, TIME_IS_UP, Blame, Environment, Episode, Executed, Verdict

FAILED, ERROR, OPEN = Verdict.FAILED, Verdict.ERROR, Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("verdict", "stop", "reason", "blame"),
    [
        (Verdict.PASSED, "finished", "every expectation held", None),
        (FAILED, "finished", "refund was called 2 times", Blame.AGENT),
        (FAILED, "error", "the graph raised KeyError", Blame.AGENT),
        (FAILED, "violation", "refused to connect", Blame.SETUP),
        (
            FAILED,
            "abstained",
            "refund was called, which the task forbids; then the dream could not go on",
            Blame.AGENT,
        ),
        (FAILED, "finished", f"judged by a model: the agent wrote '{KIT_FAILED}'", Blame.AGENT),
        (OPEN, "abstained", "unanswered call 1", Blame.SETUP),
        (OPEN, "interrupted", "waits for an answer", Blame.SETUP),
        (OPEN, "limit", "more than 20 tool calls", Blame.AGENT),
        (OPEN, "limit", f"{TIME_IS_UP} was reached", Blame.SETUP),
        (OPEN, "finished", "finished; the task has no checker", Blame.SETUP),
        (ERROR, "error", "the agent's model did not answer", Blame.SETUP),
        (ERROR, "error", f"{KIT_FAILED}: KeyError", Blame.KIT),
    ],
)
def test_blame_follows_from_how_an_episode_ended(
    verdict: Verdict, stop: str, reason: str, blame: Blame | None
) -> None:
    assert made(verdict, stop, reason).blame is blame


def test_a_real_call_that_ran_in_a_dream_is_the_kits() -> None:
    episode = made(FAILED, "executed", "1 real call executed")
    assert episode.blame is Blame.KIT
    ran = Episode("t.1", "t", 1, Environment(), FAILED, "x", executed=(Executed("refund"),))
    assert ran.blame is Blame.KIT


def test_an_unusual_blame_stands_beside_the_verdict() -> None:
    usual = EpisodeLine("t.1", "t", 1, ERROR, "x", "error", 0, blame=Blame.SETUP)
    kit = EpisodeLine("t.1", "t", 1, ERROR, "x", "error", 0, blame=Blame.KIT)
    assert (usual.outcome, kit.outcome) == ("error", "error (kit)")


def made(verdict: Verdict, stop: str, reason: str) -> Episode:
    return Episode("t.1", "t", 1, Environment(), verdict, reason, stop=stop)
