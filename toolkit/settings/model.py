"""What `dreamgym.toml` can say, as frozen records; every default is here and nowhere else.

Decides the words and defaults. Reading, checking and environment variables are in `load`, writing is
in `render`. There is no key that turns the guard off.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from dreamgym_kit.settings.tool_models import ToolModelSettings
from dreamgym_kit.vocabulary import Effect

SETTINGS_FILE = "dreamgym.toml"


@dataclass(frozen=True, slots=True)
class SimulateSettings:
    """How a dry run is done."""

    n: int = 1  # episodes per task: one group
    concurrency: int = 8  # episodes at once
    seed: int = 0  # same seed, same run
    abstain: str = "stop"  # what happens when the dream cannot tell: "stop" the episode, or a tool "error"
    without: tuple[str, ...] = ()  # parts of the dream that are left out, to see what they are worth
    threshold: float = 0.5  # support below which the dream cannot tell; 0 answers all, above 1 only repeats


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Where episodes run: in the process that keeps the run, or in workers of their own."""

    name: str = "local"  # "local": workers are processes of this machine; "ray": actors of a Ray cluster
    workers: int = 0  # processes that run episodes; 0: the one that keeps the run
    address: str | None = None  # ray: of a running cluster, "host:6379"; None: one is started here

    @property
    def elsewhere(self) -> int:
        """Workers that there are to be; Ray always has some: as many as processors here where nobody said."""
        return self.workers or ((os.cpu_count() or 1) if self.name == "ray" else 0)


@dataclass(frozen=True, slots=True)
class Limits:
    """Where one episode ends at the latest."""

    steps: int = 50  # tool calls
    seconds: float = 300.0  # wall time
    recursion: int = 100  # LangGraph's own recursion_limit


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """Hard limits of a whole run; None is no limit."""

    calls: int | None = None  # tool calls over all episodes
    usd: float | None = None  # model spend, at the prices of `ModelSettings` and `EndpointSettings`


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """What the second wall lets through besides what the kit itself needs."""

    allow_hosts: tuple[str, ...] = ()  # "host" or "host:port"
    allow_paths: tuple[str, ...] = ()  # files or folders that may be written
    allow_commands: tuple[str, ...] = ()  # programs that may be started


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """What a person said about a tool."""

    effect: Effect  # what the tool does to the world
    guessed: bool = False  # `init` wrote the effect, and nobody has confirmed it yet
    model: ToolModelSettings | None = None  # what it answers and changes, see the page on the dream


@dataclass(frozen=True, slots=True)
class FunctionSettings:
    """A plain function that the gate has to hold though it is no tool."""

    effect: Effect  # what the function does to the world
    name: str | None = None  # how it is called in reports; the function's own name when None


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """A graph node that acts on the world by itself."""

    effect: Effect  # what the node does to the world


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What the agent's chat model costs, for the spend budget and the report."""

    usd_per_million_input: float = 0.0  # price of a million tokens read
    usd_per_million_output: float = 0.0  # price of a million tokens written


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Where the dream's own model answers: a server, or a model directory in this process."""

    urls: tuple[str, ...] = ()  # "https://host/v1"; several are replicas of one model
    model: str | None = None  # as the server names it; without `urls`, a model directory
    gate: str | None = None  # what the model has passed, by `experience eval`; a directory's own lies in it
    key_env: str | None = None  # the environment variable that holds the key; never the key itself
    key_file: str | None = None  # or the file that holds it, alone
    temperature: float = 0.0  # sent with every request, as is top_p
    top_p: float = 1.0  # share of the likeliest tokens that are drawn from
    max_output: int = 1024  # tokens of one answer ("..._tokens" would read as a secret)
    timeout_s: float = 60.0  # seconds that one request may take, whatever it does in that time
    attempts: int = 3  # requests for one answer at most
    calibrate: int = 32  # held-out recorded calls asked before a run; 0: its confidence is not tried
    judge: bool = True  # also judges episodes, beside the checker
    usd_per_million_input: float = 0.0  # price of a million tokens read
    usd_per_million_output: float = 0.0  # price of a million tokens written


