"""What ended an episode: a tool, the agent's model, its user, a limit, or the graph itself."""

from collections.abc import Sequence

from langgraph.errors import GraphRecursionError

from dreamgym_kit.adapters.langgraph.answers import is_of_tool
from dreamgym_kit.adapters.langgraph.course import Course
from dreamgym_kit.adapters.langgraph.import_trouble import own_frames
from dreamgym_kit.dream.user import UserFailed
from dreamgym_kit.errors import (
    BudgetSpent,
    ContextFull,
    DreamAbstained,
    EpisodeStop,
    GateRefused,
    RealCallExecuted,
    TimeIsUp,
)
from dreamgym_kit.s2r.stops import RealCallRefused
from dreamgym_kit.vocabulary import Transition

_ENDPOINT_LIBRARIES = frozenset(
    {"anthropic", "botocore", "google", "httpcore", "httpx", "httpx2", "openai", "requests", "urllib3"}
)


def say_error(course: Course, error: BaseException, last: Sequence[Transition]) -> None:
    """What an exception that came out of the graph says about the episode, after its `last` call."""
    first = _first_leaf(error)
    text = " ".join(str(first).split())[:300]
    raised = f"the graph raised {type(first).__name__}" + (f": {text}" if text else _cause(first))
    if isinstance(first, GraphRecursionError):
        course.stop, course.reason = "limit", "the graph's recursion limit was reached"
        course.ran_on = True
    elif is_of_tool(first) or _is_of_call(first, last):  # first: a model's silence has the same classes
        course.stop, course.reason = "crashed", raised
    elif isinstance(first, TimeoutError) and type(error) is TimeoutError and not text:
        course.stop, course.reason = "limit", "the episode's time limit was reached"
    elif isinstance(first, UserFailed):
        course.stop, course.reason = "error", f"the simulated user failed: {text}"
    elif isinstance(first, EpisodeStop):
        say_stop(course, first)
    elif type(first).__module__.partition(".")[0] in _ENDPOINT_LIBRARIES or isinstance(
        first, ConnectionError
    ):
        course.stop, course.reason = (
            "error",
            f"the agent's model did not answer: {type(first).__name__}: {text}",
        )
    else:
        course.stop, course.reason = "crashed", raised
    if course.stop == "crashed":  # else nobody's code is at fault
        course.traceback = own_frames(first)


def _cause(error: BaseException) -> str:
    """What stood behind an exception that says nothing itself."""
    cause = error.__cause__ or error.__context__
    return f", from {type(cause).__name__}" if cause is not None else ""


def _is_of_call(error: BaseException, last: Sequence[Transition]) -> bool:
    """Whether this is the time-out of the last call: asyncio makes another exception of one in a thread."""
    return type(error) is TimeoutError and any(
        (entry.answer.error_type, entry.answer.error) == ("TimeoutError", str(error)) for entry in last
    )


def _first_leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def say_stop(course: Course, stop: EpisodeStop) -> None:
    """How an episode ended that was stopped, and why."""
    course.reason, course.ran_on = str(stop), False
    if isinstance(stop, GateRefused):
        course.stop = "violation"
    elif isinstance(stop, RealCallExecuted):
        course.stop = "executed"
    elif isinstance(stop, RealCallRefused):
        course.stop = "refused"
    elif isinstance(stop, DreamAbstained):
        course.stop = "abstained"
    elif isinstance(stop, TimeIsUp):
        course.stop = "limit"
    elif isinstance(stop, ContextFull):
        course.stop, course.ran_on = "limit", True
    elif isinstance(stop, BudgetSpent) and stop.what == "tool calls of one episode":
        course.stop, course.reason, course.ran_on = "limit", f"more than {stop.limit:g} tool calls", True
    else:
        course.stop = "budget" if isinstance(stop, BudgetSpent) else "error"
