"""What `dreamgym.toml` can say, as frozen records: each key is declared here, and nowhere else.

A declaration holds the key's default, type and bounds, and the words that the file, `--help` and the
reference page say of it. Reading and checking follow from it in `read` and `load`, writing in `render`.
There is no key that turns the guard off.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from dreamgym_kit.types import Effect, EffectWhen

SETTINGS_FILE = "dreamgym.toml"
RENAMED_SECTIONS = {
    "engine": "workers",
    "worlds": "environments",
    "endpoint": "experience",
    "learned": "experience",
}
RENAMED_KEYS = {("learned", "model"): ("experience", "dir")}  # beside those that `Key.was` names
FAULT_KINDS = (
    *("error", "timeout", "timeout_applied", "rate_limit"),
    *("slow", "malformed", "stale_read", "outage"),
)


@dataclass(frozen=True, slots=True)
class Key:
    """What is declared of one key beside its type and default."""

    says: str  # a phrase: what it is, its unit, and what a special value means
    least: float = 0  # of a number
    most: float | None = None
    among: tuple[str, ...] = ()  # what a text may be
    was: str = ""  # what earlier versions called it, and files of runs still do
    short: str = ""  # a letter for the command line: "-n"
    form: str = ""  # of a text: "reference" ("module:name") or "path"
    example: Any = None  # shown where there is no default


def key(default: Any, says: str, /, **more: Any) -> Any:
    """Declare a key; `more` are fields of `Key`. `dict` stands for an empty table, MISSING for no default."""
    metadata = {"key": Key(says, **more)}
    if default is dict:
        return field(default_factory=dict, metadata=metadata)
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def declared(record: Any) -> dict[str, Key]:
    """Return the declarations of a record, or of its class, by key."""
    return {field.name: field.metadata["key"] for field in fields(record) if "key" in field.metadata}


def on_disk(record: Any) -> dict[str, Any]:
    """The values of a section by the names that run directories know them by."""
    return {key.was or name: getattr(record, name) for name, key in declared(record).items()}


@dataclass(frozen=True, slots=True)
class SimulateSettings:
    """How a dry run is done."""

    repeats: int = key(1, "episodes per task", least=1, was="n", short="-n")
    concurrency: int = key(8, "episodes at once", least=1)
    seed: int = key(0, "same seed, same run")
    on_unanswered: str = key(
        "stop",
        '"stop" the episode when the dream cannot tell, or answer the tool with an "error"',
        among=("stop", "error"),
        was="abstain",
    )
    disable: tuple[str, ...] = key(
        (),
        'parts left out to see what they are worth: ["retrieval"]',
        among=("history", "state", "retrieval", "reasoning"),
        was="without",
    )
    min_confidence: float = key(
        0.5, "0..1: how well supported an answer must be; 0.7 is stricter", was="threshold"
    )
    imagine: bool = key(False, "[experience] invents answers that no recording gives; they prove nothing")


@dataclass(frozen=True, slots=True)
class WorkersSettings:
    """Where episodes run: in the process that keeps the run, or in workers of their own."""

    backend: str = key(
        "local",
        '"local": processes of this machine; "ray": a Ray cluster',
        among=("local", "ray"),
        was="name",
    )
    count: int = key(0, "processes that run episodes; 0: the one that keeps the run", was="workers")
    address: str | None = key(
        None, "ray: of a running cluster; none: one is started here", example="ray-head:6379"
    )

    @property
    def elsewhere(self) -> int:
        """Workers that there are to be; Ray always has some: as many as processors here where nobody said."""
        return self.count or ((os.cpu_count() or 1) if self.backend == "ray" else 0)


@dataclass(frozen=True, slots=True)
class Limits:
    """Where one episode ends at the latest."""

    max_tool_calls: int = key(50, "tool calls", least=1, was="steps")
    max_seconds: float = key(300.0, "wall time", least=0.001, was="seconds")
    recursion_limit: int = key(100, "LangGraph's recursion_limit", least=1, was="recursion")


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """Hard limits of a whole run; none unless set."""

    max_calls: int | None = key(None, "tool calls over all episodes", example=10000, was="calls")
    max_usd: float | None = key(
        None, "model spend, at the prices under [model] and [experience]", example=5.0, was="usd"
    )


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """What the second wall lets through; your chat model's host belongs here."""

    allow_hosts: tuple[str, ...] = key((), '["api.openai.com", "localhost:8000"]')
    allow_paths: tuple[str, ...] = key((), "files or folders that may be written")
    allow_commands: tuple[str, ...] = key((), "programs that may be started; python or sh can start any")
    sandbox: str = key(
        "auto",
        'kernel sandbox of dreams: "auto" the best there is, "require" the namespace one, "off", '
        '"external" somebody else\'s',
        among=("auto", "require", "off", "external"),
    )


