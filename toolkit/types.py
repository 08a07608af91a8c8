"""The words of the kit: task, world, call, answer, transition, episode, verdict.

Frozen records, JSON inside (`plain.JsonValue`), no behaviour beyond their own identity. `as_record`
and `from_record` pairs live with the file formats that need them (replay, rollout).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from dreamgym_kit.canonical import content_id, digest
from dreamgym_kit.codec import ALWAYS, IF_SET, NEVER, FilledText, Number, Position, Share, on_disk
from dreamgym_kit.errors import ExitCode
from dreamgym_kit.serialization import JsonValue

SCHEMA_VERSION = 1


class Effect(StrEnum):
    """What a tool does to its world, from harmless to irreversible."""

    PURE = "pure"  # computes from its arguments alone
    CONTROL = "control"  # the framework's own: hand-off, todo list, think
    READ = "read"  # looks, and changes nothing
    WRITE = "write"  # changes the world, can be undone
    DESTRUCTIVE = "destructive"  # cannot be undone: mail, payment, delete

    def __init__(self, value: str) -> None:
        self.runs_in_dream = value in ("pure", "control")  # only these two ever run for real while dreaming
        self.changes_environment = value in ("write", "destructive")  # later answers may differ


class Source(StrEnum):
    """Where an answer came from."""

    REAL = "real"  # the real tool ran
    RECORDED = "recorded"  # this call, in this state
    DERIVED = "derived"  # from state and rules
    ANALOGOUS = "analogous"  # the same call in other environments
    MODEL = "model"  # a model decided, and code checked it against what is known
    IMAGINED = "imagined"  # a model invented it: consistent, and evidence of nothing
    SCRIPTED = "scripted"  # the test or the caller gave it
    FAULT = "fault"  # a planned failure
    UNANSWERED = "unanswered"  # no source was sure enough

    @property
    def on_disk(self) -> str:
        """The spelling in recordings, journals and digests, which hash it; `Source` reads both."""
        return _SOURCES_ON_DISK.get(self, self.value)

    @classmethod
    def _missing_(cls, value: object) -> "Source | None":
        return next((source for source, spelled in _SOURCES_ON_DISK.items() if spelled == value), None)


_SOURCES_ON_DISK = {Source.DERIVED: "composed", Source.MODEL: "reasoned", Source.UNANSWERED: "abstained"}


class Verdict(StrEnum):
    """The outcome of an episode, and of a run."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"  # cannot be judged: a call was unanswered, or a limit was reached
    ERROR = "error"  # the set-up or the kit failed; the agent was not at fault, and nothing was measured

    @property
    def conclusive(self) -> bool:
        """Whether the agent was judged: passed or failed."""
        return self in (Verdict.PASSED, Verdict.FAILED)

    @property
    def on_disk(self) -> str:
        """The spelling in recordings, journals and digests, which hash it; `Verdict` reads both."""
        return _VERDICTS_ON_DISK.get(self, self.value)

    @property
    def exit_code(self) -> int:
        """Of a command whose run has this verdict, and executed no real call."""
        return ExitCode[self.name]

    @classmethod
    def _missing_(cls, value: object) -> "Verdict | None":
        return next((verdict for verdict, spelled in _VERDICTS_ON_DISK.items() if spelled == value), None)


_VERDICTS_ON_DISK = {
    Verdict.PASSED: "success",
    Verdict.FAILED: "failure",
    Verdict.INCONCLUSIVE: "undetermined",
}
REACHED = "reached "  # before a host, in the counts of an episode that reached it


class Split(StrEnum):
    """Which side of the train/test line a task or transition is on."""

    TRAIN = "train"
    HELD_OUT = "held_out"  # measures the dream, and never answers in it


@dataclass(frozen=True, slots=True)
class Environment:
    """The system that tools act on, and the state that it starts from."""

    name: str = field(default="default", metadata=ALWAYS)  # which system
    variant: int = field(default=0, metadata=on_disk("seed"))  # which starting state of it

    def __str__(self) -> str:
        return f"{self.name}:{self.variant}"


class ArgumentReader(StrEnum):
    """What tells a call's effect from an argument (see `argument_effects`)."""

    SQL = "sql"
    HTTP = "http"  # a method
    SHELL = "shell"  # a command line


