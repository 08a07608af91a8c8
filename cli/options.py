"""Options of the commands: those of settings are made from their declarations, `--set` reaches all others.

Heavy packages stay out: `--help` imports this module, typer and the declarations.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin, get_type_hints

import typer

from dreamgym_kit.cli.output import pasted
from dreamgym_kit.errors import UserError

if TYPE_CHECKING:
    from dreamgym_kit.rollout.jobs import Shard
    from dreamgym_kit.settings.schema import Key, Settings
    from dreamgym_kit.types import Task


def option(flags: str, says: str, metavar: str | None = None, *, count: bool = False) -> Any:
    """An option whose default is not shown; `flags` as they are typed: "--select -k"."""
    return typer.Option(*flags.split(), help=says, metavar=metavar, count=count, show_default=False)


def argument(metavar: str, says: str) -> Any:
    """An argument whose default is not shown."""
    return typer.Argument(metavar=metavar, help=says, show_default=False)


def examples(lines: tuple[str, ...], codes: str = "") -> str:
    """Examples and exit codes below a command's help, kept as they are broken here."""
    text = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
    return f"{text}\n\n{codes}" if codes else text


def group(says: str, lines: tuple[str, ...], codes: str = "") -> typer.Typer:
    """A command of commands; its help ends with `examples`."""
    return typer.Typer(help=says, epilog=examples(lines, codes), no_args_is_help=True, rich_markup_mode=None)


