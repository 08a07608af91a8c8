"""What the toolkit asks of the outside; adapters answer. One contract suite per port in tests/contracts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.turns import Batch, Turn, UpdateFacts
from dreamgym_kit.types import (
    Answer,
    Approval,
    Call,
    Environment,
    Episode,
    Finding,
    HeldCall,
    Source,
    Task,
    ToolSpec,
    Transition,
    Verdict,
)

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from dreamgym_kit.findings.case import Case


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a call stands: what an experience model may use besides the call itself."""

    environment: Environment
    task: str
    episode: str
    history: Sequence[Transition]  # this episode's earlier calls and answers, oldest first
    after: str  # history_digest of the world-changing calls among them
    tool: ToolSpec
    seen: int = 0  # how often this very call was answered before in this very state
    tenant: str = "default"
    spoken: tuple[str, ...] = ()  # texts of the task and its user so far: what they name, they vouch for
    account: "Account | None" = field(default=None, compare=False, repr=False)


class Account(Protocol):
    """Where an episode's dream is charged and counted. Thread-safe."""

    def spent(self, part: str, reply: "ChatReply") -> None:
        """A chat model answered for this part of the dream (experience, judge, user)."""
        ...

    def count(self, event: str, by: int = 1) -> None:
        """Count something worth telling in the report."""
        ...


@runtime_checkable
class ExperienceModel(Protocol):
    """Answers a tool call in place of the real tool."""

    waits: bool
    """Whether `answer` ever awaits something that is not ready. Models that only compute say False
    and are driven without an event loop, also from a tool's worker thread."""

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """Answer `call` as the tool would in this situation.

        Abstains (`Source.UNANSWERED`, support 0.0, `why` set) rather than raise when it cannot
        tell. Touches no real system. Equal calls in equal situations get equal answers.
        """
        ...


TELLING = frozenset(Source) - {Source.UNANSWERED, Source.FAULT, Source.IMAGINED}
"""Answers that say what a tool would say; of no answer, a planned fault and fiction nothing follows."""


@dataclass(frozen=True, slots=True)
class HybridQuery:
    """What to look for, by its words and by its meaning. Held-out rows are never found, whatever is asked."""

    text: str
    tool: str | None = None
    environment: Environment | None = None
    tenant: str = "default"
    k: int = 8  # most hits
    not_episode: str | None = None  # the episode that asks: its own rows are no evidence
    sources: frozenset[Source] = TELLING
    words_only: bool = False  # leave the embedder out


@dataclass(frozen=True, slots=True)
class Hit:
    """A transition that was found, and why it stands where it does."""

    transition: Transition
    score: float  # of the rank fusion; comparable within one search only
    places: Mapping[str, int]  # 1-based place among the best by "words" and by "vectors", where it is


@dataclass(frozen=True, slots=True)
class Room:
    """How much a buffer may hold."""

    rows: int | None = None  # of any kind; None: no limit
    dreamt_share: float = 0.5  # 0..1 of all rows: answers that no real tool gave
    dreamt_lifetime_s: float | None = None  # None: they stay as long as there is room


class Embedder(Protocol):
    """Turns text into vectors whose dot product says how alike two texts are."""

    name: str
    """Names the vectors: a buffer holds those of one embedder and refuses another."""

    @property
    def dimension(self) -> int:
        """Numbers in a vector; may have to load a model to tell."""
        ...

    local: bool
    """Whether `embed` only computes: quick, needs no network and cannot fail."""

    def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """One row for each text, shape [len(texts), dimension], of length 1 (0 for text that says nothing).

        Equal texts get equal rows, whatever stands beside them. Raises `UserError` when it cannot.
        """
        ...


@runtime_checkable
class ChatEndpoint(Protocol):
    """Somewhere that a chat model answers: messages in, message and usage out."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Ask once and wait for the whole answer; from any event loop, any number at once.

        Raises:
            EndpointError: no usable answer came within the endpoint's own limits of time, size and tries.
        """
        ...