EffectWhen = Mapping[str, ArgumentReader | Mapping[str, Effect]]
"""By argument: the reader of it, or the effect that each value of it has."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the gate and the dream know it."""

    name: str
    effect: Effect
    description: str = ""
    args_schema: Mapping[str, JsonValue] = field(default_factory=dict)
    source: str = "guessed"  # who said the effect: declared, decorator, framework, mcp, guessed
    reason: str = ""  # why it was guessed so, for the person who corrects it
    kind: str = "tool"  # tool, function or node
    answer_schema: Mapping[str, JsonValue] = field(default_factory=dict)  # of its answers; {}: not declared
    answer_form: str = "value"  # what that is a schema of (see `dream.answer_schema`)
    effect_when: EffectWhen = field(default_factory=dict)  # what a call does, where its arguments decide
    view: tuple[str, ...] = ()  # parts of its answers that the agent sees (see `settings.views`); (): all


@dataclass(frozen=True, slots=True)
class Task:
    """What the agent is asked to do, in which world, and who judges it."""

    id: FilledText
    input: Mapping[str, JsonValue]  # graph state; {"messages": [...]} for chat agents
    environment: Environment = field(default=Environment(), metadata=on_disk("world"))
    checker: FilledText | None = None  # "module:function", or a name from settings
    expect: Mapping[str, JsonValue] = field(default_factory=dict)
    replies: tuple[JsonValue, ...] = ()  # answers to the graph's interrupts, in order
    split: Split = Split.TRAIN
    meta: Mapping[str, JsonValue] = field(default_factory=dict)
    context: Mapping[str, JsonValue] = field(
        default_factory=dict, metadata=IF_SET
    )  # the graph's, at run time


