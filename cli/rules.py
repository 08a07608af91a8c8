"""`dreamgym-kit rules`: what is known of tools, who says so, and what the recordings say of it.

`rules draft` has the endpoint's model describe tools; of a draft is kept what no recording contradicts.
"""

import inspect
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import near, say, say_json, say_steps, tell
from dreamgym_kit.cli.running import inspected, served_model
from dreamgym_kit.errors import BudgetExceeded, EndpointError, NotSerializable, UnknownName
from dreamgym_kit.report.sanitize import clean, one_line

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint
    from dreamgym_kit.dream.drafting import ProgramDraft
    from dreamgym_kit.dream.programs.experience import Programs
    from dreamgym_kit.dream.programs.rules_files import ToolRules
    from dreamgym_kit.dream.recorded_episodes import RecordedEpisode
    from dreamgym_kit.settings.buffer_url import Place
    from dreamgym_kit.settings.schema import Settings
    from dreamgym_kit.types import ToolSpec, Transition

_LISTED = 60
_SHOWN = 5  # recorded answers that a shape is made from

EXAMPLES = (
    "dreamgym-kit rules show",
    "dreamgym-kit rules show refund_payment",
    "dreamgym-kit rules export refund_payment > rules/refund_payment.toml",
    "dreamgym-kit rules draft --with-source refund_payment",
)
Tool = Annotated[str | None, options.argument("TOOL", "Only this tool (default: all).")]
WithSource = Annotated[bool, options.option("--with-source", "Also show the tools' source to the model.")]
app = options.group("Show, export or draft tool rules.", EXAMPLES)


