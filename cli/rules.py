"""`dreamgym-kit rules`: what is known of tools, who says so, and what the recordings say of it.

`rules draft` has the endpoint's model describe tools; of a draft is kept what no recording contradicts.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, say_json, say_steps, tell
from dreamgym_kit.cli.running import inspected, served_model
from dreamgym_kit.errors import BudgetExceeded, EndpointError, NotSerializable, UnknownName
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint
    from dreamgym_kit.dream.state.history import RecordedEpisode
    from dreamgym_kit.dream.state.models import ToolModels
    from dreamgym_kit.dream.state.wording import RuleLine
    from dreamgym_kit.settings.buffer_url import Place
    from dreamgym_kit.settings.schema import Settings
    from dreamgym_kit.settings.tool_models import ToolModelSettings
    from dreamgym_kit.types import ToolSpec

_LISTED = 60
_TOLERANCE = 0.1  # share of calls that may contradict a mined part which is offered to a person
_SHOWN = 5  # recorded answers that a shape is made from

EXAMPLES = (
    "dreamgym-kit rules show",
    "dreamgym-kit rules show refund_payment",
    "dreamgym-kit rules export refund_payment > rules.toml",
    "dreamgym-kit rules draft --with-source refund_payment",
)
Tool = Annotated[str | None, options.argument("TOOL", "Only this tool (default: all).")]
WithSource = Annotated[bool, options.option("--with-source", "Also show the tools' source to the model.")]
app = typer.Typer(
    help="Show, export or draft tool rules.",
    epilog=options.examples(EXAMPLES),
    no_args_is_help=True,
)


@app.command("show")
def show(
    tool: Tool = None,
    buffer: options.Buffer = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> None:
    """Show rules and how often each was right.

    Rules say what tools answer, when they fail, what writes change and what they leave unchanged. They are
    declared in settings, inferred from recordings, or drafted. An inferred rule is scored on environments
    that it was not inferred from, the others on all recordings.
    """
    known = _known(buffer, tenant, tool)
    lines = [line for line in _all_lines(known.models, known.episodes) if line.tool in known.tools]
    if as_json:
        say_json({"transitions": known.models.transitions, "rules": [line.to_json() for line in lines]})
    elif tool is not None:
        _explain(known.models, lines, tool)
    else:
        _show(lines, known.path, len(known.episodes))


@app.command("export")
def export(
    tool: Tool = None,
    buffer: options.Buffer = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> None:
    """Print inferred rules as TOML.

    Prints [tools.NAME.model] sections; copy them into dreamgym.toml and correct them.
    """
    known = _known(buffer, tenant, tool)
    text = "\n".join(settings_lines(known.models, known.episodes, known.tools))
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

    It reads schema and docstring. Rules that a recording contradicts are dropped.
    """
    import asyncio

    from dreamgym_kit.rollout.atomic_files import write_atomically
    from dreamgym_kit.settings.load import drafts_file, read_drafts
    from dreamgym_kit.settings.render import render_drafts

    settings = options.settings_for(buffer=buffer, tenant=tenant)
    specs = inspected(options.graph_of(settings, "rules draft"), settings).tools
    wanted = _tools_to_draft(settings, specs, tool)
    episodes = recorded(settings, needed=False)
    with closing(served_model(settings)) as endpoint:
        drafting = _Drafting(specs, episodes)
        asyncio.run(drafting.ask(endpoint, settings, wanted, with_source=with_source))
        counts = endpoint.counts
    drafting.check()
    path = drafts_file(settings)
    names = {spec.name for spec in wanted}
    before = {name: model for name, model in read_drafts(path).items() if name not in names}
    write_atomically(path, render_drafts({**before, **drafting.kept}).encode("utf-8"))
    tokens = counts.prompt_tokens + counts.completion_tokens
    if as_json:
        record: dict[str, object] = {"kept": sorted(drafting.kept), "dropped": drafting.dropped}
        record |= {"unusable": drafting.unusable, "stopped": drafting.stopped or None}
        say_json({**record, "file": str(path), "tokens": tokens, "usd": counts.cost_usd})
        return
    for name, why in drafting.unusable.items():
        tell(f"no draft of {one_line(name)}: {one_line(why)}")
    for name, parts in drafting.dropped.items():
        for part in parts:
            say(f" dropped  {one_line(name)} {one_line(part)}")
    kept = one_line(", ".join(sorted(drafting.kept))) or "none"
    say(f" {len(drafting.kept)} drafts kept in {path}: {kept}")
    say(f" {tokens} tokens, {counts.cost_usd:.4f} USD")
    if drafting.stopped:
        say(f" {drafting.stopped}; raise it in [budget], and draft the others with rules draft TOOL")
    say_steps(
        ("Look", "dreamgym-kit rules show", "who says what, and what recordings say of it"),
        ("Agree", "dreamgym.toml", "move the tables of a draft there, and it is believed before recordings"),
    )


class _Known(NamedTuple):
    """What is known of tools, and of which."""

    models: "ToolModels"
    episodes: "list[RecordedEpisode]"
    tools: list[str]
    path: "Place"