@dataclass(frozen=True, slots=True)
class Reply:
    """What a tool asked a person while it ran (`interrupt()`), and the person's reply."""

    asked: JsonValue
    reply: JsonValue


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of the agent, before anyone has answered it."""

    tool: str
    args: Mapping[str, JsonValue]
    call_id: str | None = None  # the framework's; random with most models, so never part of a key
    node: str | None = None  # the graph node that ran it
    replies: tuple[Reply, ...] = field(default=(), metadata=IF_SET)  # of people whom the tool asked, in order
    _key: str | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        """Digest of tool, arguments and replies: the same call has the same key in any episode.

        What the tool asked is left out: only the replies decide what the tool does.
        """
        if self._key is None:  # asked for by ledger, memo and experience, several times a call
            key = _call_key(self.tool, self.args)
            if self.replies:
                key = digest([key, [reply.reply for reply in self.replies]])
            object.__setattr__(self, "_key", key)
        return str(self._key)


def _call_key(tool: str, args: Mapping[str, JsonValue]) -> str:
    """Siblings make the same calls again and again: keys of small ones are remembered, types and all."""
    given: list[tuple[str, type, JsonValue]] = []
    for name, value in args.items():
        kind = type(value)
        if kind not in _SMALL or (kind is str and len(value) > _SHORT):
            return digest([tool, dict(args)])
        given.append((name, kind, value))
    return _small_call_key(tool, tuple(given))


@lru_cache(maxsize=4096)
def _small_call_key(tool: str, given: tuple[tuple[str, type, JsonValue], ...]) -> str:
    return digest([tool, {name: value for name, _, value in given}])


_SMALL = frozenset({str, int, bool, type(None)})
_SHORT = 200  # characters


@dataclass(frozen=True, slots=True)
class Nearest:
    """The recording that an unanswered call came nearest to."""

    episode: str
    step: Position  # of the recorded call in it
    call: Call
    content: JsonValue = None  # what it was answered
    error: str | None = None
    differs: tuple[str, ...] = ()  # arguments
    elsewhere: bool = False  # it was made after other writes
    writes: tuple[Call, ...] = ()  # where it was: the last of them
    ignore: tuple[str, ...] = ()  # with these in `[match]` it would answer; empty where they may matter


@dataclass(frozen=True, slots=True)
class Answer:
    """What the agent gets back for a call."""

    content: JsonValue = None  # text, content blocks, or any JSON value: what the tool returned
    source: Source = field(default=Source.REAL, metadata=ALWAYS | on_disk("provenance"))
    # 0..1: calibrated probability that the real tool answers the same; 1.0: it ran, or this call was recorded
    confidence: Share = field(default=1.0, metadata=on_disk("support"))
    artifact: JsonValue = None
    error: str | None = None  # the message, when the tool failed
    error_type: str | None = None  # class name of the failure, "ToolException" if in doubt
    update: Mapping[str, JsonValue] | None = None  # a state update (LangGraph Command), encoded
    cites: tuple[str, ...] = ()  # ids of the transitions it rests on
    why: str = ""  # for abstentions and refusals: a plain sentence
    nearest: Nearest | None = field(default=None, metadata=IF_SET)  # of an abstention
    changes: tuple[Mapping[str, JsonValue], ...] = field(default=(), metadata=IF_SET)  # by a reasoned write
    asks: tuple[JsonValue, ...] = field(default=(), metadata=NEVER)  # the question that a tool asks a person
    replies: tuple[Reply, ...] = field(default=(), metadata=NEVER)  # to it; kept with the call
    final: bool = field(default=False, metadata=NEVER)  # an abstention after which no other source is asked

    @property
    def unanswered(self) -> bool:
        """Whether no source was sure enough of what the tool would answer."""
        return self.source is Source.UNANSWERED

    @property
    def timed_out(self) -> bool:
        """Whether the error leaves open what happened: a write may have taken effect."""
        text = "" if self.error is None else f"{self.error_type} {self.error}".lower()
        return any(mark in text for mark in ("timeout", "time-out", "timed out", "no answer", "504"))


@dataclass(frozen=True, slots=True)
class Transition:
    """A call, its answer and where both stood: what is stored, retrieved and learned from.

    `after` is the digest of the world-changing calls before it in its episode (see
    `history_digest`): with the world and its seed it names the state that the call met.
    """

    call: Call
    answer: Answer
    effect: Effect
    episode: str
    step: Position  # among the episode's calls
    environment: Environment = field(default=Environment(), metadata=on_disk("world"))
    task: str = ""
    after: str = ""
    tenant: str = "default"
    split: Split = Split.TRAIN
    elapsed_s: float = 0.0
    recorded_at: float = 0.0  # Unix time, seconds
    within: int = field(default=0, metadata=IF_SET)  # step of the call whose body made it; 0: the agent did
    schema: int = SCHEMA_VERSION
    _id: str | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def id(self) -> str:
        """Content-addressed (uuid5): everything but clock times and the framework's call id."""
        if self._id is None:  # a recording is cited each time that it answers
            object.__setattr__(self, "_id", self._content_id())
        return str(self._id)

    def _content_id(self) -> str:
        answer = self.answer
        return content_id(
            [
                self.tenant,
                self.split,
                self.environment.name,
                self.environment.variant,
                self.task,
                self.episode,
                self.step,
                self.after,
                self.effect,
                [self.call.tool, dict(self.call.args), self.call.node, *self._replies()],
                [answer.content, answer.artifact, answer.error, answer.error_type],
                [dict(answer.update) if answer.update is not None else None, answer.source.on_disk],
                self.schema,
                *([self.within] if self.within else []),
            ]
        )

    @property
    def writes(self) -> bool:
        """Whether later calls of its episode meet another state; a call within another is part of that."""
        return self.effect.changes_environment and not self.within

    def _replies(self) -> list[JsonValue]:
        """Nothing for a call without replies, so that ids from before there were any still hold."""
        return [[[reply.asked, reply.reply] for reply in self.call.replies]] if self.call.replies else []


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A real call that waits for a yes. Secrets in its arguments are masked; nothing else is left out."""

    digest: str  # of the tool, its arguments, the session and a number drawn for this very call
    call: Call
    effect: Effect
    episode: str
    task: str
    environment: Environment = field(metadata=on_disk("world"))
    expected: Answer  # what the dream would answer; abstained where it cannot tell
    doubts: tuple[str, ...] = ()  # what speaks against it, in sentences


@dataclass(frozen=True, slots=True)
class Approval:
    """A yes to one held call, once."""

    digest: str  # of the call that was shown; any other call is not meant
    by: str  # who said so, for the audit log


def history_digest(writes: Sequence[str]) -> str:
    """Name the sequence of world-changing calls (each by its `Call.key`) so far; "" when there were none."""
    return digest(list(writes)) if writes else ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a person should look at first, with its evidence."""

    kind: str  # short name, "repeated_write"
    text: str  # a plain sentence
    steps: tuple[int, ...] = ()  # 1-based steps of the episode
    severity: str = "warning"  # "warning" or "critical"


