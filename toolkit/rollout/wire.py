"""What a driver and its workers say to each other: JSON in bytes, whatever carries them.

    open     the spec: who opens what a runner stands on, with which facts      -> facts of the worker
    episode  a task, its sibling's number and attempt                           -> `Came`
    load     new weights of the policy: where they lie, or who serves them      -> what it serves now
    admit    tasks that came later                                              -> nothing
    close    nothing                                                            -> last facts, strays

An answer is never an exception: what went wrong is in it as text, and whose fault it was. No secret is sent;
a worker finds those it needs in its own environment.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dreamgym_kit.canonical import canonical
from dreamgym_kit.codec import Codec
from dreamgym_kit.errors import NotJson, UserError
from dreamgym_kit.jsonread import read_own_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.rollout.jobs import Job
from dreamgym_kit.rollout.records import EPISODES
from dreamgym_kit.rollout.tasks import TASKS, task_from_record
from dreamgym_kit.turns import Turn
from dreamgym_kit.vocabulary import Episode

Event = tuple[str, Mapping[str, JsonValue]]

_spell = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What a worker is opened with; plain JSON, the same for all workers of a run, and no secret in it.

    Attributes:
        opener: "module:function" in the worker's own installation; see `workplace.Opener`.
        given: what the opener is given.
        lanes: episodes that it runs at once.
        limit_s: wall time of an episode, grace included, after which the worker ends it; None: no end.
        paths: what the worker's `sys.path` is to be; empty: as it is there.
        kit: the version of the kit that the driver runs; a worker of another one refuses.
        every_call: each call is asked for, limit or not: the tools are real.
    """

    opener: str
    given: Mapping[str, JsonValue] = field(default_factory=dict)
    lanes: int = 1
    limit_s: float | None = None
    paths: tuple[str, ...] = ()
    kit: str = ""
    calls_limit: int | None = None  # of the run's budget, for messages; the driver does the counting
    usd_limit: float | None = None
    every_call: bool = False


@dataclass(frozen=True, slots=True)
class Came:
    """What came of one episode in a worker.

    Attributes:
        events: what was heard meanwhile, in order.
        turns: what the policy said.
        strays: refused calls that belonged to no episode, since the last answer.
        notes: what a person should know.
        interrupted: somebody's code raised KeyboardInterrupt: the run is to be stopped.
        gone: why the policy's server is there no more: (kind, text); else empty.
    """

    episode: Episode
    events: tuple[Event, ...] = ()
    turns: tuple[Turn, ...] = ()
    strays: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    gone: tuple[str, ...] = ()


_SPECS = Codec(WorkerSpec)
_CAME = Codec(Came, nested=(EPISODES,))


def spelled(message: Mapping[str, Any]) -> bytes:
    """A message in bytes.

    Raises:
        NotJson: a value in it has no JSON form.
    """
    try:
        return _spell(message).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(str(error)) from None


def read(message: bytes) -> dict[str, Any]:
    """A message that `spelled` made: by our own process, so the plain parser will do."""
    record = read_own_json(message)
    if not isinstance(record, dict):
        raise NotJson("a message is an object")
    return record


def open_request(spec: WorkerSpec) -> bytes:
    """Ask a worker to open what it runs episodes on."""
    return spelled({"do": "open", "spec": _SPECS.write(spec)})


def spec_of(record: Mapping[str, Any]) -> WorkerSpec:
    """The spec in an open request."""
    return _SPECS.read(record["spec"])


def episode_request(job: Job) -> bytes:
    """Ask a worker to run an episode."""
    task = TASKS.write(job.task)
    return spelled({"do": "episode", "task": task, "sibling": job.sibling, "attempt": job.attempt})


def job_of(record: Mapping[str, Any]) -> Job:
    """The job in an episode request."""
    return Job(task_from_record(record["task"], source="job"), record["sibling"], record["attempt"])


def came_to_bytes(came: Came) -> bytes:
    """What came of an episode, as the answer to its request.

    Raises:
        NotJson: the episode holds a value without JSON form.
    """
    canonical(came.episode.final)  # the digest leaves it out: what cannot be written is refused here
    events = tuple((kind, dict(facts)) for kind, facts in came.events)
    return spelled(_CAME.write(replace(came, events=events)))


def came_from(answer: bytes) -> Came:
    """Read what `came_to_bytes` wrote.

    Raises:
        NotJson: it is something else.
    """
    return _CAME.read(read(answer))


def failure_to_bytes(error: BaseException, text: str) -> bytes:
    """An answer that says what went wrong; a mistake of the user's is told from one of ours."""
    return spelled({"error": text, "user": isinstance(error, UserError)})


def answered(answer: bytes) -> dict[str, Any]:
    """The facts of an answer that is no episode.

    Raises:
        UserError: the worker said what a person did wrong.
        RuntimeError: it failed otherwise.
    """
    record = read(answer)
    if "error" not in record:
        return record
    if record["user"]:
        raise UserError(record["error"])
    raise RuntimeError(record["error"])


def request(do: str, facts: Mapping[str, Any] | None = None) -> bytes:
    """Any other request."""
    return spelled({"do": do, **(facts or {})})