@dataclass(frozen=True, slots=True)
class LearnedSettings:
    """A model that learned to decide what becomes of a call; asked where recordings and rules do not tell."""

    model: str | None = None  # its directory: words, weights, and what its word is worth
    urls: tuple[str, ...] = ()  # "https://host/v1" of a vLLM server of it; empty: it runs in this process
    served: str | None = None  # as the server names it; None: like the directory
    key_env: str | None = None  # the environment variable that holds the server's key; never the key itself
    key_file: str | None = None  # or the file that holds it, alone
    plain: str | None = None  # a directory: the same taught without reasons, for `without`


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """How the buffer is searched, and how much it may hold; what has no room leaves, dreamt rows first."""

    embedder: str | None = None  # "hashed", an endpoint's URL, a model's folder; None: hashed where that fits
    embedder_model: str | None = None  # as the endpoint names it
    embedder_dimension: int | None = None  # numbers in one of the endpoint's vectors
    embedder_key_env: str | None = None  # the environment variable that holds the endpoint's key
    embedder_key_file: str | None = None  # or the file that holds it, alone
    weaviate_key_env: str | None = None  # the one that holds the key of a buffer on Weaviate
    weaviate_key_file: str | None = None  # or the file that holds it, alone
    rows: int | None = None  # of any kind
    dreamt_share: float = 0.5  # 0..1 of all rows: answers that no real tool gave
    dreamt_days: float | None = None  # how long such answers stay


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """How the tools of one pattern break in a dream; `dream.faults` says what the kinds are."""

    rate: float = 0.0  # share of the calls, 0..1
    kinds: tuple[str, ...] = ("error",)  # one is drawn for each fault
    wait_s: float = 1.0  # seconds that a slow answer takes, and that a rate limit tells the agent to wait
    outage_calls: int = 3  # calls in a row that an outage lasts


@dataclass(frozen=True, slots=True)
class FindingsSettings:
    """What is looked for in every episode, besides the built-in findings."""

    detectors: tuple[str, ...] = ()  # functions of one's own, "my_agent.checks:big_refund"
    off: tuple[str, ...] = ()  # detectors that are left out, by name
    approval: tuple[str, ...] = ()  # tools that need a person's yes before they are called, as patterns


@dataclass(frozen=True, slots=True)
class GateSettings:
    """When a run passes; None and empty ask for nothing. That nothing real runs is always asked for."""

    min_pass_rate: float | None = 1.0  # mean over tasks of the passed share of conclusive episodes, 0..1
    min_pass_rate_low: float | None = None  # lower bound of that share's 95 % interval, 0..1
    max_inconclusive: float | None = 0.1  # share of all episodes, 0..1
    max_errors: float = 0.0  # episodes; below 1: a share of all episodes
    max_contradictions: int | None = None  # answers that contradict the ledger, and judges that disagree
    forbid: tuple[str, ...] = ()  # tools that must not be called, as patterns
    max_calls_per_tool: Mapping[str, int] = field(default_factory=dict)  # in one episode, by tool pattern
    fail_on: tuple[str, ...] = ()  # kinds of findings that must not be, as patterns; or "critical"
    max_usd: float | None = None  # model spend of the run
    max_seconds: float | None = None  # wall time of the run


NO_GATE = GateSettings(min_pass_rate=None, max_inconclusive=None)
"""Of a run that judges no agent: it records, or trains. Its errors are errors all the same."""


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How the policy learns. The dream's reward guides it and is never its result: held-out tasks are."""

    tasks: int = 16  # drawn for each step
    n: int = 8  # episodes of each of them: one group
    steps: int = 30  # optimiser steps
    seed: int = 0  # same seed, same run
    lr: float = 2e-4  # learning rate; 1e-6 to 5e-5 for large models
    warmup: int = 5  # steps over which it rises
    algorithm: str = "grpo"  # "grpo", "ppo", "dpo" or "sft"; see the page on training
    loss: str = "dapo"  # how the tokens' losses are put together, as TRL names it
    beta: float = 0.0  # weight of the KL term that holds the policy near its start
    clip: float = 0.2  # how far a token's probability may move in one update, as a ratio
    grad_clip: float = 1.0  # most norm of a gradient
    faults: float | None = None  # share of calls that fail where it learns, 0..1; None: as [faults] has it
    value_lr: float = 2e-3  # ppo: learning rate of the value head, where `lr` is that of the policy
    value_weight: float = 0.1  # ppo: of the value head's loss beside the policy's
    gae: float = 1.0  # ppo: lambda of the advantages, 0..1; below 1 values stand in for later rewards
    dpo_beta: float = 0.1  # dpo: how dearly the policy pays for leaving its start
    dpo_pairs: int = 4  # dpo: most pairs of siblings that one group gives
    lora: int | None = None  # rank of the adapter that is trained; None: all weights are
    staleness: int = 0  # updates that the weights of a rollout may lie behind; 1: rollouts overlap updates
    pieces: int = 4  # that a step's batch is computed in; more take less memory
    save_every: int = 1  # steps between checkpoints
    keep: int = 2  # checkpoints that stay
    eval_every: int = 10  # steps between evaluations on held-out tasks; 0: only at the start and the end
    eval_n: int = 4  # episodes a task in an evaluation
    eval_tasks: str | None = None  # a file of its own for them; None: the tasks whose split is held_out
    eval_real: bool = False  # evaluates on the real tools; false: in the dream
    report_to: tuple[str, ...] = ()  # loggers that TRL knows: "tensorboard", "wandb", ...