@dataclass(frozen=True, slots=True)
class UserTurn:
    """What somebody said in place of a user: the answer to an interrupt, or to a question of the agent."""

    kind: str  # "interrupt", or "reply": the message at place `said`
    by: str  # "task" (its replies), "script", "persona"; "nobody" where an interrupt found no answer
    said: int  # messages before it
    after: int  # calls before it
    asked: JsonValue = None  # what the interrupt asked
    answer: JsonValue = None  # what it was told


@dataclass(frozen=True, slots=True)
class Spend:
    """What one part of the dream was told by chat models, and what that cost."""

    calls: int = 0  # answers; those of an equal call that were told again cost nothing
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # of the prompt, read from the server's cache
    cost_usd: float = 0.0
    cache_told: int = 0  # answers whose server said what came from its cache

    @property
    def tokens(self) -> int:
        """Read and written."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def cached_share(self) -> float | None:
        """Of the prompts' tokens, how many came from the cache (0..1); None where no server said so.

        Some servers say it only of prompts that had any, so that all prompts count as soon as one said it.
        """
        return self.cached_tokens / self.prompt_tokens if self.cache_told and self.prompt_tokens else None

    def __add__(self, other: "Spend") -> "Spend":
        return Spend(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cost_usd + other.cost_usd,
            self.cache_told + other.cache_told,
        )

    def __sub__(self, earlier: "Spend") -> "Spend":
        """What came since."""
        return Spend(
            self.calls - earlier.calls,
            self.prompt_tokens - earlier.prompt_tokens,
            self.completion_tokens - earlier.completion_tokens,
            self.cached_tokens - earlier.cached_tokens,
            max(0.0, self.cost_usd - earlier.cost_usd),
            self.cache_told - earlier.cache_told,
        )


@dataclass(frozen=True, slots=True)
class Executed:
    """A real call that ran where none may run: it happened, and nobody can refuse it any more."""

    tool: str
    args: Mapping[str, JsonValue] = field(default_factory=dict)  # without secrets
    how: str = ""  # a plain sentence: how it was noticed

    def __str__(self) -> str:
        return call_text(self.tool, self.args)


MAX_SHOWN = 300  # characters of one value in a sentence; records keep all of it


def call_text(tool: str, args: Mapping[str, JsonValue], *, most: int = MAX_SHOWN, how: str = "") -> str:
    """Format a call as `tool(name='value')`, with values as `value_text` gives them."""
    arguments = (f"{name}={value_text(value, most=most, how=how)}" for name, value in args.items())
    return f"{tool}({', '.join(arguments)})"


def value_text(value: JsonValue, *, most: int = MAX_SHOWN, how: str = "") -> str:
    """A value as Python writes it, in ASCII; one that is longer than `most` is cut as by `cut_end`."""
    return cut_end(ascii(value), most, how)


def cut_end(text: str, most: int, how: str = "") -> str:
    """At most so many characters, how many more there are, and `how` they are shown."""
    return text if len(text) <= most else f"{text[:most]}... (+{len(text) - most} chars{how})"


def error_text(error: BaseException) -> str:
    """What an exception says, on one line, cut as by `cut_end`; empty where its own `__str__` fails."""
    try:
        return cut_end(" ".join(str(error).splitlines()).strip(), MAX_SHOWN)
    except Exception:  # noqa: BLE001  a foreign class may raise anything
        return ""


def error_line(error: BaseException) -> str:
    """An exception's kind, and what it says: "KeyError: 'o1'"."""
    text = error_text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def format_executed(calls: Sequence[Executed]) -> str:
    """Real calls that ran, in words: "1 real call executed: refund(order='o1')"."""
    count = len(calls)
    return f"{count} real call{'s'[: count != 1]} executed: {', '.join(map(str, calls))}"


class Blame(StrEnum):
    """Whose doing it is that an episode did not pass."""

    AGENT = "agent"  # what it did, or its own code's exception
    SETUP = "set-up"  # tasks, recordings, settings, environment, model's endpoint
    KIT = "kit"  # dreamgym-kit: please report it

    @classmethod
    def usual(cls, verdict: Verdict) -> "Blame":
        """Of most episodes with this verdict."""
        return cls.AGENT if verdict is Verdict.FAILED else cls.SETUP


