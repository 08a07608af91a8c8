"""`dreamgym-kit rules`: what is known of tools, who says so, and what the recordings say of it."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, say_json
from dreamgym_kit.errors import UnknownName
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.dream.state.history import RecordedEpisode
    from dreamgym_kit.dream.state.models import ToolModels
    from dreamgym_kit.dream.state.wording import RuleLine
    from dreamgym_kit.settings.buffer_url import Place
    from dreamgym_kit.settings.schema import Settings

_LISTED = 60
_TOLERANCE = 0.1  # share of calls that may contradict a mined part which is offered to a person

EXAMPLES = (
    "dreamgym-kit rules show",
    "dreamgym-kit rules show refund_payment",
    "dreamgym-kit rules export refund_payment > rules.toml",
    "dreamgym-kit rules draft --with-source refund_payment",
)
Tool = Annotated[str | None, options.argument("TOOL", "This tool; else all.")]
WithSource = Annotated[bool, options.option("--with-source", "Show the model the tools' source, too.")]
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

    Rules say what tools answer, when they fail, what writes change and what they leave alone: declared in
    settings, inferred from recordings, or drafted. Of inferred ones right and wrong are counted on
    environments that a rule was not made from, of the others on all recordings.
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

    They are printed as [tools.NAME.model] of dreamgym.toml, to take over and correct.
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

    It reads schema and docstring; what a recording contradicts is dropped.
    """
    from dreamgym_kit.cli import drafting  # needs asyncio, which --help does without

    settings = options.settings_for(buffer=buffer, tenant=tenant)
    drafting.draft_tools(settings, tool, with_source=with_source, as_json=as_json)


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
