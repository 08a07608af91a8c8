"""What the toolkit asks of the outside; adapters answer. One contract suite per port in tests/contracts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.vocabulary import Answer, Call, Episode, Task, ToolSpec, Transition, Verdict, World


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a call stands: what an experience model may use besides the call itself."""

    world: World
    task: str
    episode: str
    history: Sequence[Transition]  # this episode's earlier calls and answers, oldest first
    after: str  # history_digest of the world-changing calls among them
    tool: ToolSpec
    seen: int = 0  # how often this very call was answered before in this very state
    tenant: str = "default"


@runtime_checkable
class ExperienceModel(Protocol):
    """Answers a tool call in place of the real tool."""

    waits: bool
    """Whether `answer` ever awaits something that is not ready. Models that only compute say False
    and are driven without an event loop, also from a tool's worker thread."""

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """Answer `call` as the tool would in this situation.

        Abstains (`Provenance.ABSTAINED`, support 0.0, `why` set) rather than raise when it cannot
        tell. Touches no real system. Equal calls in equal situations get equal answers.
        """
        ...


class TransitionStore(Protocol):
    """Keeps transitions: writing twice is writing once, and what was acknowledged stays."""

    def put(self, transitions: Sequence[Transition]) -> int:
        """Store all of them in one step, durable against a killed process once this returns.

        Returns how many were new. Raises `StoreError` and stores none when one cannot be stored.
        """
        ...

    def exact(self, tool: str, key: str, world: World, *, tenant: str = "default") -> list[Transition]:
        """Recordings of this very call (`Call.key`) in this very world, in the order recorded."""
        ...

    def scan(
        self, *, tenant: str | None = None, tool: str | None = None, world: World | None = None
    ) -> Iterator[Transition]:
        """All transitions that match, in the order recorded."""
        ...

    def count(self) -> int:
        """How many transitions there are."""
        ...

    def close(self) -> None:
        """Release files and locks; calling it twice does no harm."""
        ...


class RealWorld(Protocol):
    """A real system that can be put into a known state, for `record` and `evaluate`."""

    def configurable(self, world: World, episode: str) -> Mapping[str, JsonValue]:
        """The graph's `config["configurable"]` values for this episode. Touches nothing: dreams use it."""
        ...

    async def reset(self, world: World, episode: str) -> None:
        """Put the system into the state of `world` for this episode alone."""
        ...

    async def close(self, episode: str) -> None:
        """Give back what `reset` took."""
        ...


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
    """Judges an outcome. Deterministic: equal outcomes get equal judgements."""

    def __call__(self, outcome: Outcome) -> Judgement | bool | float:
        """True or False, a reward in 0..1 (success is 1.0), or a whole judgement."""
        ...


class EpisodeRunner(Protocol):
    """Runs one episode of a graph to its end; adapters implement it for a framework."""

    async def run(self, task: Task, *, sibling: int, attempt: int) -> Episode:
        """Run the episode. Its own failures become an undetermined episode, never an exception."""
        ...


class EventSink(Protocol):
    """Hears what happens in a run, as it happens."""

    def emit(self, kind: str, /, **facts: JsonValue) -> None:
        """Take one event; must return quickly and never raise."""
        ...


class Approver(Protocol):
    """A person or a rule that lets one exact real call pass."""

    async def approve(self, call: Call, situation: Situation) -> bool:
        """True only for exactly this call; any doubt is a no."""
        ...
