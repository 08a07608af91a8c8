"""`dreamgym-kit rules draft`: tool models drafted by the endpoint, kept where recordings agree."""

import asyncio
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dreamgym_kit.cli.output import say, say_json, say_steps, tell
from dreamgym_kit.cli.running import inspected, served_model
from dreamgym_kit.errors import BudgetExceeded, EndpointError, NotSerializable, UnknownName
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint
    from dreamgym_kit.dream.state.evidence import Found
    from dreamgym_kit.dream.state.history import RecordedEpisode
    from dreamgym_kit.settings.schema import Settings
    from dreamgym_kit.settings.tool_models import ToolModelSettings
    from dreamgym_kit.types import ToolSpec

_SHOWN = 5  # recorded answers that a shape is made from


@dataclass
class Drafted:
    """What came of drafting."""

    passed: "dict[str, ToolModelSettings]" = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)  # tool -> why
    dropped: dict[str, list[str]] = field(default_factory=dict)  # tool -> parts and what contradicts them
    stopped: str = ""  # why not all tools were asked about
    tokens: int = 0
    usd: float = 0.0


def draft_tools(settings: "Settings", only: str | None, *, with_source: bool, as_json: bool) -> None:
    """Draft the tools that settings do not declare, or the one that is named, and keep what holds."""
    from dreamgym_kit.cli import options
    from dreamgym_kit.cli.rules import recorded
    from dreamgym_kit.rollout.atomic_files import write_atomically
    from dreamgym_kit.settings.load import drafts_file, read_drafts
    from dreamgym_kit.settings.render import render_drafts

    spec = options.graph_of(settings, "rules draft")
    specs = inspected(spec, settings).tools
    wanted = _wanted(settings, specs, only)
    episodes = recorded(settings, needed=False)
    endpoint = served_model(settings)
    try:
        drafts, done = asyncio.run(
            _draft(endpoint, settings, wanted, specs, episodes, with_source=with_source)
        )
        done.tokens = endpoint.counts.prompt_tokens + endpoint.counts.completion_tokens
        done.usd = endpoint.counts.cost_usd
    finally:
        endpoint.close()
    _hold(drafts, episodes, specs, done)
    path = drafts_file(settings)
    before = {
        name: model for name, model in read_drafts(path).items() if name not in {tool.name for tool in wanted}
    }
    write_atomically(path, render_drafts({**before, **done.passed}).encode("utf-8"))
    _show(done, str(path), as_json=as_json)


def _wanted(settings: "Settings", specs: "Sequence[ToolSpec]", only: str | None) -> "list[ToolSpec]":
    tools = [spec for spec in specs if not spec.effect.runs_in_dream]
    if only is not None:
        named = [spec for spec in tools if spec.name == only]
        if not named:
            known = [spec.name for spec in tools]
            raise UnknownName("tool", only, known=known, source="--explain", where="what a dream answers")
        return named
    declared = {name for name, tool in settings.tools.items() if tool.model is not None}
    return [spec for spec in tools if spec.name not in declared]


async def _draft(
    endpoint: "OpenAIEndpoint",
    settings: "Settings",
    wanted: "Sequence[ToolSpec]",
    specs: "Sequence[ToolSpec]",
    episodes: "Sequence[RecordedEpisode]",
    *,
    with_source: bool,
) -> "tuple[dict[str, ToolModelSettings], Drafted]":
    from dreamgym_kit.chat import ChatRequest
    from dreamgym_kit.dream.drafting import draft
    from dreamgym_kit.rollout.budgets import BudgetedEndpoint, RunBudget
    from dreamgym_kit.types import Effect

    conf = settings.experience
    budget = RunBudget(settings.budget.max_calls, settings.budget.max_usd)
    budget.count_earlier(calls=0, usd=endpoint.counts.cost_usd)  # the question whether it answers at all
    budgeted = BudgetedEndpoint(endpoint, budget, calls=1)
    reads = [spec for spec in specs if spec.effect is Effect.READ]
    sampling = ChatRequest(
        (),
        max_tokens=max(conf.max_output, 2_048),
        temperature=conf.temperature,
        top_p=conf.top_p,
        seed=settings.simulate.seed,
    )
    author = (
        f"{conf.model} at {conf.urls[0].partition('://')[2].partition('/')[0]}, {datetime.now(UTC):%Y-%m-%d}"
    )
    shapes, done = _shapes(episodes), Drafted()
    drafts: dict[str, ToolModelSettings] = {}
    for spec in wanted:
        source = _source(spec.name) if with_source else None
        others = [read for read in reads if read.name != spec.name]
        try:
            model = await draft(budgeted, spec, others, shapes, source=source, sampling=sampling)
        except BudgetExceeded as spent:
            done.stopped = str(spent)
            break
        except (EndpointError, NotSerializable) as error:
            done.unusable[spec.name] = str(error)
        else:
            drafts[spec.name] = replace(model, said_by=author)
    return drafts, done