@dataclass(frozen=True, slots=True)
class CurriculumSettings:
    """Which tasks a training spends its episodes on; without it they go in turn."""

    use: bool = False  # false: no task twice in an epoch, whatever came of it
    half_life: float = 20.0  # steps after which what was seen of a task counts half
    explore: float = 0.25  # weight of not knowing, beside that of hard but solvable
    focus: float = 3.0  # power of a task's score that its chance of being drawn follows
    turns: float = 0.25  # 0..1 of each draw for tasks not met for longest, whatever their score
    mastered: float = 0.95  # estimated success above which a task rests, 0..1
    hopeless: float = 0.9  # how likely it has to be that nobody can do a task before it rests, 0..1
    doubtful: float = 0.1  # how likely that may be of a task whose group is learned from, 0..1
    judge_error: float = 0.05  # 0..1 of a model's verdicts that are wrong; a checker's word is taken as it is
    clusters: str | None = None  # the field of `meta` that says which tasks are alike; None: their words do
    maker: str | None = None  # "module:function" that makes tasks like a given one, by rules
    vary: bool = False  # the endpoint's model makes variations of tasks
    checker: str | None = None  # who judges any task of these worlds, a model's variations too
    judges: tuple[str, ...] = ()  # else two or more that have to agree: "endpoint", checkers
    synthetic: float = 0.3  # 0..1: most of a draw that are made tasks
    every: int = 5  # steps between makings
    seeds: int = 4  # tasks that are varied at each
    candidates: int = 4  # variations of each that one is chosen from


@dataclass(frozen=True, slots=True)
class AlarmSettings:
    """When a training stops at its last good checkpoint; that numbers are finite is always asked for."""

    logprobs: float = 1e-3  # most nats between sampled and recomputed log-probs; 0.2 for 16-bit servers
    stale_weights: float = 1e-4  # most nats between server and trainer after a sync; 0.2 for 16-bit servers
    kl: float = 0.1  # most nats a token that one update may move the policy
    entropy_low: float = 0.1  # least entropy, as a multiple of the first steps'
    entropy_high: float = 10.0  # most entropy, as a multiple of the first steps'
    dead_draws: int = 3  # draws of tasks in a row in which no group has any spread
    judges_disagree: float = 0.3  # most episodes on which checker and judging model differ, 0..1
    reward_gap: float = 0.15  # most that the judging model's success may rise above the checker's, 0..1


@dataclass(frozen=True, slots=True)
class S2rSettings:
    """How a policy goes on from the dream to the real tools, and what no call may pass."""

    stage: str = "shadow"  # "shadow": writes are dreamed; "staged": each waits for a yes; "live"
    calls: int | None = None  # most real calls in all; nothing begins without it
    most: Mapping[str, int] = field(default_factory=dict)  # most real calls, by tool pattern
    per_second: float = 5.0  # real calls, all tools together; 0: no limit
    rates: Mapping[str, float] = field(default_factory=dict)  # real calls a second, by tool pattern
    approver: str | None = None  # "module:function" that is asked about held calls; None: the terminal
    approval_s: float = 120.0  # seconds that there are for a yes
    unheld: tuple[str, ...] = ()  # destructive tools that `live` runs without a yes, by their exact names
    success_low: float = 0.5  # gate: least lower bound of the dream success' 95 % interval, 0..1
    coverage: float = 0.9  # gate: least share of the dream's calls that it could answer, 0..1
    gate_n: int = 4  # gate: episodes of each held-out task in the dream
    canaries: int = 8  # gate: tasks tried in shadow on the real tools before anything else; 0: none
    canary_low: float = 0.5  # gate: least share of these that come to a verdict, 0..1


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """The policy: a model of one's own that answers in place of the agent's chat models, to be trained."""

    model: str | None = None  # a model directory; or, where `urls` are given, as the server names it
    urls: tuple[str, ...] = ()  # "https://host/v1" of vLLM servers; empty: the directory, in this process
    replicas: tuple[str, ...] = ()  # the servers' own addresses, where `urls` is a router: weights go there
    weights: str | None = None  # with `urls`: the directory that the servers serve; `train` begins with it
    key_env: str | None = None  # the environment variable that holds the server's key; never the key itself
    key_file: str | None = None  # or the file that holds it, alone
    only_nodes: tuple[str, ...] = ()  # nodes whose models it answers for, as patterns; empty: all of them
    temperature: float = 1.0  # of its sampling, whatever the agent's own models were set to
    max_output: int = 512  # tokens of one answer
    grammar: bool = True  # holds answers to schemas and forced tools; nothing is learned from such answers