@dataclass(frozen=True, slots=True)
class SecretsSettings:
    """What is masked beside what the kit knows by itself."""

    variables: tuple[str, ...] = key((), "environment variables that hold secrets, whatever their names")
    fields: tuple[str, ...] = key((), "names of arguments and fields that hold secrets")
    patterns: tuple[str, ...] = key((), "regular expressions; a group, where there is one, is the secret")


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """What a person said about a tool."""

    effect: Effect = key(MISSING, "what the tool does to its environment")
    guessed: bool = key(False, "`init` wrote the effect, and nobody has confirmed it yet")
    effect_when: EffectWhen = key(dict, 'the effect of a call by an argument: { query = "sql" }')
    view: tuple[str, ...] = key(
        (), 'the parts of its answers that the agent sees: "items[].name", "items[:5]", "text()" of a page'
    )
    imagine: bool | None = key(
        None, "whether its answers may be imagined; as simulate.imagine unless set", example=True
    )


@dataclass(frozen=True, slots=True)
class FunctionSettings:
    """A plain function that the gate has to hold though it is no tool."""

    effect: Effect = key(MISSING, "what the function does to its environment")
    name: str | None = key(
        None, "how reports call it; the function's own name unless set", example="send_mail"
    )


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """A graph node that acts on the world by itself."""

    effect: Effect = key(MISSING, "what the node does to its environment")


@dataclass(frozen=True, slots=True)
class MatchSettings:
    """Arguments of a tool that do not change its answer."""

    ignore: tuple[str, ...] = key((), 'arguments that need not equal the recording: ["reason"]')


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What the agent's chat model costs."""

    usd_per_million_input: float = key(0.0, "tokens read")
    usd_per_million_output: float = key(0.0, "tokens written")


