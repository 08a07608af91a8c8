"""Every error the kit raises on purpose.

A `UserError` is one that a person can mend; `exit_code` is that of the command it ends. An `EpisodeStop` ends
one episode and nothing else.
"""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import IntEnum
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any


class ExitCode(IntEnum):
    """Of every command; after a signal it is 128 and the signal's number."""

    PASSED = 0
    FAILED = 1
    CANNOT_RUN = 2
    INCONCLUSIVE = 3
    ERROR = 4
    NO_TASK = 5
    EXECUTED = 6  # a real tool ran in a dream; takes precedence over all others
    KIT_FAULT = 70  # a bug of ours
    INTERRUPTED = 130


class DreamgymError(Exception):
    """Base of the kit's errors. The text is one line: what, where, what to do."""


class UserError(DreamgymError):
    """The input is at fault, nothing was lost, and the message says how to mend it."""

    exit_code = ExitCode.CANNOT_RUN  # of a command that it ends


class NoTaskSelected(UserError):
    """What was asked for leaves no task to run."""

    exit_code = ExitCode.NO_TASK


class UnknownName(UserError):
    """Something names a thing that does not exist.

    Args:
        kind: what was named, as a person says it ("tool", "key", "graph").
        name: the name that nothing has.
        known: what there is; the nearest one is suggested.
        source: where the name stands ("dreamgym.toml:14").
        where: what was searched ("the graph").
    """

    def __init__(self, kind: str, name: str, *, known: Iterable[str], source: str, where: str) -> None:
        self.name = name
        self.known = tuple(known)
        near = get_close_matches(name, self.known, n=1)
        self.near = near[0] if near else None
        short = dict.fromkeys(re.sub(r"\..*", ".*", name) for name in self.known)  # of keys, the sections
        listed = short if len(self.known) > 100 else self.known
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(listed) or 'none'}."
        super().__init__(f"{source}: {kind} '{name}' is not in {where}; {hint}")


class MissingExtra(UserError):
    """A command needs a package that the base install leaves out."""

    def __init__(self, extra: str, *, needed_by: str) -> None:
        self.extra = extra
        super().__init__(f"{needed_by} needs an extra: pip install 'dreamgym-kit[{extra}]'")