Graph = Annotated[
    str | None,
    argument(
        "GRAPH",
        "module:attribute, file.py:attribute or langgraph.json:name; default: the graph in the settings.",
    ),
]
Run = Annotated[Path | None, argument("RUN", "A run directory (default: the newest).")]
Tasks = Annotated[Path | None, option("--tasks", "Tasks file: one JSON object per line.")]
Buffer = Annotated[
    str | None,
    option("--buffer", "Recordings: an SQLite file, or an address (weaviate://host?tenant=shop).", "FILE"),
]
Select = Annotated[
    str | None, option("--select -k", "Only tasks whose names match: 'refund and not big'.", "EXPRESSION")
]
Tenant = Annotated[str | None, option("--tenant", "Use the recordings of this tenant.")]
Set = Annotated[list[str] | None, option("--set", "Any setting: --set simulate.concurrency=4.", "KEY=VALUE")]
Resume = Annotated[Path | None, option("--resume", "Continue the run in this directory.", "RUN")]
Policy = Annotated[
    str | None,
    option(
        "--policy",
        "Model directory (with policy.urls: served name) that answers in place of the agent's models.",
        "DIR",
    ),
]
StartPolicy = Annotated[Path | None, option("--policy", "Model directory to start from.", "DIR")]
Output = Annotated[
    list[str] | None,
    option(
        "--output -o", "Write a report: .xml (JUnit), .md, .html or .json; md:FILE appends to FILE.", "FILE"
    ),
]
Verbose = Annotated[int, option("--verbose -v", "Show every episode; -vv: cut no text.", count=True)]
Yes = Annotated[bool, option("--yes -y", "Do not ask for confirmation: real tools run.")]
AsJson = Annotated[bool, option("--json", "Print one JSON object and nothing else.")]
CONFIG: ContextVar[Path | None] = ContextVar("dreamgym_kit_config", default=None)
"""The settings file that `--config` names; None: the nearest `dreamgym.toml`."""
OLD_FLAGS: Mapping[str, str] = {
    "--abstain": "--set simulate.on_unanswered=VALUE",
    "--address": "--set workers.address=VALUE",
    "--against": "--baseline",
    "--back": "deploy rollback",
    "--batch": "--set distill.batch_size=VALUE",
    "--beta": "--set train.beta=VALUE",
    "--bf16": "--set distill.bf16=true",
    "--buffer": "--set buffer=VALUE",
    "--calls": "--max-calls | --set budget.max_calls=VALUE",
    "--concurrency": "--set simulate.concurrency=VALUE",
    "--crawl": "the command crawl",
    "--curriculum": "--set curriculum.enabled=true",
    "--dev": "--set serve.dev=true",
    "--draft": "rules draft",
    "--engine": "--set workers.backend=VALUE",
    "--eval-every": "--set train.eval_every=VALUE",
    "--eval-n": "--set train.eval_n=VALUE",
    "--eval-tasks": "--set train.eval_tasks=VALUE",
    "--evaluated": "--evaluation",
    "--explain": "rules show TOOL",
    "--fail-on-findings": "--fail-on critical | --set gate.fail_on=critical",
    "--faults": "--set evaluate.faults=VALUE | --set train.faults=VALUE",
    "--gate-contradictions": "--set gate.max_contradictions=VALUE",
    "--gate-finding": "--fail-on | --set gate.fail_on=VALUE",
    "--gate-only": "--preflight-only",
    "--gate-seconds": "--set gate.max_seconds=VALUE",
    "--gate-success": "--min-pass-rate | --set gate.min_pass_rate=VALUE",
    "--gate-success-low": "--set gate.min_pass_rate_low=VALUE",
    "--gate-undetermined": "--max-inconclusive | --set gate.max_inconclusive=VALUE",
    "--gate-usd": "--set gate.max_usd=VALUE",
    "--html": "-o FILE.html | view; or export -o FILE.html",
    "--into": "--registry",
    "--judge-from": "gone",
    "--judge-tasks": "gone",
    "--junit": "-o FILE.xml | export -o FILE.xml",
    "--last": "the default: leave RUN out",
    "--leave-out": "--set distill.leave_out=VALUE",
    "--limit": "gone",
    "--lora": "--lora-rank | --set train.lora_rank=VALUE | --set serve.lora_rank=VALUE",
    "--lora-rank": "--set train.lora_rank=VALUE | --set serve.lora_rank=VALUE",
    "--loss": "--set train.loss_type=VALUE",
    "--lr": "--set train.lr=VALUE",
    "--markdown": "-o md:FILE | export -o md:FILE",
    "--max": "--set 'gate.max_calls_per_tool={\"TOOL\": 1}'",
    "--max-calls-per-tool": "--set 'gate.max_calls_per_tool={\"TOOL\": 1}'",
    "--max-contradictions": "--set gate.max_contradictions=VALUE",
    "--max-errors": "--set gate.max_errors=VALUE",
    "--max-inconclusive": "--set gate.max_inconclusive=VALUE",
    "--max-seconds": "--set gate.max_seconds=VALUE",
    "--max-tokens": "--set distill.max_tokens=VALUE",
    "--max-usd": "--set gate.max_usd=VALUE",
    "--min-pass-rate": "--set gate.min_pass_rate=VALUE",
    "--min-pass-rate-low": "--set gate.min_pass_rate_low=VALUE",
    "--must-be": "--require",
    "--n": "--repeats | --group-size | --set train.group_size=VALUE",
    "--no-reasoning": "--set distill.reasoning=false",
    "--open": "view",
    "--otel": "export -o otel:FILE|URL",
    "--overlap": "--set train.staleness=1",
    "--per-second": "--rate | --set s2r.rate=VALUE",
    "--per-step": "--tasks-per-step | --set train.tasks_per_step=VALUE",
    "--pieces": "--set distill.micro_batches=VALUE",
    "--plain": "not needed: progress is plain where stderr is no terminal",
    "--plots": "export -o png:DIR",
    "--policy": "evaluate --policy",
    "--policy-b": "evaluate --policy B --baseline A",
    "--ready-within": "--set serve.ready_within_s=VALUE",
    "--recursion": "--set limits.recursion_limit=VALUE",
    "--report-to": "--set train.report_to=VALUE",
    "--runs": "--set runs=VALUE",
    "--save-every": "--set train.save_every=VALUE | --set distill.save_every=VALUE",
    "--scale-out": "--set serve.scale_out=true",
    "--seconds": "--set limits.max_seconds=VALUE",
    "--seed": "--set train.seed=VALUE | --set simulate.seed=VALUE",
    "--settings": "dreamgym-kit --config FILE COMMAND",
    "--shard": "--set shard=I/N",
    "--steps": "--set limits.max_tool_calls=VALUE",
    "--tenant": "--set tenant=VALUE",
    "--threshold": "--set simulate.min_confidence=VALUE",
    "--to": "export -o FILE.html",
    "--toml": "rules export",
    "--tool-parser": "--set serve.tool_parser=VALUE",
    "--trust-guesses": "--allow-guessed",
    "--usd": "--set budget.max_usd=VALUE",
    "--verify": "s2r verify RUN",
    "--workers": "--set workers.count=VALUE",
    "--world": "--environment",
}
"""Flags of earlier versions; the first replacement that a command has, or reads, is its own."""
_EPISODES = ("simulate.concurrency", "limits", "budget", "workers", "tenant", "runs")
_DREAMS = (*_EPISODES, "simulate")
_READS: Mapping[str, tuple[str, ...]] = {
    "record": (*_EPISODES, "shard"),
    "simulate": (*_DREAMS, "shard", "gate"),
    "evaluate": (*_DREAMS, "shard", "gate", "evaluate", "buffer"),
    "train": (*_DREAMS, "train", "curriculum"),
    "s2r": (*_DREAMS, "train", "-train.faults", "-train.eval_every", "-train.eval_n", "curriculum", "s2r"),
    "experience ablate": (*_DREAMS, "train", "curriculum"),
    "experience train": ("distill",),
    "crawl": ("tenant", "runs"),
    "sandbox": ("runs", "buffer"),
    "serve": ("serve",),
    "doctor": ("workers", "tenant", "runs"),
    "experience annotate": ("simulate.concurrency", "budget"),
    "experience eval": ("simulate.min_confidence",),
    "rules draft": ("budget",),
    **dict.fromkeys(("report", "view", "export", "runs list"), ("runs",)),
}
"""The sections and keys among `OLD_FLAGS` that each command reads; with a dash: those that it does not."""
OLD_COMMANDS: Mapping[str, str] = {
    "ablate": "experience ablate",
    "buffer rules": "rules show, rules export or rules draft",
    "deploy --back": "deploy rollback",
}
"""Commands of earlier versions, and what to type now."""
_DEPLOY = ("promote", "rollback", "status", "--help")
_OLD_VERDICTS = {"success": "passed", "failure": "failed", "undetermined": "inconclusive"}