@dataclass(frozen=True, slots=True)
class ExperienceSettings:
    """The experience model, asked where recordings and rules do not tell: served, or a directory."""

    urls: tuple[str, ...] = key((), '["http://localhost:8000/v1"], OpenAI-compatible; several are replicas')
    model: str | None = key(None, "of urls, as the server names it", example="qwen3-8b")
    dir: str | None = key(
        None,
        "a model directory: what experience train wrote, or a language model",
        example="models/experience",
    )
    served_name: str | None = key(
        None,
        "urls serve the directory under this name; unset: it runs in this process",
        example="experience",
        was="served",
    )
    no_reasoning_model: str | None = key(
        None,
        "a directory taught without reasons; decides where reasoning is disabled",
        example="models/experience-without-reasons",
        was="plain",
    )
    acceptance: str | None = key(
        None,
        "the acceptance file that experience eval wrote; a directory's own lies in it",
        example="distilled/model/acceptance.json",
        was="gate",
    )
    key_env: str | None = key(None, "the environment variable that holds the key", example="OPENAI_API_KEY")
    key_file: str | None = key(None, "or the file that holds it", example="/run/secrets/openai")
    temperature: float = key(0.0, "0 answers alike each time")
    top_p: float = key(1.0, "1 leaves all tokens in", least=0.001)
    max_output: int = key(1024, "tokens of one answer", least=1)
    timeout_s: float = key(60.0, "of one request", least=0.001)
    max_attempts: int = key(3, "requests for one answer at most", least=1, was="attempts")
    calibration_calls: int = key(
        32, "recorded calls asked before a run, to learn what its confidence is worth", was="calibrate"
    )
    examples: int = key(
        6, "similar recordings shown with a question, and half as many failures, at most 3", most=16
    )
    judge: bool = key(False, "also judges each episode, beside the checker")
    judge_model: str | None = key(None, "another model for it: a served name, or a URL", example="qwen3-32b")
    user_model: str | None = key(
        None, "another model for simulated users, in the same form", example="qwen3-32b"
    )
    teacher_model: str | None = key(
        None, "another model for annotations, in the same form", example="qwen3-32b"
    )
    usd_per_million_input: float = key(0.0, "tokens read")
    usd_per_million_output: float = key(0.0, "tokens written")

    @property
    def named(self) -> bool:
        """Whether a model is named."""
        return bool(self.urls) or self.model is not None or self.dir is not None

    def of(self, role: str) -> "ExperienceSettings":
        """The settings of the model for a role: "judge", "user" or "teacher"."""
        named = getattr(self, f"{role}_model")
        if named is None:
            return self
        return (
            replace(self, dir=None, urls=(named,)) if "://" in named else replace(self, dir=None, model=named)
        )


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """How the buffer is searched, and how much it may hold; real rows leave last."""

    embedder: str | None = key(
        None, '"hashed", an endpoint\'s URL or a sentence-transformers folder', example="hashed"
    )
    embedder_model: str | None = key(None, "as the endpoint names it", example="bge-m3")
    embedder_dimension: int | None = key(None, "numbers in one of its vectors", least=1, example=1024)
    embedder_key_env: str | None = key(
        None, "the environment variable that holds its key", example="OPENAI_API_KEY"
    )
    embedder_key_file: str | None = key(None, "or the file that holds it", example="/run/secrets/openai")
    weaviate_key_env: str | None = key(
        None, "that of a buffer on Weaviate; WEAVIATE_API_KEY unless set", example="WEAVIATE_KEY"
    )
    weaviate_key_file: str | None = key(None, "or the file that holds it", example="/run/secrets/weaviate")
    rows: int | None = key(None, "of any kind; no limit unless set", least=1, example=1000000)
    dreamt_share: float = key(0.5, "0..1 of all rows: answers that no real tool gave", most=1)
    dreamt_days: float | None = key(
        None, "how long such answers stay; as long as there is room unless set", example=30.0
    )


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """How the tools of one pattern break in a dream; `dream.faults` says what the kinds are."""

    rate: float = key(0.0, "share of the calls, 0..1", most=1)
    kinds: tuple[str, ...] = key(("error",), "one is drawn for each fault", among=FAULT_KINDS)
    wait_s: float = key(
        1.0, "seconds that a slow answer takes, and that a rate limit tells the agent to wait", most=3600
    )
    outage_calls: int = key(3, "calls in a row that an outage lasts", least=1, most=1000)


@dataclass(frozen=True, slots=True)
class FindingsSettings:
    """What is looked for in every episode."""

    detectors: tuple[str, ...] = key(
        (), 'functions of your own: ["my_agent.checks:big_refund"]', form="reference"
    )
    on: tuple[str, ...] = key((), 'detectors that are off unless named: ["contradicting_answer"]')
    off: tuple[str, ...] = key((), 'detectors to leave out, also for some tools: ["loop", "loop:poll_*"]')
    approval: tuple[str, ...] = key((), 'tools that need a yes before they are called: ["delete_*"]')