def _shapes(episodes: "Sequence[RecordedEpisode]") -> dict[str, object]:
    """By tool, what a recorded answer looks like: the one with most in it, of the first few."""
    from dreamgym_kit.dream.drafting import shape_of
    from dreamgym_kit.dream.state.values import spell
    from dreamgym_kit.dream.state.wrapping import unwrapped

    seen: dict[str, list[object]] = {}
    for episode in episodes:
        for step in episode.steps:
            if not step.failed and len(seen.setdefault(step.tool, [])) < _SHOWN:
                seen[step.tool].append(shape_of(unwrapped(step.seen)))
    return {tool: max(shapes, key=lambda shape: len(spell(shape))) for tool, shapes in seen.items() if shapes}


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


def _hold(
    drafts: "dict[str, ToolModelSettings]",
    episodes: "Sequence[RecordedEpisode]",
    specs: "Sequence[ToolSpec]",
    done: Drafted,
) -> None:
    """Hold drafts against the recordings, and keep the parts that nothing contradicts."""
    from dreamgym_kit.dream.state.evidence import evidence, uncontradicted
    from dreamgym_kit.dream.state.mining import mine
    from dreamgym_kit.dream.state.stated import DRAFTED, StatedModel
    from dreamgym_kit.settings.tool_models import ToolModelSettings

    writes = {spec.name for spec in specs if spec.effect.changes_environment}
    stated = {
        tool: StatedModel(tool, model, source=DRAFTED, writes=tool in writes)
        for tool, model in drafts.items()
    }
    tested: Found = evidence(mine(episodes, stated), episodes) if episodes else {}
    for tool, model in drafts.items():
        parts = tested.get(tool, {})
        remaining = uncontradicted(model, parts)
        wrong = [f"{part}: {tally.contradiction}" for part, tally in sorted(parts.items()) if tally.wrong]
        if wrong:
            done.dropped[tool] = wrong
        if replace(remaining, said_by=None, views={}) != ToolModelSettings():
            done.passed[tool] = remaining
        elif not wrong:
            done.unusable[tool] = "it says nothing"


def _show(done: Drafted, path: str, *, as_json: bool) -> None:
    if as_json:
        record: dict[str, object] = {"kept": sorted(done.passed), "dropped": done.dropped}
        record |= {"unusable": done.unusable, "stopped": done.stopped or None}
        say_json({**record, "file": path, "tokens": done.tokens, "usd": done.usd})
        return
    for tool, why in done.unusable.items():
        tell(f"no draft of {one_line(tool)}: {one_line(why)}")
    for tool, parts in done.dropped.items():
        for part in parts:
            say(f" dropped  {one_line(tool)} {one_line(part)}")
    say(f" {len(done.passed)} drafts kept in {path}: {one_line(', '.join(sorted(done.passed))) or 'none'}")
    say(f" {done.tokens} tokens, {done.usd:.4f} USD")
    if done.stopped:
        say(f" {done.stopped}; raise it in [budget], and draft the others with --explain TOOL")
    steps = [
        ("Look", "dreamgym-kit rules show", "who says what, and what recordings say of it"),
        ("Agree", "dreamgym.toml", "move the tables of a draft there, and it is believed before recordings"),
    ]
    say_steps(*steps)
