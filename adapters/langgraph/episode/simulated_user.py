"""Who answers in place of a user, and what is kept of it where nobody does."""

from typing import Any

from dreamgym_kit.adapters.langgraph.episode.state import EpisodeState
from dreamgym_kit.dream.user import ScriptedUser, SimulatedUser, UserFailed


async def ask_user(user: SimulatedUser, question: Any, course: EpisodeState) -> Any:
    """What the user says to an interrupt; one that has nothing to say was asked all the same."""
    try:
        return await user.resume(question, course.transcript.records)
    except UserFailed:
        course.add_turn("interrupt", "nobody", question)
        raise


def played_by(user: SimulatedUser) -> str:
    """Who it is, in the words of a run."""
    return "script" if isinstance(user, ScriptedUser) else "persona"