def _known(buffer: str | None, tenant: str | None, tool: str | None) -> _Known:
    from dreamgym_kit.dream.state.mining import mine
    from dreamgym_kit.dream.state.stated import stated_models
    from dreamgym_kit.settings.buffer_url import buffer_of

    settings = options.settings_for(buffer=buffer, tenant=tenant)
    path = buffer_of(settings)
    stated = stated_models(settings)
    episodes = recorded(settings, needed=not stated)
    models = mine(episodes, stated)
    known = sorted({name for name, _ in models.answers} | set(stated))
    if tool is not None and tool not in known:
        raise UnknownName("tool", tool, known=known, source=str(path), where="the recordings")
    return _Known(models, episodes, [tool] if tool is not None else known, path)


def recorded(settings: "Settings", *, needed: bool = True) -> "list[RecordedEpisode]":
    """The recorded episodes of the settings' tenant; none where there is no buffer and none is needed."""
    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.dream.state.history import recordings
    from dreamgym_kit.settings.buffer_url import buffer_of, is_missing

    place = buffer_of(settings)
    if not needed and is_missing(place):
        return []
    with closing(open_store(place, settings)) as store:
        return recordings(store.scan(tenant=settings.tenant))


def settings_lines(
    models: "ToolModels", episodes: "Sequence[RecordedEpisode]", tools: Sequence[str]
) -> list[str]:
    """What was mined of tools, as tables of dreamgym.toml, each part with its evidence as a comment."""
    from dreamgym_kit.dream.state.evidence import evidence, uncontradicted
    from dreamgym_kit.dream.state.stated import StatedModel
    from dreamgym_kit.dream.state.stating import as_stated
    from dreamgym_kit.settings.render import render_model
    from dreamgym_kit.settings.tool_models import as_data

    mined = {tool: model for tool in tools if (model := as_stated(models, tool)) is not None}
    stated = {tool: StatedModel(tool, model, writes=tool in models.writes) for tool, model in mined.items()}
    counts = evidence(models, episodes, stated)
    lines: list[str] = []
    for tool, model in mined.items():
        remaining = uncontradicted(model, counts[tool], tolerance=_TOLERANCE)
        if not as_data(replace(remaining, fresh={}, views={})):
            continue
        parts = (f"{part} {row.right} right {row.wrong} wrong" for part, row in sorted(counts[tool].items()))
        lines.append(f"# {one_line(tool)}, mined: {one_line(', '.join(parts)) or 'no recording tells'}")
        lines += render_model(tool, remaining)
    return lines


def _all_lines(models: "ToolModels", episodes: "Sequence[RecordedEpisode]") -> "list[RuleLine]":
    from dreamgym_kit.dream.state.evidence import evidence
    from dreamgym_kit.dream.state.stated_wording import stated_lines
    from dreamgym_kit.dream.state.wording import rule_lines

    stated = stated_lines(models, evidence(models, episodes)) if models.stated else []
    return [*stated, *rule_lines(models)]


def _explain(models: "ToolModels", lines: "list[RuleLine]", tool: str) -> None:
    from dreamgym_kit.dream.state.wording import explain

    for line in lines:
        if line.source != "mined":
            say(one_line(f"{line.source}: {line.kind} {line.says} ({line.right} right, {line.wrong} wrong)"))
            if line.contradiction:
                say(f"  but {one_line(line.contradiction)}")
    for text in explain(models, tool):
        say(one_line(text))


def _show(lines: "list[RuleLine]", path: "Place", episodes: int) -> None:
    mined = sum(line.source == "mined" for line in lines)
    others = f", {len(lines) - mined} stated" if mined < len(lines) else ""
    say(f" {path}: {mined} rules mined from {episodes} episodes{others}")
    if not lines:
        say(" Fill  dreamgym-kit record")
        return
    shown = [line for line in lines if line.kind != "keeps" or line.source != "mined"]
    width = max(len("tool"), *(len(one_line(line.tool)) for line in lines))
    head = f"{'tool':{width}}  {'source':8}  {'kind':7}  {'right':>5}  {'wrong':>5}  {'worlds':>6}  rule"
    say(f"\n {head}")
    for line in shown[:_LISTED]:
        counts = f"{line.right:5}  {line.wrong:5}  {line.worlds or '-':>6}"
        source = line.source.partition(" ")[0]
        text = f"{source:8}  {line.kind:7}  {counts}  {one_line(line.says)}"
        say(f" {one_line(line.tool):{width}}  {text}")
    rest = len(lines) - len(shown[:_LISTED])
    if rest:
        say(f" and {rest} more, most of them reads that a write leaves alone: --json lists all")
    wrong = sorted({line.tool for line in lines if line.contradiction and line.source.startswith("declared")})
    if wrong:
        say(f"\n Contradicted by recordings, see rules show TOOL: {one_line(', '.join(wrong))}")
    say("\n One tool  dreamgym-kit rules show TOOL")
    say(" Correct   dreamgym-kit rules export TOOL   as tables for dreamgym.toml")