@dataclass(frozen=True, slots=True)
class Given:
    """What a command line says of settings.

    Attributes:
        graph: as it was typed; None: the settings' own.
        flags: what was typed, by key; None: nothing.
        assigned: KEY=VALUE of each `--set`.
    """

    graph: str | None = None
    flags: Mapping[str, object] = field(default_factory=dict)
    assigned: Sequence[str] = ()

    def settings(self, policy: Path | None = None) -> "Settings":
        """The settings that hold for this command line, with `policy` as the directory of its model.

        Raises:
            UserError: names the flag, or all variables and `--set` whose values cannot be used.
        """
        from dreamgym_kit.settings.load import graph_from_here, laid_over, load_settings

        start = None
        graph = graph_from_here(self.graph) if self.graph is not None else None
        if graph is not None:
            place = Path(graph.rpartition(":")[0] or graph)
            start = place.parent if place.is_absolute() else None
        settings = load_settings(start, file=CONFIG.get(), assignments=self.assigned)
        if graph is not None and not self.assigns("graph"):
            settings = replace(settings, graph=graph)
        if policy is not None and not self.assigns("policy.model"):
            settings = replace(settings, policy=replace(settings.policy, model=str(policy.absolute())))
        for key, value in self.flags.items():
            if value is not None and value is not False and value != []:
                given = str(value) if isinstance(value, Path) else value
                settings = laid_over(settings, _flag(key), tuple(key.split(".")), given)
        return settings

    def overlaps(self, settings: "Settings") -> bool:
        """Whether the command line itself asks for several episodes at once: real tools need not bear it."""
        return (settings.simulate.concurrency > 1 and self.assigns("simulate.concurrency")) or (
            settings.workers.count > 1 and self.assigns("workers.count")
        )

    def assigns(self, key: str) -> bool:
        """Whether `--set` or its flag gives this key."""
        return self.flags.get(key) is not None or any(
            assignment.partition("=")[0] == key for assignment in self.assigned
        )

    def command(self, name: str, *more: str, dropped: Sequence[str] = ()) -> str:
        """Another command with the same graph and flags, but for `dropped`, to paste into a shell."""
        typed = [part for flag in self.typed() if flag[0] not in dropped for part in flag if part]
        config = CONFIG.get()
        first = ["dreamgym-kit", *(["--config", str(config)] if config is not None else []), name]
        return " ".join(map(pasted, [*first, *([self.graph] if self.graph else []), *typed, *more]))

    def typed(self) -> Iterator[tuple[str, str]]:
        """The flags of settings and their values, as they can be typed again."""
        for key, value in self.flags.items():
            if value not in (None, False, [], ()):
                for item in value if isinstance(value, (list, tuple)) else [value]:
                    yield _flag(key), "" if item is True else str(item)
        for item in self.assigned:
            yield "--set", item