@dataclass(frozen=True, slots=True)
class GateSettings:
    """When a run passes; else its exit code is 1 (failed), 3 (inconclusive) or 4 (error)."""

    min_pass_rate: float | None = key(
        1.0,
        "required pass rate, 0..1: mean over tasks of the passed share of conclusive episodes",
        most=1,
        was="success",
    )
    min_pass_rate_low: float | None = key(
        None,
        "0..1: lower bound of its 95 % interval; stricter with few episodes",
        most=1,
        example=0.7,
        was="success_low",
    )
    max_inconclusive: float | None = key(
        0.1, "allowed share of inconclusive episodes, 0..1", most=1, was="undetermined"
    )
    max_errors: float = key(0.0, "allowed errors, in episodes; below 1: a share of all episodes")
    max_contradictions: int | None = key(
        None, "answers that contradict the ledger, and judges that disagree", example=0, was="contradictions"
    )
    forbid: tuple[str, ...] = key((), 'tools that must not be called, as patterns: ["delete_*"]')
    max_calls_per_tool: Mapping[str, int] = key(
        dict, "calls in one episode, by tool pattern: {refund_payment = 1}", was="max"
    )
    fail_on: tuple[str, ...] = key(
        (), 'kinds of findings that fail the run: ["repeated_write", "critical"]', was="findings"
    )
    imagined: str = key(
        "inconclusive",
        'episodes with imagined answers: "inconclusive", or "count" as passed or failed',
        among=("inconclusive", "count"),
    )
    max_usd: float | None = key(None, "model spend of the run", example=2.0, was="usd")
    max_seconds: float | None = key(None, "wall time of the run", example=600.0, was="seconds")


@dataclass(frozen=True, slots=True)
class EvaluateSettings:
    """What `evaluate` does beyond a dry run."""

    faults: float | None = key(
        None,
        "share of calls that fail by plan, real ones too; unset: as [faults] says, in a dream only",
        most=1,
        example=0.1,
    )