_PACKAGES = {  # by extra, those whose absence is noticed
    "demo": ("langchain", "langchain_mcp_adapters", "mcp"),
    "embeddings": ("sentence_transformers",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "plots": ("matplotlib",),
    "ray": ("ray", "psutil"),
    "train": ("torch", "transformers", "trl", "peft", "accelerate", "datasets"),
    "weaviate": ("weaviate",),
}


def has_extra(extra: str) -> bool:
    """Whether the packages of an extra are installed; imports none of them."""
    try:
        return all(find_spec(package) for package in _PACKAGES[extra])
    except ModuleNotFoundError:  # a package that one of them lies in
        return False


def require_extra(extra: str, *, needed_by: str) -> None:
    """Raise MissingExtra unless `has_extra`; `needed_by` begins its message."""
    if not has_extra(extra):
        raise MissingExtra(extra, needed_by=needed_by)


class StoreError(UserError):
    """A buffer cannot be read or written as asked; nothing in it was changed."""


class StoreUnavailable(StoreError):
    """The server that holds a buffer gave no answer within its deadline, or none that settles anything.

    Down, restarting, cut off, overloaded: the same request can go well later, and rows that were being put
    may be there in part. A wrong key, a missing tenant or a refused row is a plain `StoreError`.
    """


class RunDirectoryError(UserError):
    """A run directory cannot be used as asked; nothing in it was changed."""


class UnsupportedGraph(UserError):
    """The graph holds something that the gate cannot answer in place of.

    Args:
        problems: one sentence each, naming the tool or node and how to register it.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        listed = "\n  ".join(self.problems)
        super().__init__(f"the graph cannot be simulated yet; nothing was run.\n  {listed}")


class GraphNotLoaded(UserError):
    """The graph's own module or factory failed.

    Args:
        text: what failed, where in the user's own code, and what to do.
        variables: the environment variables that it misses.
    """

    def __init__(self, text: str, *, variables: Sequence[str] = ()) -> None:
        self.variables = tuple(variables)
        super().__init__(text)


class AmbiguousGraph(UserError):
    """A project file names several graphs, and nobody said which.

    Args:
        source: the file.
        choices: what to write instead, one for each graph.
    """

    def __init__(self, source: str, choices: Sequence[str]) -> None:
        self.choices = tuple(choices)
        super().__init__(f"{source}: has {len(self.choices)} graphs; name one: {', '.join(self.choices)}")


class NotSerializable(DreamgymError, ValueError):
    """A value that has no canonical JSON form, or a text that our bounded reader refuses."""


class WorkerLost(DreamgymError):
    """A process that ran episodes is no more, or cannot be reached; whether they ended there nobody knows."""


class EndpointError(DreamgymError):
    """A model's endpoint gave no usable answer.

    Args:
        kind: refused_address, unauthorized, not_found, rejected, rate_limit, server, connection,
            timeout, malformed, too_large, stale_weights (it is there, and serves others than it has to), or
            context (the prompt leaves no room for an answer).
        text: one line without any key: endpoint, what, what to do.
        status: the HTTP status, where there was one.
        retryable: whether another try, or another replica, can help.
        retry_after_s: how long the server asked to be left alone.
    """

    def __init__(
        self,
        kind: str,
        text: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        self.kind = kind
        self.status = status
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        super().__init__(text)


class TrainingStopped(DreamgymError):
    """An alarm: what was about to be learned, or just was, cannot be trusted. That step is not kept.

    Args:
        alarm: its name, "not_finite"; `training.alarms` has them all.
        text: what was seen, in one sentence with its figures.
        step: the step that is not kept, from 1.
    """

    def __init__(self, alarm: str, text: str, *, step: int) -> None:
        self.alarm = alarm
        self.text = text
        self.step = step
        super().__init__(f"step {step}: {alarm}: {text}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pass from process to process whole."""
        return partial(TrainingStopped, step=self.step), (self.alarm, self.text)


class EpisodeStop(BaseException):
    """Ends the episode it is raised in.

    A BaseException because agents, tool nodes and retry middleware catch Exception and go on; an
    episode that must end must not be talked out of it. Where a bare `except:` swallows it, the
    session has latched and every later call is refused again.
    """


class RealCallBlocked(EpisodeStop):
    """Something real was about to run: a violation. The refusal is kept in the session too."""


class RealCallExecuted(EpisodeStop):
    """Something real ran; it stands in the session and in the journal, and the run ends."""


class CallUnanswered(EpisodeStop):
    """The dream cannot tell what the tool would answer; the episode is inconclusive."""


class BudgetExceeded(EpisodeStop):
    """A hard limit was reached before the call, which did not run; the episode is inconclusive."""

    def __init__(self, what: str, *, limit: float) -> None:
        self.what = what
        self.limit = limit
        super().__init__(f"budget spent: {what} (limit {limit:g})")


class EpisodeTimeout(EpisodeStop):
    """Its wall time was over before the call, which did not run; the episode is inconclusive."""

    def __init__(self, tool: str, *, limit: float) -> None:
        super().__init__(f"the episode's time limit ({limit:g} s) was over before {tool}; it did not run")


class WorkerDetached(EpisodeStop):
    """The worker that runs the episode was given up, or hears nothing of who did; the call did not run."""

    def __init__(self) -> None:
        super().__init__("this worker was given up, so what it runs makes no more calls")


class ContextFull(EpisodeStop):
    """What the agent's model is asked no longer fits, with answers of its own in it: the policy failed."""


OLD_NAMES = {
    "ports": "dreamgym_kit.interfaces",
    "sim_to_real": "dreamgym_kit.s2r",
    "staging": "dreamgym_kit.supervised",
    "vocabulary": "dreamgym_kit.types",
    "World": "dreamgym_kit.Environment",
    "errors.BudgetSpent": "dreamgym_kit.errors.BudgetExceeded",
    "errors.CutOff": "dreamgym_kit.errors.WorkerDetached",
    "errors.DreamAbstained": "dreamgym_kit.errors.CallUnanswered",
    "errors.GateRefused": "dreamgym_kit.errors.RealCallBlocked",
    "errors.NotJson": "dreamgym_kit.errors.NotSerializable",
    "errors.SeveralGraphs": "dreamgym_kit.errors.AmbiguousGraph",
    "errors.ShapeRefused": "dreamgym_kit.errors.UnsupportedGraph",
    "errors.TimeIsUp": "dreamgym_kit.errors.EpisodeTimeout",
}
"""Public names of earlier versions, and what each is called now."""


def unknown_name(module: str, name: str) -> Exception:
    """Return the error for a name that a module lacks; it gives the new name of an old one."""
    old = f"{module}.{name}"
    if (key := old.removeprefix("dreamgym_kit.")) in OLD_NAMES:
        return ImportError(f"{old} is now {OLD_NAMES[key]}")  # `from` hides an AttributeError
    return AttributeError(f"module {module!r} has no attribute {name!r}")


if not TYPE_CHECKING:  # a type checker would take every name for one of the module's

    def __getattr__(name: str) -> object:
        raise unknown_name(__name__, name)