ALGORITHMS = ("grpo", "ppo", "dpo", "sft")
DREAM_PARTS = ("history", "state", "retrieval", "reasoning")  # `dream.without` says what each is
FAULT_KINDS = (
    *("error", "timeout", "timeout_applied", "rate_limit"),
    *("slow", "malformed", "stale_read", "outage"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. Equal when they say the same, wherever they were read from."""

    graph: str | None = None  # "module:attr", "file.py:attr", "langgraph.json" or "langgraph.json:name"
    tasks: str | None = None  # the file with the tasks, one JSON object a line
    buffer: str = "dreamgym.db"  # the file with the recordings, or the address of a server; see `places`
    runs: str = "runs"  # the folder that gets a directory for each run
    tenant: str = "default"  # whose recordings; those of others are never used
    structured_outputs: tuple[str, ...] = ()  # bound names that are answer schemas, not tools
    leave_out: tuple[str, ...] = ()  # tools that the model's provider runs, which dreams do without
    simulate: SimulateSettings = SimulateSettings()
    engine: EngineSettings = EngineSettings()
    limits: Limits = Limits()
    budget: BudgetSettings = BudgetSettings()
    guard: GuardSettings = GuardSettings()
    model: ModelSettings = ModelSettings()
    learned: LearnedSettings = LearnedSettings()
    endpoint: EndpointSettings = EndpointSettings()
    findings: FindingsSettings = FindingsSettings()
    gate: GateSettings = GateSettings()
    replay: ReplaySettings = ReplaySettings()
    train: TrainSettings = TrainSettings()
    curriculum: CurriculumSettings = CurriculumSettings()
    alarms: AlarmSettings = AlarmSettings()
    s2r: S2rSettings = S2rSettings()
    policy: PolicySettings = PolicySettings()
    tools: Mapping[str, ToolSettings] = field(default_factory=dict)  # by the tool's name
    functions: Mapping[str, FunctionSettings] = field(default_factory=dict)  # by "pkg.mod:function"
    nodes: Mapping[str, NodeSettings] = field(default_factory=dict)  # by the node's name
    checkers: Mapping[str, str] = field(default_factory=dict)  # name = "module:function"
    worlds: Mapping[str, str] = field(default_factory=dict)  # [worlds.NAME] with ref = "module:Class"
    faults: Mapping[str, FaultSettings] = field(default_factory=dict)  # by tool pattern, "refund_*"
    path: Path | None = field(default=None, compare=False)  # the file, absolute; None without one
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def folder(self) -> Path:
        """What relative paths in the settings start from: the file's folder, else the current one."""
        return self.path.parent if self.path is not None else Path.cwd()

    def resolve(self, path: str) -> Path:
        """Make a path of the settings absolute."""
        return self.folder / path

    def where(self, *key: str) -> str:
        """Name the place of a key for a message: "dreamgym.toml:14"; the nearest known line of it."""
        if self.path is None:
            return "settings"
        for length in range(len(key), 0, -1):
            line = self.lines.get(key[:length])
            if line is not None:
                return f"{self.path.name}:{line}"
        return self.path.name

    def with_overrides(self, overrides: Mapping[str, Any]) -> "Settings":
        """Lay values over these settings: {"graph": ..., "simulate.n": 4}. None leaves a key as it is.

        Raises:
            KeyError: no such key; overrides come from our own code, which must know.
        """
        changed = self
        for dotted, value in overrides.items():
            if value is not None:
                changed = _set(changed, dotted.split("."), value)
        return changed


def _set(record: Any, parts: list[str], value: Any) -> Any:
    name, *rest = parts
    if name not in {known.name for known in fields(record)}:
        raise KeyError(name)
    return replace(record, **{name: _set(getattr(record, name), rest, value) if rest else value})