NO_GATE = GateSettings(min_pass_rate=None, max_inconclusive=None)
"""Of a run that judges no agent: it records, or trains. Its errors are errors all the same."""


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How the policy learns in the dream; what it learned is measured on held-out tasks."""

    tasks_per_step: int = key(16, "tasks drawn for each step", least=1, was="tasks")
    group_size: int = key(8, "episodes of each task in a step: one group", least=2, was="n")
    steps: int = key(30, "optimizer steps", least=1)
    seed: int = key(0, "same seed, same run")
    lr: float = key(2e-4, "learning rate; 1e-6 to 5e-5 for large models")
    warmup: int = key(5, "steps over which it rises")
    algorithm: str = key(
        "grpo", "training algorithm: grpo, ppo, dpo or sft", among=("grpo", "ppo", "dpo", "sft")
    )
    loss_type: str = key(
        "dapo",
        "as TRL names it: dapo, grpo, bnpo, dr_grpo, cispo, ...",
        among=("dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "vespo", "luspo"),
        was="loss",
    )
    beta: float = key(0.0, "weight of the KL term that holds the policy near its start")
    clip_ratio: float = key(
        0.2, "how far a token's probability may move in one update, as a ratio", was="clip"
    )
    grad_clip: float = key(1.0, "most norm of a gradient")
    faults: float | None = key(
        None, "share of calls that fail where it learns; as [faults] has it unless set", most=1, example=0.1
    )
    value_lr: float = key(2e-3, "ppo: learning rate of the value head")
    value_weight: float = key(0.1, "ppo: of the value head's loss beside the policy's")
    gae_lambda: float = key(1.0, "ppo: lambda of the advantages, 0..1", most=1, was="gae")
    dpo_beta: float = key(0.1, "dpo: how dearly the policy pays for leaving its start")
    dpo_pairs: int = key(4, "dpo: most pairs that one group gives", least=1)
    lora_rank: int | None = key(
        None,
        "rank of the LoRA adapter that is trained; all weights unless set",
        least=1,
        example=16,
        was="lora",
    )
    staleness: int = key(
        0, "updates that a rollout's weights may lie behind; 1: rollouts overlap updates", most=8
    )
    micro_batches: int = key(
        4, "that a step's batch is computed in; more take less memory", least=1, was="pieces"
    )
    save_every: int = key(1, "steps between checkpoints", least=1)
    keep_checkpoints: int = key(2, "checkpoints that stay", least=1, was="keep")
    eval_every: int = key(10, "steps between evaluations; 0: only at the start and the end")
    eval_n: int = key(4, "episodes a task in an evaluation", least=1)
    eval_tasks: str | None = key(
        None, "a file of their own; those with split = held_out unless set", example="held_out.jsonl"
    )
    eval_real: bool = key(False, "evaluate on the real tools; asks first")
    imagined: bool = key(False, "true: also learn from, and evaluate with, imagined answers")
    report_to: tuple[str, ...] = key((), 'loggers that TRL knows: ["tensorboard"]')


@dataclass(frozen=True, slots=True)
class CurriculumSettings:
    """Which tasks a training spends its episodes on."""

    enabled: bool = key(False, "true: hard but solvable ones first; false: all in turn", was="use")
    half_life: float = key(20.0, "steps after which what was seen of a task counts half", least=0.1)
    explore: float = key(0.25, "weight of not knowing, beside that of hard but solvable")
    focus: float = key(3.0, "power of the score that the chance of being drawn follows")
    round_robin_share: float = key(
        0.25, "0..1 of each draw for tasks not met for longest", most=1, was="turns"
    )
    mastered: float = key(0.95, "0..1: estimated success above which a task rests", most=1)
    max_infeasible: float = key(
        0.9, "0..1: it rests when it is impossible more likely than this", most=1, was="hopeless"
    )
    doubtful: float = key(0.1, "0..1: nothing is learned from it while that is likelier than this", most=1)
    judge_error: float = key(0.05, "0..1 of a model's verdicts that are wrong", most=0.4)
    clusters: str | None = key(
        None, 'the field of meta that says which tasks are alike: "family"', example="family"
    )
    task_generator: str | None = key(
        None,
        '"my_agent.tasks:like" makes tasks like a given one, by rules',
        example="my_agent.tasks:like",
        was="maker",
    )
    llm_variations: bool = key(False, "true: the endpoint's model makes variations of tasks", was="vary")
    checker: str | None = key(
        None, "judges any task of these environments, the model's variations too", example="orders"
    )
    judges: tuple[str, ...] = key((), 'else ["experience", "my_agent.checks:judge"], who have to agree')
    synthetic: float = key(0.3, "0..1: most of a draw that are made tasks", most=1)
    every: int = key(5, "steps between makings", least=1)
    seeds: int = key(4, "tasks that are varied at each", least=1)
    candidates: int = key(4, "variations of each that one is chosen from", least=1, most=16)


@dataclass(frozen=True, slots=True)
class AlarmSettings:
    """When a training stops at its last good checkpoint."""

    logprobs: float = key(1e-3, "most nats, sampled against recomputed; 0.2 for 16-bit servers")
    stale_weights: float = key(1e-4, "most nats, server against trainer after a sync; 0.2 for 16-bit servers")
    max_kl: float = key(0.1, "most nats a token that one update may move the policy", was="kl")
    entropy_low: float = key(0.1, "least entropy, as a multiple of the first steps'", most=1)
    entropy_high: float = key(10.0, "most entropy, as a multiple of the first steps'", least=1)
    max_zero_variance_draws: int = key(
        3, "draws of tasks in a row in which no group has any spread", least=1, was="dead_draws"
    )
    judges_disagree: float = key(0.3, "0..1: most episodes on which checker and judging model differ", most=1)
    reward_gap: float = key(0.15, "0..1: most that the judging model may rise above the checker", most=1)


@dataclass(frozen=True, slots=True)
class S2rSettings:
    """From the dream to the real tools: what no call may pass."""

    stage: str = key(
        "shadow",
        '"shadow": writes are simulated; "approve": each write needs approval; "live": destructive ones do',
        among=("shadow", "approve", "live"),
    )
    max_calls: int | None = key(None, "maximum number of real calls; required", example=1000, was="calls")
    max_calls_per_tool: Mapping[str, int] = key(
        dict, "maximum number of real calls by tool pattern: {refund_payment = 20}", was="most"
    )
    rate: float = key(5.0, "real calls, all tools together; 0: no limit", was="per_second")
    rate_per_tool: Mapping[str, float] = key(
        dict, 'real calls a second by tool pattern: {"refund_*" = 0.2}', was="rates"
    )
    approver: str | None = key(
        None,
        "your function that approves pending calls (default: asks in the terminal)",
        example="my_agent.rules:may_run",
        form="reference",
    )
    approval_timeout_s: float = key(120.0, "seconds that there are for a yes", least=0.001, was="approval_s")
    auto_approve: tuple[str, ...] = key(
        (),
        'destructive tools that "live" runs without a yes, by exact name: ["refund_payment"]',
        was="unheld",
    )
    preflight_pass_rate_low: float = key(
        0.5,
        "0..1: gate: least lower bound of the 95 % interval of success in the dream",
        most=1,
        was="success_low",
    )
    preflight_coverage: float = key(
        0.9, "0..1: gate: least share of calls that the dream could answer", most=1, was="coverage"
    )
    preflight_repeats: int = key(
        4, "gate: episodes of each held-out task in the dream", least=1, was="gate_n"
    )
    canaries: int = key(8, "gate: tasks tried in shadow on the real tools before anything else")
    canary_low: float = key(0.5, "0..1: gate: least share of these that come to a verdict", most=1)


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """A model of your own in place of the agent's: to be trained, and tried with --policy."""

    model: str | None = key(
        None, "its directory; or, with urls, as the server names it", example="models/agent"
    )
    urls: tuple[str, ...] = key((), '["http://localhost:8000/v1"] of vLLM; empty: in this process')
    replicas: tuple[str, ...] = key(
        (), "the servers' own addresses, where `urls` is a router: weights go there"
    )
    weights: str | None = key(
        None, "with urls: the directory that the servers serve; train begins with it", example="models/agent"
    )
    key_env: str | None = key(
        None, "the environment variable that holds the server's key", example="POLICY_KEY"
    )
    key_file: str | None = key(None, "or the file that holds it", example="/run/secrets/policy")
    only_nodes: tuple[str, ...] = key((), 'nodes whose models it answers for: ["agent"]; empty: all')
    temperature: float = key(1.0, "1 samples from the model as it is")
    max_output: int = key(512, "tokens of one answer", least=1)
    grammar: bool = key(
        True, "false: schemas and forced tools are not enforced, and missing them is learned from"
    )