@app.command("show")
def show(
    tool: Tool = None,
    buffer: options.Buffer = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> None:
    """Show rules and how often each was right.

    A tool's rules are a program that predicts the outcome of a call, its answer and what a write changes.
    Programs are mined from recordings, read from rules/TOOL.toml, or drafted and used in imagined runs alone.
    Right and wrong count calls in held-out recorded episodes.
    """
    rule_set = _rule_set(buffer, tenant, tool)
    lines = [line for line in rule_set.lines() if line["tool"] in rule_set.tools]
    if as_json:
        calls = sum(len(episode.steps) for episode in rule_set.episodes)
        say_json({"transitions": calls, "rules": lines})
    elif tool is not None:
        _explain(rule_set, lines, tool)
    else:
        _show(lines, rule_set)


@app.command("export")
def export(
    tool: Tool = None,
    buffer: options.Buffer = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> None:
    """Print a tool's program in the format of rules/TOOL.toml.

    Save it there and correct it: the file replaces the mined program, unless a recording contradicts it.
    """
    rule_set = _rule_set(buffer, tenant, tool)
    texts = {name: rule_set.file(name) for name in rule_set.tools}
    text = "\n".join(f"# rules/{name}.toml\n{file}" for name, file in texts.items())
    if as_json:
        say_json({"toml": text})
    else:
        say(text)


@app.command("draft")
def draft(
    tool: Tool = None,
    with_source: WithSource = False,
    buffer: options.Buffer = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> None:
    """Let the LLM draft missing rules.

    It reads schema and docstring. Parts that a recording contradicts are dropped. Drafts are written to
    rules/drafts and answer nothing until you move them to rules.
    """
    import asyncio

    from dreamgym_kit.rollout.atomic_files import write_atomically
    from dreamgym_kit.settings.load import drafts_folder

    settings = options.settings_for(buffer=buffer, tenant=tenant)
    specs = inspected(options.graph_of(settings, "rules draft"), settings).tools
    wanted = _tools_to_draft(settings, specs, tool)
    rows = recorded_rows(settings, needed=False)
    with closing(served_model(settings)) as endpoint:
        drafting = _drafted(endpoint, settings, specs, wanted, rows, with_source=with_source)
        drafts, counts = asyncio.run(drafting), endpoint.counts
    path = drafts_folder(settings)
    path.mkdir(parents=True, exist_ok=True)
    for name, rules in drafts.usable.items():
        write_atomically(path / f"{name}.toml", rules.text.encode("utf-8"))
    tokens = counts.prompt_tokens + counts.completion_tokens
    if as_json:
        record: dict[str, object] = {"kept": sorted(drafts.usable), "dropped": drafts.dropped}
        record |= {"unusable": drafts.unusable, "stopped": drafts.stopped or None}
        say_json({**record, "folder": str(path), "tokens": tokens, "usd": counts.cost_usd})
        return
    for name, why in drafts.unusable.items():
        tell(f"no draft of {one_line(name)}: {one_line(why)}")
    for name, parts in drafts.dropped.items():
        for part in parts:
            say(f" dropped  {one_line(name)} {one_line(part)}")
    names = one_line(", ".join(sorted(drafts.usable))) or "none"
    say(f" {len(drafts.usable)} drafts kept in {path}: {names}")
    say(f" {tokens} tokens, {counts.cost_usd:.4f} USD")
    if drafts.stopped:
        say(f" {drafts.stopped}; raise it in [budget], and draft the others with rules draft TOOL")
    say_steps(
        (
            "Agree",
            f"mv {shlex.quote(near(path))}/TOOL.toml {shlex.quote(near(path.parent))}/",
            "a moved draft answers",
        ),
        ("Look", "dreamgym-kit rules show", "which rules there are, and what recordings say of them"),
    )


@dataclass(frozen=True, slots=True)
class _RuleSet:
    """The rules of the selected tools, and the recordings behind them."""

    programs: "Programs"
    written: "Mapping[str, ToolRules]"
    drafts: "Mapping[str, ProgramDraft]"  # of imagined runs, without what recordings contradict
    episodes: "list[RecordedEpisode]"
    tools: list[str]
    path: "Place"

    def file(self, tool: str) -> str:
        """Return a tool's program as the text of its rules file."""
        from dreamgym_kit.dream.programs.rules_files import as_file

        model = self.programs.model
        if tool not in model.tools:
            return self.drafts[tool].file
        parameters = model.parameters.get(tool)
        program = model.tools[tool]
        arguments = sorted(parameters.names if parameters is not None else program.arguments)
        return as_file(program, arguments, writes=tool in model.writes)

    def lines(self) -> list[dict[str, Any]]:
        """Return a JSON row per program with its held-out counts."""
        model, trust = self.programs.model, self.programs.trust
        against = {rejected.tool: rejected.describe() for rejected in self.programs.rejected}
        lines: list[dict[str, Any]] = []
        for tool in sorted({*model.tools, *self.written}):
            program = model.tools.get(tool)
            right, wrong = trust.of_tool(tool)
            row = {"tool": tool, "kind": "program", "right": right, "wrong": wrong}
            says = program.summary() if program is not None else ""
            source = "declared" if tool in model.declared else "mined"
            lines.append({**row, "source": source, "says": says, "contradiction": against.get(tool, "")})
        for tool, draft in sorted(self.drafts.items()):
            row = {"tool": tool, "kind": "program", "right": 0, "wrong": 0, "source": "drafted"}
            says = draft.rules.program.summary() if draft.file else "nothing that can be used"
            lines.append({**row, "says": says, "contradiction": "; ".join(draft.dropped)})
        return lines


def _rule_set(buffer: str | None, tenant: str | None, tool: str | None) -> _RuleSet:
    from dreamgym_kit.dream.programs.experience import learn
    from dreamgym_kit.dream.programs.rules_files import read_rules
    from dreamgym_kit.dream.recorded_episodes import recordings
    from dreamgym_kit.settings.buffer_url import buffer_of
    from dreamgym_kit.settings.load import rules_folder

    settings = options.settings_for(buffer=buffer, tenant=tenant)
    path = buffer_of(settings)
    written = read_rules(rules_folder(settings))
    drafts = drafts_of(settings)
    rows = recorded_rows(settings, needed=not (written or drafts))
    episodes = recordings(rows)
    programs = learn(episodes, {}, rules=written)
    drafts = {name: draft.against(rows) for name, draft in drafts.items() if name not in written}
    tools = sorted({*programs.model.tools, *drafts})
    if tool is not None and tool not in tools:
        raise UnknownName("tool", tool, known=tools, source=str(path), where="the recordings")
    return _RuleSet(programs, written, drafts, episodes, [tool] if tool is not None else tools, path)


def drafts_of(settings: "Settings") -> "dict[str, ProgramDraft]":
    """The drafted programs that imagined runs keep beside their environments, by tool."""
    from dreamgym_kit.dream.drafting import ProgramDraft
    from dreamgym_kit.dream.environment_facts import DRAFTS, read_book
    from dreamgym_kit.rollout.environment_files import EnvironmentFile, environments_folder, facts_path

    path = facts_path(environments_folder(settings), DRAFTS)
    facts = read_book(EnvironmentFile(path).read()).facts.values() if path.exists() else ()
    return {fact.tool: ProgramDraft.of(fact.tool, fact.content) for fact in facts}


def recorded_rows(settings: "Settings", *, needed: bool = True) -> "list[Transition]":
    """The recordings of the settings' tenant; none where there is no buffer and none is needed."""
    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.settings.buffer_url import buffer_of, is_missing

    place = buffer_of(settings)
    if not needed and is_missing(place):
        return []
    with closing(open_store(place, settings)) as store:
        return list(store.scan(tenant=settings.tenant))


def _explain(rule_set: _RuleSet, lines: "list[dict[str, Any]]", tool: str) -> None:
    for line in lines:
        counts = f"({line['right']} right, {line['wrong']} wrong)"
        say(one_line(f"{line['source']}: {line['kind']} {line['says']} {counts}"))
        if line["contradiction"]:
            say(f"  but {one_line(line['contradiction'])}")
    if lines:
        for text in rule_set.file(tool).splitlines():
            say(f" {clean(text)}")


def _show(lines: "list[dict[str, Any]]", rule_set: _RuleSet) -> None:
    mined = sum(line["source"] == "mined" for line in lines)
    others = "".join(
        f", {count} {label}"
        for source, label in (("declared", "written"), ("drafted", "drafted for imagined runs alone"))
        if (count := sum(line["source"] == source for line in lines))
    )
    say(f" {rule_set.path}: programs for {mined} tools mined from {len(rule_set.episodes)} episodes{others}")
    if not lines:
        say(" Fill  dreamgym-kit record")
        return
    width = max(len("tool"), *(len(one_line(line["tool"])) for line in lines))
    say(f"\n {'tool':{width}}  {'source':8}  {'kind':7}  {'right':>5}  {'wrong':>5}  rule")
    for line in lines[:_LISTED]:
        counts = f"{line['right']:5}  {line['wrong']:5}"
        source = line["source"].partition(" ")[0]
        text = f"{source:8}  {line['kind']:7}  {counts}  {one_line(line['says'])}"
        say(f" {one_line(line['tool']):{width}}  {text}")
    if len(lines) > _LISTED:
        say(f" and {len(lines) - _LISTED} more: --json lists all")
    wrong = sorted({line["tool"] for line in lines if line["contradiction"]})
    if wrong:
        say(f"\n Rejected, or parts of them, see rules show TOOL: {one_line(', '.join(wrong))}")
    say("\n One tool  dreamgym-kit rules show TOOL")
    say(" Correct   dreamgym-kit rules export TOOL > rules/TOOL.toml")


def _tools_to_draft(settings: "Settings", specs: "Sequence[ToolSpec]", only: str | None) -> "list[ToolSpec]":
    """The tools without a rules file, or the one that is named."""
    from dreamgym_kit.settings.load import rules_folder

    tools = {spec.name: spec for spec in specs if not spec.effect.runs_in_dream}
    if only is None:
        written = {file.stem for file in rules_folder(settings).glob("*.toml")}
        return [spec for name, spec in tools.items() if name not in written]
    if only not in tools:
        raise UnknownName("tool", only, known=tools, source="rules draft", where="what a dream answers")
    return [tools[only]]


@dataclass(slots=True)
class _Drafts:
    """Drafts of rules, and what became of the others."""

    usable: "dict[str, ToolRules]" = field(default_factory=dict)  # without what a recording contradicts
    unusable: dict[str, str] = field(default_factory=dict)  # tool -> why
    dropped: dict[str, list[str]] = field(default_factory=dict)  # tool -> parts and what contradicts them
    stopped: str = ""  # why not all tools were asked about


async def _drafted(
    endpoint: "OpenAIEndpoint",
    settings: "Settings",
    specs: "Sequence[ToolSpec]",
    wanted: "Sequence[ToolSpec]",
    rows: "Sequence[Transition]",
    *,
    with_source: bool,
) -> _Drafts:
    """Have the model draft each wanted tool as long as the budget lasts; keep what nothing contradicts."""
    from dreamgym_kit.adapters.langgraph.run.experiences import sampling_of
    from dreamgym_kit.dream.drafting import contradicted, draft, without
    from dreamgym_kit.dream.programs.experience import learn
    from dreamgym_kit.dream.recorded_episodes import recordings
    from dreamgym_kit.rollout.budgets import BudgetedEndpoint, RunBudget
    from dreamgym_kit.types import Effect

    conf, episodes, drafts = settings.experience, recordings(rows), _Drafts()
    budget = RunBudget(settings.budget.max_calls, settings.budget.max_usd)
    budget.count_earlier(calls=0, usd=endpoint.counts.cost_usd)  # the question whether it answers at all
    budgeted = BudgetedEndpoint(endpoint, budget, calls=1)
    sampling = replace(sampling_of(settings), max_tokens=max(conf.max_output, 2_048))
    host = conf.urls[0].partition("://")[2].partition("/")[0]
    author = f"{conf.model} at {host}, {datetime.now(UTC):%Y-%m-%d}"
    mined = learn(episodes, {spec.name: spec for spec in specs}, measured=False).model
    shapes, records = _shapes(episodes), mined.collections.fields
    for spec in wanted:
        reads = [other for other in specs if other.effect is Effect.READ and other is not spec]
        try:
            rules = await draft(
                budgeted,
                spec,
                reads,
                shapes,
                records={kind: sorted(fields) for kind, fields in records.items()},
                source=_source(spec.name) if with_source else None,
                sampling=sampling,
            )
        except BudgetExceeded as spent:
            drafts.stopped = str(spent)
            break
        except (EndpointError, NotSerializable) as error:
            drafts.unusable[spec.name] = str(error)
            continue
        wrong = contradicted(rules, spec.name, rows)
        usable = without(rules, wrong)
        drafts.usable[spec.name] = replace(usable, text=f"# drafted by {author}\n{usable.text}")
        drafts.dropped |= {spec.name: [": ".join(row) for row in wrong.items()]} if wrong else {}
    return drafts


def _shapes(episodes: "Sequence[RecordedEpisode]") -> dict[str, object]:
    """By tool, what a recorded answer looks like: the one with most in it, of the first few."""
    from dreamgym_kit.dream.environment_facts import shape_of
    from dreamgym_kit.dream.json_values import spell
    from dreamgym_kit.dream.observed import unwrapped

    seen: dict[str, list[object]] = {}
    for step in (step for episode in episodes for step in episode.steps if not step.failed):
        if len(seen.setdefault(step.tool, [])) < _SHOWN:
            seen[step.tool].append(shape_of(unwrapped(step.seen)))
    return {tool: max(shapes, key=lambda shape: len(spell(shape))) for tool, shapes in seen.items()}


def _source(tool: str) -> str | None:
    """The source of a tool's own function, where Python has it."""
    from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS

    for candidate in HOLDINGS.tools():
        body = candidate.__dict__.get("func") or candidate.__dict__.get("coroutine")
        if candidate.name == tool and body is not None:
            try:
                return inspect.getsource(body)
            except (OSError, TypeError):
                return None
    return None
