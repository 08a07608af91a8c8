"""`dreamgym-kit simulate`: the agent runs its tasks, and no real tool can run."""

from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import gate_options, options
from dreamgym_kit.cli.output import say, say_json, tell

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.runs import RunResult

EXAMPLES = (
    "dreamgym-kit simulate my_agent:graph --tasks tasks.jsonl",
    "dreamgym-kit simulate --n 4 --concurrency 16",
    "dreamgym-kit simulate --policy models/nano -n 8",
    "dreamgym-kit simulate --json --fail-on critical > report.json",
    "dreamgym-kit simulate --min-pass-rate 0.9 --forbid 'delete_*' --junit o.xml",
    "dreamgym-kit simulate --resume runs/2026-11-21-desk-7f3a",
)
CODES = (
    "Exit codes: 0 passed; 1 failed (a real call was blocked, or a rule of the gate broke); 2 cannot run; "
    "3 inconclusive; 4 error; 5 no task; 6 a real call was executed; 130 or 143 stopped, can be resumed."
)

OnUnknown = Annotated[
    options.Abstain | None,
    typer.Option(
        "--abstain",
        help="When the dream cannot tell: stop the episode, or let the tool fail.",
        show_default=False,
    ),
]


def command(
    graph: options.Graph = None,
    tasks: options.Tasks = None,
    n: options.Episodes = None,
    concurrency: options.Concurrency = None,
    workers: options.Workers = None,
    engine: options.Engine = None,
    address: options.Address = None,
    shard: options.Share = None,
    seed: options.Seed = None,
    abstain: OnUnknown = None,
    steps: options.Steps = None,
    seconds: options.Seconds = None,
    recursion: options.Recursion = None,
    calls: options.Calls = None,
    usd: options.Usd = None,
    buffer: options.Buffer = None,
    runs: options.Runs = None,
    policy: options.Policy = None,
    tenant: options.Tenant = None,
    settings_file: options.SettingsFile = None,
    resume: options.Resume = None,
    min_pass_rate: gate_options.PassRate = None,
    min_pass_rate_low: gate_options.PassRateLow = None,
    max_inconclusive: gate_options.MaxInconclusive = None,
    max_errors: gate_options.MaxErrors = None,
    max_contradictions: gate_options.Contradictions = None,
    forbid: gate_options.Forbid = None,
    max_calls_per_tool: gate_options.Most = None,
    fail_on: gate_options.FailOn = None,
    max_usd: gate_options.MaxUsd = None,
    max_seconds: gate_options.MaxSeconds = None,
    junit: gate_options.Junit = None,
    markdown: gate_options.Markdown = None,
    plain: options.Plain = False,
    as_json: options.AsJson = False,
) -> None:
    """Dry-run an agent: its tasks are run, a dream answers every tool call, no real tool runs.

    Shows what it would have done, what to look at first, and how much of it rests on recordings.
    """
    overrides = {
        "tasks": tasks,
        "buffer": buffer,
        "runs": runs,
        "tenant": tenant,
        "simulate.repeats": n,
        "simulate.concurrency": concurrency,
        "workers.count": workers,
        "workers.backend": engine.value if engine is not None else None,
        "engine.address": address,
        "simulate.seed": seed,
        "simulate.on_unanswered": abstain.value if abstain is not None else None,
        "limits.max_tool_calls": steps,
        "limits.max_seconds": seconds,
        "limits.recursion_limit": recursion,
        "budget.max_calls": calls,
        "budget.max_usd": usd,
    }
    gate = {
        "min_pass_rate": min_pass_rate,
        "min_pass_rate_low": min_pass_rate_low,
        "max_inconclusive": max_inconclusive,
        "max_errors": max_errors,
        "max_contradictions": max_contradictions,
        "forbid": forbid,
        "max_calls_per_tool": gate_options.most_calls(max_calls_per_tool),
        "fail_on": fail_on,
        "max_usd": max_usd,
        "max_seconds": max_seconds,
    }
    settings = gate_options.with_gate(options.settings_for(graph, settings_file, overrides), gate)
    from dreamgym_kit.adapters.langgraph.run_request import RunRequest
    from dreamgym_kit.adapters.models.policies import opened_policy, with_policy
    from dreamgym_kit.cli.running import carry_out, end, opened_recordings
    from dreamgym_kit.errors import UserError

    settings = with_policy(policy, settings)
    spec, chosen = options.graph_of(settings, "simulate"), options.tasks_of(settings, "simulate")
    with opened_policy(policy, settings) as answers, opened_recordings(settings) as store:
        request = RunRequest(
            graph=spec,
            tasks=chosen,
            settings=settings,
            store=store,
            directory=resume.absolute() if resume is not None else None,
            resume=resume is not None,
            policy=answers,
            shard=options.shard_of(shard),
        )
        result = carry_out(request, plain=plain)
    try:
        gate_options.write_reports(result.summary, result.directory, junit, markdown)
    except UserError as error:
        if not result.summary.executed:  # else there is worse to say than that
            raise
        tell(f"error: {error}")
    _show(result, as_json=as_json)
    end(result.exit_code, dreamt=True)


def _show(result: "RunResult", *, as_json: bool) -> None:
    from dreamgym_kit.cli.running import look_at, stdout_paint, tell_warnings, unfinished
    from dreamgym_kit.report.terminal import finding_list, next_steps, render_run

    tell_warnings(result)
    if as_json:
        say_json(result.summary.to_json())
        return
    paint = stdout_paint()
    say(render_run(result.summary, paint=paint))
    if result.summary.findings:
        say(finding_list(result.summary, paint) + "\n")
    going_on = unfinished(result)
    say(next_steps([*going_on, look_at(result.summary, result.directory), _next(result)]))


def _next(result: "RunResult") -> tuple[str, str, str]:
    if result.summary.abstentions:
        return "Record", "dreamgym-kit record", "real calls, kept for the next dream"
    return "List", "dreamgym-kit report --list", "every episode of this run"
