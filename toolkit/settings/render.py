"""Writes `dreamgym.toml`: every key with a word on it, guesses with their reasons, for a person to correct.

A key at its default stands as a comment, so that a later default reaches the user; reading what was
written gives the same settings. Texts from the graph (descriptions, names) can only ever be comments
or quoted: they cannot add a key.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import tomlkit

from dreamgym_kit.settings.model import Settings
from dreamgym_kit.settings.read import keys_of, sections
from dreamgym_kit.settings.tool_models import ToolModelSettings, as_data
from dreamgym_kit.vocabulary import Effect, ToolSpec

_WIDTH = 96
_HEAD = """\
# Settings of dreamgym-kit. Paths are relative to this file. What starts with # is off or at its default.
# Every key has an environment variable, DREAMGYM_<SECTION>_<KEY>: DREAMGYM_SIMULATE_N=4.
# No secrets here: keys and tokens belong in environment variables that your graph reads.
"""
_WORDS: Mapping[tuple[str, ...], str] = {
    ("graph",): '"module:attribute", "file.py:attribute" or "langgraph.json:name"',
    ("tasks",): "one JSON object a line: id, input, world, checker",
    ("buffer",): "recorded calls and answers (SQLite)",
    ("runs",): "one folder a run",
    ("tenant",): "whose recordings to use",
    ("structured_outputs",): "names bound to the model that are answer forms, not tools",
    ("simulate",): "How a dry run is done.",
    ("simulate", "n"): "episodes per task",
    ("simulate", "concurrency"): "episodes at once",
    ("simulate", "seed"): "same seed, same run",
    (
        "simulate",
        "abstain",
    ): '"stop" the episode when the dream cannot tell, or answer the tool with an "error"',
    ("simulate", "without"): 'parts left out to see what they are worth: ["retrieval"]',
    ("simulate", "threshold"): "0..1: how well supported an answer must be; 0.7 is stricter",
    ("limits",): "Where one episode ends at the latest.",
    ("limits", "steps"): "tool calls",
    ("limits", "seconds"): "wall time",
    ("limits", "recursion"): "LangGraph's recursion_limit",
    ("budget",): "Hard limits of a whole run; none unless set.",
    ("budget", "calls"): "tool calls over all episodes",
    ("budget", "usd"): "model spend, at the prices under [model] and [endpoint]",
    ("guard",): "What the second wall lets through; your chat model's host belongs here.",
    ("guard", "allow_hosts"): '["api.openai.com", "localhost:8000"]',
    ("guard", "allow_paths"): "files or folders that may be written",
    ("guard", "allow_commands"): "programs that may be started",
    ("model",): "What the agent's chat model costs.",
    ("model", "usd_per_million_input"): "tokens read",
    ("model", "usd_per_million_output"): "tokens written",
    ("learned",): "A model that learned to decide calls, asked where recordings and rules do not tell.",
    ("learned", "model"): "its directory",
    ("learned", "urls"): '["http://localhost:8001/v1"] of vLLM; empty: in this process',
    ("learned", "served"): "as the server names it; like the directory unless set",
    ("learned", "key_env"): "the environment variable that holds the server's key",
    ("endpoint",): "The dream's own model, asked where recordings do not answer; OpenAI-compatible.",
    ("endpoint", "urls"): '["http://localhost:8000/v1"]; several are replicas',
    ("endpoint", "model"): "as the server names it; without urls, a model directory",
    ("endpoint", "gate"): "the gate.json that `experience eval` wrote; a directory's own lies in it",
    ("endpoint", "key_env"): "the environment variable that holds the key",
    ("endpoint", "temperature"): "0 answers alike each time",
    ("endpoint", "top_p"): "1 leaves all tokens in",
    ("endpoint", "max_output"): "tokens of one answer",
    ("endpoint", "timeout_s"): "of one request",
    ("endpoint", "attempts"): "requests for one answer at most",
    (
        "endpoint",
        "calibrate",
    ): "recorded calls asked before a run, to learn what its confidence is worth",
    ("endpoint", "judge"): "also judges each episode, beside the checker; false: does not",
    ("endpoint", "usd_per_million_input"): "tokens read",
    ("endpoint", "usd_per_million_output"): "tokens written",
    ("findings",): "What is looked for in every episode.",
    ("findings", "detectors"): 'functions of your own: ["my_agent.checks:big_refund"]',
    ("findings", "off"): 'detectors to leave out: ["loop"]',
    ("findings", "approval"): 'tools that need a yes before they are called: ["delete_*"]',
    ("gate",): "When a run fails (exit code 1); a real call always fails it.",
    ("gate", "success"): "0..1: least share of decided episodes that succeed",
    ("gate", "success_low"): "0..1: least lower bound of its 95 % interval; stricter with few episodes",
    ("gate", "undetermined"): "0..1: most of all episodes",
    ("gate", "contradictions"): "most answers that contradict the ledger, and judges that disagree",
    ("gate", "forbid"): 'tools that must not be called: ["delete_*"]',
    ("gate", "max"): "most calls in one episode, by tool pattern: {refund_payment = 1}",
    ("gate", "findings"): 'kinds of findings that must not be: ["repeated_write", "critical"]',
    ("gate", "usd"): "most model spend of the run",
    ("gate", "seconds"): "most wall time of the run",
    ("replay",): "How the buffer is searched, and how much it may hold; real rows leave last.",
    ("replay", "embedder"): '"hashed", an endpoint\'s URL or a sentence-transformers folder',
    ("replay", "embedder_model"): "as the endpoint names it",
    ("replay", "embedder_dimension"): "numbers in one of its vectors",
    ("replay", "embedder_key_env"): "the environment variable that holds its key",
    ("replay", "rows"): "of any kind; no limit unless set",
    ("replay", "dreamt_share"): "0..1 of all rows: answers that no real tool gave",
    ("replay", "dreamt_days"): "how long such answers stay; as long as there is room unless set",
    ("train",): "How the policy learns in the dream; what it learned is measured on held-out tasks.",
    ("train", "tasks"): "drawn for each step",
    ("train", "n"): "episodes of each of them: one group",
    ("train", "steps"): "optimiser steps",
    ("train", "seed"): "same seed, same run",
    ("train", "lr"): "learning rate; 1e-6 to 5e-5 for large models",
    ("train", "warmup"): "steps over which it rises",
    ("train", "algorithm"): "grpo, ppo, dpo or sft",
    ("train", "loss"): "as TRL names it: dapo, grpo, bnpo, dr_grpo, cispo, ...",
    ("train", "beta"): "weight of the KL term that holds the policy near its start",
    ("train", "clip"): "how far a token's probability may move in one update, as a ratio",
    ("train", "grad_clip"): "most norm of a gradient",
    ("train", "faults"): "share of calls that fail where it learns; as [faults] has it unless set",
    ("train", "value_lr"): "ppo: learning rate of the value head",
    ("train", "value_weight"): "ppo: of the value head's loss beside the policy's",
    ("train", "gae"): "ppo: lambda of the advantages, 0..1",
    ("train", "dpo_beta"): "dpo: how dearly the policy pays for leaving its start",
    ("train", "dpo_pairs"): "dpo: most pairs of siblings that one group gives",
    ("train", "lora"): "rank of the adapter that is trained; all weights unless set",
    ("train", "staleness"): "updates that a rollout's weights may lie behind; 1: rollouts overlap updates",
    ("train", "pieces"): "that a step's batch is computed in; more take less memory",
    ("train", "save_every"): "steps between checkpoints",
    ("train", "keep"): "checkpoints that stay",
    ("train", "eval_every"): "steps between evaluations; 0: only at the start and the end",
    ("train", "eval_n"): "episodes a task in an evaluation",
    ("train", "eval_tasks"): "a file of their own; those with split = held_out unless set",
    ("train", "eval_real"): "true: on the real tools",
    ("train", "report_to"): 'loggers that TRL knows: ["tensorboard"]',
    ("curriculum",): "Which tasks a training spends its episodes on.",
    ("curriculum", "use"): "true: hard but solvable ones first; false: all in turn",
    ("curriculum", "half_life"): "steps after which what was seen of a task counts half",
    ("curriculum", "explore"): "weight of not knowing, beside that of hard but solvable",
    ("curriculum", "focus"): "power of the score that the chance of being drawn follows",
    ("curriculum", "turns"): "0..1 of each draw for tasks not met for longest",
    ("curriculum", "mastered"): "0..1: estimated success above which a task rests",
    ("curriculum", "hopeless"): "0..1: it rests when it is impossible more likely than this",
    ("curriculum", "doubtful"): "0..1: nothing is learned from it while that is likelier than this",
    ("curriculum", "judge_error"): "0..1 of a model's verdicts that are wrong",
    ("curriculum", "clusters"): 'the field of meta that says which tasks are alike: "family"',
    ("curriculum", "maker"): '"my_agent.tasks:like" makes tasks like a given one, by rules',
    ("curriculum", "vary"): "true: the endpoint's model makes variations of tasks",
    ("curriculum", "checker"): "judges any task of these worlds, the model's variations too",
    ("curriculum", "judges"): 'else ["endpoint", "my_agent.checks:judge"], who have to agree',
    ("curriculum", "synthetic"): "0..1: most of a draw that are made tasks",
    ("curriculum", "every"): "steps between makings",
    ("curriculum", "seeds"): "tasks that are varied at each",
    ("curriculum", "candidates"): "variations of each that one is chosen from",
    ("alarms",): "When a training stops at its last good checkpoint.",
    ("alarms", "logprobs"): "most nats, sampled against recomputed; 0.2 for 16-bit servers",
    ("alarms", "stale_weights"): "most nats, server against trainer after a sync; 0.2 for 16-bit servers",
    ("alarms", "kl"): "most nats a token that one update may move the policy",
    ("alarms", "entropy_low"): "least entropy, as a multiple of the first steps'",
    ("alarms", "entropy_high"): "most entropy, as a multiple of the first steps'",
    ("alarms", "dead_draws"): "draws of tasks in a row in which no group has any spread",
    ("alarms", "judges_disagree"): "0..1: most episodes on which checker and judging model differ",
    ("alarms", "reward_gap"): "0..1: most that the judging model may rise above the checker",
    ("s2r",): "From the dream to the real tools: what no call may pass.",
    ("s2r", "stage"): '"shadow": writes are dreamed; "staged": each waits for a yes; "live"',
    ("s2r", "calls"): "most real calls in all; nothing begins without it",
    ("s2r", "most"): "most real calls by tool pattern: {refund_payment = 20}",
    ("s2r", "per_second"): "real calls, all tools together; 0: no limit",
    ("s2r", "rates"): 'real calls a second by tool pattern: {"refund_*" = 0.2}',
    ("s2r", "approver"): "a function of your own that is asked about held calls; the terminal unless set",
    ("s2r", "approval_s"): "seconds that there are for a yes",
    ("s2r", "unheld"): 'destructive tools that "live" runs without a yes, by exact name: ["refund_payment"]',
    ("s2r", "success_low"): "0..1: gate: least lower bound of the 95 % interval of success in the dream",
    ("s2r", "coverage"): "0..1: gate: least share of calls that the dream could answer",
    ("s2r", "gate_n"): "gate: episodes of each held-out task in the dream",
    ("s2r", "canaries"): "gate: tasks tried in shadow on the real tools before anything else",
    ("s2r", "canary_low"): "0..1: gate: least share of these that come to a verdict",
    ("policy",): "A model of your own in place of the agent's: to be trained, and tried with --policy.",
    ("policy", "model"): "its directory; or, with urls, as the server names it",
    ("policy", "urls"): '["http://localhost:8000/v1"] of vLLM; empty: in this process',
    ("policy", "key_env"): "the environment variable that holds the server's key",
    ("policy", "only_nodes"): 'nodes whose models it answers for: ["agent"]; empty: all',
    ("policy", "temperature"): "1 samples from the model as it is",
    ("policy", "max_output"): "tokens of one answer",
    (
        "policy",
        "grammar",
    ): "false: schemas and forced tools are not enforced, and missing them is learned from",
}
_EXAMPLE_VALUES: Mapping[tuple[str, ...], Any] = {
    ("graph",): "my_agent:graph",
    ("tasks",): "tasks.jsonl",
    ("budget", "calls"): 10_000,
    ("budget", "usd"): 5.0,
    ("learned", "model"): "models/experience",
    ("learned", "served"): "experience",
    ("learned", "key_env"): "EXPERIENCE_KEY",
    ("endpoint", "model"): "qwen3-8b",
    ("endpoint", "gate"): "distilled/model/gate.json",
    ("endpoint", "key_env"): "OPENAI_API_KEY",
    ("gate", "success"): 0.9,
    ("gate", "success_low"): 0.7,
    ("gate", "undetermined"): 0.1,
    ("gate", "contradictions"): 0,
    ("gate", "usd"): 2.0,
    ("gate", "seconds"): 600.0,
    ("replay", "embedder"): "hashed",
    ("replay", "embedder_model"): "bge-m3",
    ("replay", "embedder_dimension"): 1024,
    ("replay", "embedder_key_env"): "OPENAI_API_KEY",
    ("replay", "rows"): 1_000_000,
    ("replay", "dreamt_days"): 30.0,
    ("s2r", "calls"): 1_000,
    ("s2r", "approver"): "my_agent.rules:may_run",
    ("train", "lora"): 16,
    ("train", "faults"): 0.1,
    ("train", "eval_tasks"): "held_out.jsonl",
    ("curriculum", "clusters"): "family",
    ("curriculum", "maker"): "my_agent.tasks:like",
    ("curriculum", "checker"): "orders",
    ("policy", "model"): "models/agent",
    ("policy", "key_env"): "POLICY_KEY",
}
_EFFECTS = """\