def keyed(*keys: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these settings, `GRAPH` and `--set`, as its first argument.

    Args:
        keys: "simulate.repeats"; the flag is the last part of the key.
    """

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        return _Keyed(command, keys)

    return wrap


class _Keyed:
    """A command with options of settings; they are made when its parameters are asked for."""

    def __init__(self, command: Callable[..., None], keys: Sequence[str]) -> None:
        self._command, self._keys = command, keys
        self.__doc__, self.__name__ = command.__doc__, command.__name__
        self.flags = {key: _flag(key) for key in keys}

    @cached_property
    def _added(self) -> dict[str, inspect.Parameter]:
        return {key: _parameter(key) for key in self._keys}

    @cached_property
    def __signature__(self) -> inspect.Signature:
        own = list(inspect.signature(self._command).parameters.values())[1:]
        hints = get_type_hints(self._command, include_extras=True)
        first, last = _plain("graph", Graph), _plain("assigned", Set)
        typed_too = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
            for parameter in own
        ]
        return inspect.Signature([first, *self._added.values(), last, *typed_too])

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
        return {name: parameter.annotation for name, parameter in self.__signature__.parameters.items()}

    def __call__(self, **typed: Any) -> None:
        flags = {key: typed.pop(parameter.name) for key, parameter in self._added.items()}
        graph, assigned = typed.pop("graph"), typed.pop("assigned")
        self._command(Given(graph, flags, tuple(assigned or ())), **typed)


def _plain(name: str, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _flag(key: str) -> str:
    return f"--{key.rpartition('.')[2].replace('_', '-')}"


def _parameter(key: str) -> inspect.Parameter:
    """The option of a setting, as text: its declaration's reader holds it to type, bounds and choices."""
    from dreamgym_kit.settings.schema import Settings, declared, kind_of

    section, _, name = key.rpartition(".")
    declaration = declared(kind_of([section]) if section else Settings)[name]
    kind = kind_of(key.split("."))
    typed: Any = bool if kind is bool else list[str] if get_origin(kind) is tuple else str
    if declaration.among:
        metavar = f"[{'|'.join(declaration.among)}]"
    elif declaration.form:
        metavar = {"path": "FILE", "reference": "MODULE:NAME"}[declaration.form]
    else:
        metavar = {int: "N", float: "SHARE" if declaration.most == 1 else "NUMBER"}.get(kind, "TEXT")
    option = typer.Option(
        *(_flag(key), *declaration.short.split()),
        help=_help(key, declaration),
        metavar=None if kind is bool else metavar,
        show_default=False,
    )
    return _plain(name, Annotated[typed | None, option])


def _help(key: str, declaration: "Key") -> str:
    """What a setting is, its key, and its default where it has one."""
    from dreamgym_kit.settings.schema import Settings

    default: Any = reduce(getattr, key.split("."), Settings())
    usual = f", default {'false' if default is False else default}" if default not in (None, ()) else ""
    return f"{declaration.says[:1].upper()}{declaration.says[1:]}. ({key}{usual})"


def settings_for(graph: str | None = None, **flags: object) -> "Settings":
    """The settings that hold for this graph and these flags, by key; None: the flag was not typed."""
    return Given(graph, flags).settings()


def parted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """What stands before the name of the command, and the rest; "s2r verify" is one name."""
    at = 0
    while at < len(arguments) and arguments[at].partition("=")[0] == "--config":
        at += 1 if "=" in arguments[at] else 2
    before, left = list(arguments[:at]), list(arguments[at:])
    return before, ["s2r verify", *left[2:]] if left[:2] == ["s2r", "verify"] else left


def refuse_old(
    arguments: Sequence[str],
    flags: Mapping[str, Sequence[str]],
    every: Callable[[], Mapping[str, Sequence[str]]],
) -> None:
    """Refuse all commands and flags of an earlier version, each with its replacement.

    Args:
        arguments: the command line.
        flags: those that its command has, by the command's name.
        every: the flags of all commands.

    Raises:
        UserError: one was given.
    """
    arguments = arguments[: [*arguments, "--"].index("--")]  # what follows is of another program
    typed = " ".join(arguments[:2])
    for old, command in OLD_COMMANDS.items():
        if f"{typed} ".startswith(f"{old} "):
            raise UserError(f"{old} is now {command}.")
    if arguments[:1] == ["deploy"] and arguments[1:2] and arguments[1] not in _DEPLOY:
        raise UserError(f"deploy {arguments[1]} is now deploy promote {arguments[1]}.")
    name = next((name for name in (typed, *arguments[:1]) if name in flags), "")
    words = dict.fromkeys(word.partition("=")[0] for word in arguments if word.startswith("--"))
    old_flags = [word for word in words if word in OLD_FLAGS and word not in flags[name]]
    problems = [f"{old} {_typed_now(old, name, flags[name]) or _belongs(old, every())}." for old in old_flags]
    for argument, after in zip(arguments, [*arguments[1:], ""], strict=False):
        flag, equals, value = argument.partition("=")
        verdict = _OLD_VERDICTS.get(value if equals else after)
        if flag == "--only" and verdict is not None:
            problems.append(f"--only {value or after} is now --only {verdict}.")
    if problems:
        raise UserError(" ".join(problems))


def _typed_now(old: str, command: str, flags: Sequence[str]) -> str | None:
    """Say what replaces a flag of an earlier version in this command; None: it is not one of its flags."""
    for now in OLD_FLAGS[old].split(" | "):
        if now.startswith("--set "):
            key = now.removeprefix("--set ").strip("'").partition("=")[0]
            reads = _READS.get(command, ())
            if {key, key.partition(".")[0]} & {*reads} and f"-{key}" not in reads:
                variable = f"DREAMGYM_{key.replace('.', '_').upper()}"
                return f"is now {now if '--set' in flags else f'the setting {key}, or {variable}=VALUE'}"
        elif now.partition(" ")[0] in flags or not now.startswith("-"):
            return "is gone" if now == "gone" else f"is now {now}"
    return None


def _belongs(old: str, every: Mapping[str, Sequence[str]]) -> str:
    """Say which commands a flag of an earlier version is for, and what to type there."""
    places: dict[str, list[str]] = {}
    for command, flags in every.items():
        now = old if old in flags else (_typed_now(old, command, flags) or "").removeprefix("is now ")
        if now:
            places.setdefault(now, []).append(command)
    return "belongs to " + "; ".join(f"{', '.join(names)} ({now})" for now, names in places.items())


def shard_of(settings: "Settings") -> "Shard | None":
    """The part of the tasks that the settings name."""
    from dreamgym_kit.rollout.jobs import shard_from

    return shard_from(settings.shard) if settings.shard is not None else None


def graph_of(settings: "Settings", command: str) -> str:
    """The graph to use, or the error that says how to name one."""
    if settings.graph is None:
        raise UserError(
            f"no graph: name one (dreamgym-kit {command} my_agent:graph), or write settings for it "
            "(dreamgym-kit init my_agent:graph)."
        )
    return settings.graph


def selected_tasks(settings: "Settings", command: str, expression: str | None) -> "list[Task]":
    """The tasks of the tasks file, or those that `-k` names.

    Raises:
        UserError: there is no file, it cannot be used, or no task is left.
    """
    from dreamgym_kit.rollout.tasks import read_tasks, select_tasks

    tasks = read_tasks(tasks_of(settings, command))
    return tasks if expression is None else select_tasks(tasks, expression)


def tasks_of(settings: "Settings", command: str) -> Path:
    """The tasks file to use, or the error that says how to name one."""
    if settings.tasks is None:
        raise UserError(
            f"no tasks: name a file (dreamgym-kit {command} --tasks tasks.jsonl), or set tasks in "
            f"{settings.where()}. One JSON object a line, for example: "
            '{"id": "hello-1", "input": "What can you do?"}'
        )
    return settings.resolve(settings.tasks)