def _tools_to_draft(settings: "Settings", specs: "Sequence[ToolSpec]", only: str | None) -> "list[ToolSpec]":
    """The tools that settings do not declare, or the one that is named."""
    tools = {spec.name: spec for spec in specs if not spec.effect.runs_in_dream}
    if only is None:
        declared = {name for name, tool in settings.tools.items() if tool.model is not None}
        return [spec for name, spec in tools.items() if name not in declared]
    if only not in tools:
        raise UnknownName("tool", only, known=tools, source="rules draft", where="what a dream answers")
    return [tools[only]]


@dataclass
class _Drafting:
    """Drafts of tool models, and what became of them."""

    specs: "Sequence[ToolSpec]"
    episodes: "Sequence[RecordedEpisode]"
    drafts: "dict[str, ToolModelSettings]" = field(default_factory=dict)
    kept: "dict[str, ToolModelSettings]" = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)  # tool -> why
    dropped: dict[str, list[str]] = field(default_factory=dict)  # tool -> parts and what contradicts them
    stopped: str = ""  # why not all tools were asked about

    async def ask(
        self,
        endpoint: "OpenAIEndpoint",
        settings: "Settings",
        wanted: "Sequence[ToolSpec]",
        *,
        with_source: bool,
    ) -> None:
        """Have the model draft each of the tools, as long as the budget lasts."""
        from datetime import UTC, datetime

        from dreamgym_kit.chat import ChatRequest
        from dreamgym_kit.dream.drafting import draft
        from dreamgym_kit.rollout.budgets import BudgetedEndpoint, RunBudget
        from dreamgym_kit.types import Effect

        conf = settings.experience
        budget = RunBudget(settings.budget.max_calls, settings.budget.max_usd)
        budget.count_earlier(calls=0, usd=endpoint.counts.cost_usd)  # the question whether it answers at all
        budgeted = BudgetedEndpoint(endpoint, budget, calls=1)
        sampling = ChatRequest(
            (),
            max_tokens=max(conf.max_output, 2_048),
            temperature=conf.temperature,
            top_p=conf.top_p,
            seed=settings.simulate.seed,
        )
        host = conf.urls[0].partition("://")[2].partition("/")[0]
        author = f"{conf.model} at {host}, {datetime.now(UTC):%Y-%m-%d}"
        shapes = _shapes(self.episodes)
        for spec in wanted:
            source = _source(spec.name) if with_source else None
            reads = [other for other in self.specs if other.effect is Effect.READ and other is not spec]
            try:
                model = await draft(budgeted, spec, reads, shapes, source=source, sampling=sampling)
            except BudgetExceeded as spent:
                self.stopped = str(spent)
                return
            except (EndpointError, NotSerializable) as error:
                self.unusable[spec.name] = str(error)
            else:
                self.drafts[spec.name] = replace(model, said_by=author)

    def check(self) -> None:
        """Compare the drafts with the recordings, and keep the parts that nothing contradicts."""
        from dreamgym_kit.dream.state.evidence import Found, evidence, uncontradicted
        from dreamgym_kit.dream.state.mining import mine
        from dreamgym_kit.dream.state.stated import DRAFTED, StatedModel
        from dreamgym_kit.settings.tool_models import ToolModelSettings

        writes = {spec.name for spec in self.specs if spec.effect.changes_environment}
        stated = {
            tool: StatedModel(tool, model, source=DRAFTED, writes=tool in writes)
            for tool, model in self.drafts.items()
        }
        tested: Found = evidence(mine(self.episodes, stated), self.episodes) if self.episodes else {}
        for tool, model in self.drafts.items():
            parts = tested.get(tool, {})
            remaining = uncontradicted(model, parts)
            wrong = [f"{part}: {tally.contradiction}" for part, tally in sorted(parts.items()) if tally.wrong]
            if wrong:
                self.dropped[tool] = wrong
            if replace(remaining, said_by=None, views={}) != ToolModelSettings():
                self.kept[tool] = remaining
            elif not wrong:
                self.unusable[tool] = "it says nothing"


def _shapes(episodes: "Sequence[RecordedEpisode]") -> dict[str, object]:
    """By tool, what a recorded answer looks like: the one with most in it, of the first few."""
    from dreamgym_kit.dream.drafting import shape_of
    from dreamgym_kit.dream.state.values import spell
    from dreamgym_kit.dream.state.wrapping import unwrapped

    seen: dict[str, list[object]] = {}
    for step in (step for episode in episodes for step in episode.steps if not step.failed):
        if len(seen.setdefault(step.tool, [])) < _SHOWN:
            seen[step.tool].append(shape_of(unwrapped(step.seen)))
    return {tool: max(shapes, key=lambda shape: len(spell(shape))) for tool, shapes in seen.items()}


def _source(tool: str) -> str | None:
    """The source of a tool's own function, where Python has it."""
    import inspect

    from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS

    for candidate in HOLDINGS.tools():
        body = candidate.__dict__.get("func") or candidate.__dict__.get("coroutine")
        if candidate.name == tool and body is not None:
            try:
                return inspect.getsource(body)
            except (OSError, TypeError):
                return None
    return None