KIT_FAILED = "dreamgym-kit failed, please report it"
TIME_IS_UP = "the episode's time limit"
_OF_SETUP = frozenset({"abstained", "interrupted", "violation", "budget", "refused"})


@dataclass(frozen=True, slots=True)
class Episode:
    """One run of the graph on one task: everything that a report or a learner needs later."""

    id: str  # "<task>.<repeat>"
    task: str
    repeat: int = field(metadata=on_disk("sibling"))  # which one of its task, from 1
    environment: Environment = field(metadata=on_disk("world"))
    verdict: Verdict
    reason: str  # a plain sentence: why this verdict
    transitions: tuple[Transition, ...] = ()
    messages: tuple[Mapping[str, JsonValue], ...] = ()  # transcript: role, content, tool_calls
    reward: Number | None = None  # 0..1; None where nothing was judged
    stop: str = "finished"  # interrupted, abstained, executed, violation, limit, budget, refused, error, ...
    violations: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    model_calls: int = 0  # of the agent
    tokens: int = 0  # of the agent
    cost_usd: float = 0.0  # of the agent and of the dream together
    attempt: int = 1
    started_at: float = 0.0
    elapsed_s: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)  # bad_arguments, unknown_tool, ...
    final: JsonValue = None  # the graph's last state without its messages
    dream_spend: Mapping[str, Spend] = field(default_factory=dict)  # by part: experience, judge, user
    user_turns: tuple[UserTurn, ...] = ()  # in order; none in runs of versions that did not keep them
    executed: tuple[Executed, ...] = ()  # real calls that ran; `violations` are those that were refused
    traceback: tuple[str, ...] = ()  # of an exception that ended it: the agent's own lines, outermost first
    would: Verdict | None = field(default=None, metadata=IF_SET)  # had its imagined answers counted

    @property
    def rests_on_imagined(self) -> bool:
        """Whether its verdict counts and rests on imagined answers."""
        imagined = any(step.answer.source is Source.IMAGINED for step in self.transitions)
        return imagined and self.verdict.conclusive

    @property
    def blame(self) -> Blame | None:
        """Whose doing it is that it did not pass, by how it ended; None where it passed.

        A real call that ran in a dream is the kit's: it should have stopped it. One that was blocked is the
        set-up's, which did not name it. A limit of steps is reached by an agent, one of time by its set-up.
        What was done wrong before the dream could not go on is the agent's.
        """
        if self.verdict is Verdict.PASSED:
            return None
        if self.executed or self.stop == "executed" or (self.stop == "error" and KIT_FAILED in self.reason):
            return Blame.KIT
        if self.stop == "limit":
            return Blame.SETUP if TIME_IS_UP in self.reason else Blame.AGENT
        lost = self.verdict is Verdict.FAILED and self.stop == "abstained"
        if self.stop in _OF_SETUP and not lost:
            return Blame.SETUP
        return Blame.usual(self.verdict)

    @property
    def digest(self) -> str:
        """Equal for equal behaviour: leaves out times, costs, attempts and random call ids."""
        turns = [[turn.kind, turn.by, turn.asked, turn.answer] for turn in self.user_turns]
        return digest(
            [
                *([turns] if turns else []),
                *(
                    [[[call.tool, dict(call.args), call.how] for call in self.executed]]
                    if self.executed
                    else []
                ),
                [self.id, self.task, self.environment.name, self.environment.variant],
                [self.verdict.on_disk, self.reason, self.reward, self.stop, list(self.violations)],
                [
                    [
                        step.call.tool,
                        dict(step.call.args),
                        step.answer.content,
                        step.answer.error,
                        step.answer.source.on_disk,
                    ]
                    for step in self.transitions
                ],
                [without_ids(message) for message in self.messages],
                [[finding.kind, finding.text, list(finding.steps)] for finding in self.findings],
            ]
        )


def without_ids(message: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a message's record without the ids that a model or the framework draws."""
    fields = {key: value for key, value in message.items() if key not in ("id", "tool_call_id")}
    calls = message.get("tool_calls")
    if isinstance(calls, (list, tuple)) and calls and all(isinstance(call, Mapping) for call in calls):
        fields["tool_calls"] = [{"name": call.get("name"), "args": call.get("args")} for call in calls]
    return fields