# What each tool does to its world. Correct the guesses: this is what a dry run rests on.
#   pure         computes from its arguments alone; runs for real in a dream
#   control      the framework's own: hand-off, todo list; runs for real in a dream
#   read         looks, changes nothing
#   write        changes something, can be undone
#   destructive  cannot be undone: mail, payment, delete
# What a tool answers, when it fails and what it changes can be said as well, in [tools.NAME.model] (see
# docs/dream.md);
# `dreamgym-kit buffer rules --toml` writes down what recordings show of it.
"""
_GUESSED = "guessed = true  # nobody has confirmed it yet: delete this line once you have"
_EXAMPLES = """\

# Plain functions that act on the world without being tools:
# [functions."my_agent.mail:send"]
# effect = "destructive"

# Nodes that act on the world by themselves:
# [nodes.notify]
# effect = "write"

# Checkers that tasks name, and worlds that can be put up for `record`:
# [checkers]
# refunded_once = "my_agent.checks:refunded_once"
# [worlds.desk]
# ref = "my_agent.worlds:Desk"
"""


_UNPAIRED = re.compile("[\ud800-\udfff]")  # half a character: TOML has no form for it
_FAULT_EXAMPLE = """\

# What breaks in the dream, by tool pattern (error, timeout, timeout_applied, rate_limit, slow, malformed,
# stale_read, outage); a timeout_applied had taken effect:
# [faults."*"]
# rate = 0.05
# kinds = ["timeout", "timeout_applied"]
"""


def render_settings(settings: Settings, specs: Sequence[ToolSpec] = ()) -> str:
    """Write settings as commented TOML, with the tools of a graph where settings do not name them yet."""
    parts = [_HEAD, *_keys(settings, (), Settings())]
    for name, record in sections().items():
        section = getattr(settings, name)
        parts += ["", f"# {_WORDS[(name,)]}", f"[{name}]", *_keys(section, (name,), record())]
    parts.append(_EFFECTS)
    parts += _tools(settings, [spec for spec in specs if spec.kind == "tool"])
    parts += _others(settings, [spec for spec in specs if spec.kind == "node"])
    if not (settings.functions or settings.nodes or settings.checkers or settings.worlds):
        parts.append(_EXAMPLES)
    parts += _faults(settings) if settings.faults else [_FAULT_EXAMPLE]
    return "\n".join(parts).rstrip("\n") + "\n"


def _keys(record: Any, above: tuple[str, ...], default: Any) -> list[str]:
    lines = []
    for known in fields(record):
        key = (*above, known.name)
        section = not above and known.name in sections()
        if known.name not in keys_of(type(record)) or key not in _WORDS or section:
            continue
        value, usual = getattr(record, known.name), getattr(default, known.name)
        if value != usual:
            text = f"{known.name} = {_value(value)}"
        else:
            text = f"# {known.name} = {_value(_EXAMPLE_VALUES[key] if value is None else value)}"
        lines.append(f"{text}  # {_WORDS[key]}")
    return lines


def _tools(settings: Settings, specs: Iterable[ToolSpec]) -> list[str]:
    known = {spec.name: spec for spec in specs}
    lines: list[str] = []
    for name in [*known, *(name for name in settings.tools if name not in known)]:
        spec, said = known.get(name), settings.tools.get(name)
        if spec is not None and spec.description.strip():
            lines.append(f"# {_comment(spec.description)}")
        lines.append(f"[tools.{_name(name)}]")
        if said is not None:
            lines += [f"effect = {_value(said.effect)}", *([_GUESSED] if said.guessed else []), ""]
            lines += render_model(name, said.model) if said.model is not None else []
        elif spec is not None:
            guessed = [_GUESSED] if spec.source == "guessed" else []
            lines += [f"effect = {_value(spec.effect)}{_reason(spec)}", *guessed, ""]
    return lines


def render_model(name: str, model: ToolModelSettings) -> list[str]:
    """The tables of one tool's model, as `[tools.NAME.model]` has them."""
    data = as_data(model)
    several = {key: data.pop(key) for key in ("fails", "changes") if data.get(key)}
    table = f"tools.{_name(name)}.model"
    lines = [f"[{table}]", *(f"{_name(key)} = {_inline(value)}" for key, value in data.items()), ""]
    for key, entries in several.items():
        for entry in entries:
            lines += [
                f"[[{table}.{key}]]",
                *(f"{_name(one)} = {_inline(value)}" for one, value in entry.items()),
            ]
            lines.append("")
    return lines