@dataclass(frozen=True, slots=True)
class DistillSettings:
    """How `experience train` fine-tunes a model on annotated recordings."""

    batch_size: int = key(16, "lessons in one optimizer step", least=1)
    micro_batches: int = key(4, "parts that a batch is computed in; more take less memory", least=1)
    max_tokens: int | None = key(
        None, "longest lesson; the model's context length unless set", least=64, example=8192
    )
    leave_out: float = key(0.15, "0..1: how often a lesson lacks history, examples or state", most=1)
    reasoning: bool = key(True, "false: teach no reasons, for an ablation")
    bf16: bool = key(False, "true: compute in 16 bits and recompute activations, to save memory")
    save_every: int = key(50, "steps between checkpoints", least=1)


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """How `serve` starts a role; a deployed model takes only `tool_parser`."""

    dev: bool = key(False, "true: open the routes that change weights, to this machine alone")
    scale_out: bool = key(False, "true: open /inference/v1/generate: tokens in, tokens out")
    lora_rank: int = key(0, "largest rank of adapters that are loaded later; 0: none")
    tool_parser: str = key("hermes", "vLLM's parser for the tool calls of a policy model")
    ready_within_s: float = key(1800.0, "seconds until a server that is not ready is stopped", least=1)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. Equal when they say the same, wherever they were read from."""

    graph: str | None = key(
        None, '"module:attribute", "file.py:attribute" or "langgraph.json:name"', example="my_agent:graph"
    )
    tasks: str | None = key(
        None,
        "tasks file, one JSON object per line: id, input, environment, checker",
        example="tasks.jsonl",
        form="path",
    )
    buffer: str = key("dreamgym.db", "recordings: an SQLite file, or weaviate://host?tenant=NAME")
    runs: str = key("runs", "folder that gets a directory for each run", form="path")
    tenant: str = key("default", "whose recordings to use")
    shard: str | None = key(None, "part of the tasks, I/N: every N-th from the I-th on", example="1/8")
    openapi: tuple[str, ...] = key((), 'OpenAPI documents of the API behind the tools: ["openapi.json"]')
    structured_outputs: tuple[str, ...] = key((), "names bound to the model that are answer forms, not tools")
    leave_out: tuple[str, ...] = key((), "tools that the model's provider runs, which dreams do without")
    simulate: SimulateSettings = SimulateSettings()
    workers: WorkersSettings = WorkersSettings()
    limits: Limits = Limits()
    budget: BudgetSettings = BudgetSettings()
    guard: GuardSettings = GuardSettings()
    secrets: SecretsSettings = SecretsSettings()
    model: ModelSettings = ModelSettings()
    experience: ExperienceSettings = ExperienceSettings()
    findings: FindingsSettings = FindingsSettings()
    gate: GateSettings = GateSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    replay: ReplaySettings = ReplaySettings()
    train: TrainSettings = TrainSettings()
    curriculum: CurriculumSettings = CurriculumSettings()
    alarms: AlarmSettings = AlarmSettings()
    s2r: S2rSettings = S2rSettings()
    policy: PolicySettings = PolicySettings()
    distill: DistillSettings = DistillSettings()
    serve: ServeSettings = ServeSettings()
    tools: Mapping[str, ToolSettings] = key(dict, "by the tool's name")
    match: Mapping[str, MatchSettings] = key(dict, 'by tool pattern: submit_leave = { ignore = ["reason"] }')
    functions: Mapping[str, FunctionSettings] = key(dict, 'by "pkg.mod:function"')
    nodes: Mapping[str, NodeSettings] = key(dict, "by the node's name")
    context: Mapping[str, object] = key(dict, "the graph's runtime context, unless a task gives another")
    configurable: Mapping[str, object] = key(
        dict, 'of an assistant: what its config has under "configurable"'
    )
    checkers: Mapping[str, str] = key(dict, 'name = "module:function"', form="reference")
    environments: Mapping[str, str] = key(
        dict, '[environments.NAME] with ref = "module:Class"', form="reference"
    )
    faults: Mapping[str, FaultSettings] = key(dict, 'by tool pattern, "refund_*"')
    path: Path | None = field(default=None, compare=False)  # the file, absolute; None without one
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict, compare=False, repr=False)

    def imagines(self, tool: str) -> bool:
        """Whether a tool's answers may be imagined: as it says itself, else as all."""
        own = self.tools[tool].imagine if tool in self.tools else None
        return self.simulate.imagine if own is None else own

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
        """Lay values over these settings, by dotted keys ("simulate.repeats"); None leaves a key as it is.

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
    if name not in {field.name for field in fields(record)}:
        raise KeyError(name)
    return replace(record, **{name: _set(getattr(record, name), rest, value) if rest else value})


def kind_of(key: Sequence[str]) -> Any:
    """The type of a key's values: ("simulate", "repeats") -> int."""
    kind: Any = Settings
    for name in key:
        kind = get_type_hints(kind)[name]
    return without_none(kind)


def without_none(kind: Any) -> Any:
    """The type that an optional one has where there is a value."""
    if get_origin(kind) is UnionType:
        return next(option for option in get_args(kind) if option is not NoneType)
    return kind