@runtime_checkable
class PolicyServer(ChatEndpoint, Protocol):
    """A chat endpoint whose weights are ours: takes new ones, and proves which it serves."""

    @property
    def version(self) -> str:
        """Names the weights that answer from now on."""
        ...

    async def load(self, weights: "Path", version: str) -> None:
        """Serve the model directory `weights` (safetensors) from now on.

        Requests under way end with the weights they began with. Cached prompts of the old ones are dropped.

        Raises:
            UserError: the directory is no model that can be served in place of this one; the old one stays.
        """
        ...

    async def score(self, ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """Natural log-prob of each id after the first, under the weights served now, at temperature 1."""
        ...


class Trainer(Protocol):
    """Changes a policy's weights, one optimiser step at a time, and keeps checkpoints of it all."""

    @property
    def step(self) -> int:
        """Optimiser steps made so far, those of earlier legs included."""
        ...

    def fit(
        self, source: Callable[[int], Batch], *, steps: int, after: Callable[[UpdateFacts], None]
    ) -> None:
        """Make the steps from `step + 1` to `steps`; goes on from the last whole checkpoint, if there is one.

        `source(step)` gives what step (from 1) learns from; it is asked once for each, on the calling
        thread, when the weights are those that the step before left. `after` hears of each step before its
        checkpoint is written: what it raises ends the training, and that step is not kept.
        """
        ...

    def write_weights(self, folder: "Path") -> None:
        """Write the weights as they are now, whole (adapters merged), as a `PolicyServer` loads them."""
        ...

    def score(self, ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """Natural log-prob of each id after the first, under the weights as they are, at temperature 1."""
        ...


@dataclass(frozen=True, slots=True)
class Rollout:
    """An ended episode, and the turns in it that the policy answered."""

    episode: Episode
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Siblings: the episodes of one task in one step, in the same world, under the same weights."""

    task: str
    rollouts: tuple[Rollout, ...]


class Collector(Protocol):
    """Runs groups of episodes in which the policy stands in for the agent's model; dreamed, or real."""

    async def collect(self, tasks: Sequence[Task], n: int, *, step: int, seed: int) -> list[Group]:
        """Run n siblings of each task; gives a group for each, in their order, siblings from 1 to n.

        Every random choice derives from (seed, step, task, sibling, turn): asked again under the same
        weights it gives the same. An episode that could not be finished is in its group, inconclusive.

        Raises:
            EndpointError: the policy's server is gone.
        """
        ...


@dataclass(frozen=True, slots=True)
class Pattern:
    """A task that others are to be made like, and what is known of it."""

    task: Task
    success: float = 0.5  # 0..1, as estimated for the policy
    failed_at: Mapping[str, int] = field(default_factory=dict)  # "missing refund_payment" -> episodes
    known: tuple[str, ...] = ()  # values that its world was seen to hold: what a task in it may speak of
    environments: tuple[
        Environment, ...
    ] = ()  # those of all given tasks, its own first: where a new one may be set


class TaskMaker(Protocol):
    """Makes tasks like a given one: by rules where a world can say what may be asked in it, or by a model."""

    how: str
    """Named in the training's records: "rules" or "model"."""

    async def like(self, pattern: Pattern, count: int, *, seed: int) -> list[Task]:
        """Give up to `count` tasks, none where it has no idea; whoever asks names and checks them.

        Raises:
            UserError: it cannot be used at all.
        """
        ...


class TransitionStore(Protocol):
    """Keeps transitions: writing twice is writing once, and what was acknowledged stays."""

    def put(self, transitions: Sequence[Transition]) -> int:
        """Store all of them in one step, durable against a killed process once this returns.

        Returns how many were new. Raises `StoreError` and stores none when one cannot be stored.
        """
        ...

    def exact(
        self, tool: str, key: str, environment: Environment, *, tenant: str = "default"
    ) -> list[Transition]:
        """Recordings of this very call (`Call.key`) in this very world, in the order recorded."""
        ...

    def scan(
        self, *, tenant: str | None = None, tool: str | None = None, environment: Environment | None = None
    ) -> Iterator[Transition]:
        """All transitions that match, in the order recorded."""
        ...

    def search(self, query: HybridQuery) -> list[Hit]:
        """The rows most like the query: best first, real rows before dreamt ones, none said twice.

        Never gives a row of `query.not_episode`, of another tenant or of the held-out split.
        """
        ...

    def evict(self, room: Room, *, now: float | None = None) -> int:
        """Let rows go until the rest fits, real ones last; gives how many left. `now`: Unix time, seconds."""
        ...

    def remove(self, ids: Sequence[str]) -> int:
        """Take rows out by their ids; gives how many of them there were."""
        ...

    def count(self) -> int:
        """How many transitions there are."""
        ...

    def close(self) -> None:
        """Release files and locks; calling it twice does no harm."""
        ...


class EnvironmentProvider(Protocol):
    """A real system that can be put into a known state, for `record` and `evaluate`.

    A class whose attribute `isolated` is True gives each episode a system of its own, so episodes may run at
    once. Else they run one at a time: `reset` of one must not pull the system away under another.
    One that has a method `configurable(environment, episode) -> Mapping` gives the graph's
    `config["configurable"]` values for an episode. It touches nothing: dreams call it too.
    """

    async def reset(self, environment: Environment, episode: str) -> None:
        """Put the system into the state of `world` for this episode alone."""
        ...

    async def close(self, episode: str) -> None:
        """Give back what `reset` took."""
        ...


def config_values(
    provider: EnvironmentProvider, environment: Environment, episode: str
) -> dict[str, JsonValue]:
    """The `config["configurable"]` values of an episode; empty where its provider defines none."""
    configurable = getattr(provider, "configurable", None)
    return {} if configurable is None else dict(configurable(environment, episode))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a checker judges: an ended episode, real or dreamed."""

    task: Task
    transitions: Sequence[Transition]
    messages: Sequence[Mapping[str, JsonValue]]
    final: JsonValue
    real: bool
    configurable: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A checker's word on an outcome."""

    verdict: Verdict
    reason: str
    reward: float | None = None


class Checker(Protocol):
    """Judges an outcome. Deterministic: equal outcomes get equal judgements.

    One that has a method `lost(outcome) -> str` is asked it of an episode that ended because the dream could
    not tell an answer: why success is out of reach whatever would have come next, or "" where it may not be.
    Where it is, the episode is a failure, else inconclusive.

    One whose attribute `pure` is True judges by the outcome alone, so it can judge an imagined environment;
    any other one is not asked there.
    """

    def __call__(self, outcome: Outcome) -> Judgement | bool | float:
        """True or False, a reward in 0..1 (success is 1.0), or a whole judgement."""
        ...


class EpisodeRunner(Protocol):
    """Runs one episode of a graph to its end; adapters implement it for a framework."""

    async def run(self, task: Task, *, repeat: int, attempt: int) -> Episode:
        """Run the episode. Its own failures become an inconclusive episode, never an exception."""
        ...


class WorkerChannel(Protocol):
    """A process elsewhere that runs episodes, and the way to it: whole frames (`rollout.worker_protocol`)."""

    name: str
    """What messages call it: "worker 2, process 4711 on this machine"."""
    pid: int
    origin: Sequence[str]
    """Lines that end an error of its opening: where it is, and what has to be there."""
    lacks: Sequence[str]
    """What a person should know that it does not find there."""

    async def send(self, frames: Sequence[bytes]) -> None:
        """Hand frames to it, in this order.

        Raises:
            WorkerLost: it is no more, or cannot be reached.
        """
        ...

    async def receive(self) -> Sequence[bytes]:
        """Wait for frames of it, one or more.

        Raises:
            WorkerLost: it is no more; says how it ended, where that is known.
        """
        ...

    async def end(self) -> None:
        """End the process, whatever it does; twice does no harm."""
        ...


class WorkerHost(Protocol):
    """Starts workers somewhere; none of them outlives whoever started it."""

    async def start(self, number: int) -> WorkerChannel:
        """Start worker `number` (from 1), also in place of one that was lost; it is not opened yet.

        Raises:
            UserError: it cannot be started; says what to do.
            WorkerLost: it ended while it began.
        """
        ...

    async def close(self) -> None:
        """End all workers and what they stood on; calling it twice does no harm."""
        ...


class RunHook:
    """Attached to a run: budget, recording, supervision and detectors are hooks. Override what is needed.

    Thread-safe: tools run in threads. What a hook raises ends the episode.
    """

    __slots__ = ()

    def forbids(self, call: Call, tool: ToolSpec) -> str:  # noqa: ARG002  for those that override it
        """Why a call must not be made, or ""; it is blocked, whatever else has ended the episode."""
        return ""

    def before_call(self, call: Call, tool: ToolSpec) -> None:
        """A call is about to be answered, by the tool or in its place.

        Raises:
            EpisodeStop: the episode ends here, and the call is not answered.
        """

    def after_call(self, entry: Transition) -> None:
        """A call was answered and is in the episode; the agent goes on after this."""

    def episode_done(self, case: "Case") -> Sequence[Finding]:  # noqa: ARG002  for those that override it
        """An episode has ended; gives what is to stand with it."""
        return ()


class EventSink(Protocol):
    """Hears what happens in a run, as it happens."""

    def emit(self, kind: str, /, **facts: JsonValue) -> None:
        """Take one event; must return quickly and never raise."""
        ...


@runtime_checkable
class Approver(Protocol):
    """A person or a rule that lets one exact real call pass."""

    async def approve(self, held: HeldCall) -> Approval | None:
        """An approval that names exactly this call; None, an error or silence is a no."""
        ...