def _inline(value: Any) -> str:
    """A JSON value on one line; TOML has no null, so that is a hole."""
    if value is None:
        return '"{null}"'
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_name(key)} = {_inline(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_inline(item) for item in value)}]"
    return _value(value)


def _reason(spec: ToolSpec) -> str:
    said = f"{spec.source}: {spec.reason}" if spec.reason else spec.source
    return f"  # {_comment(said)}"


def _others(settings: Settings, nodes: Iterable[ToolSpec]) -> list[str]:
    lines: list[str] = []
    for name, function in settings.functions.items():
        lines += [f"[functions.{_name(name)}]", f"effect = {_value(function.effect)}"]
        lines += [f"name = {_value(function.name)}", ""] if function.name is not None else [""]
    said = {name: node.effect for name, node in settings.nodes.items()}
    for name, effect in ({spec.name: spec.effect for spec in nodes} | said).items():
        lines += [f"[nodes.{_name(name)}]", f"effect = {_value(effect)}", ""]
    if settings.checkers:
        lines += [
            "[checkers]",
            *(f"{_name(name)} = {_value(ref)}" for name, ref in settings.checkers.items()),
            "",
        ]
    for name, ref in settings.worlds.items():
        lines += [f"[worlds.{_name(name)}]", f"ref = {_value(ref)}", ""]
    return lines


def _faults(settings: Settings) -> list[str]:
    lines = ["", "# What breaks in the dream, by tool pattern."]
    for pattern, rule in settings.faults.items():
        lines.append(f"[faults.{_name(pattern)}]")
        lines += [f"{known.name} = {_value(getattr(rule, known.name))}" for known in fields(rule)]
        lines.append("")
    return lines


def _value(value: Any) -> str:
    if isinstance(value, Effect):
        value = str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_name(name)} = {_value(item)}' for name, item in value.items())}}}"
    if isinstance(value, str):
        return _escaped(tomlkit.item(_UNPAIRED.sub("\ufffd", value)).as_string())
    return str(tomlkit.item(value).as_string())


def _name(name: str) -> str:
    return _escaped(tomlkit.key(_UNPAIRED.sub("\ufffd", name)).as_string())


def _escaped(quoted: str) -> str:
    """What is not seen, or turns a line around, as escapes: what a person reads is what there is."""
    return "".join(
        one if one.isprintable() else f"\\u{ord(one):04x}" if ord(one) < 0x10000 else f"\\U{ord(one):08x}"
        for one in quoted
    )


def _comment(text: str) -> str:
    """One printable line: what a tool says about itself must not become a key."""
    plain = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(plain.split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..."
