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
    "dreamgym-kit simulate --json --fail-on-findings > report.json",
    "dreamgym-kit simulate --gate-success 0.9 --forbid 'delete_*' --junit out.xml",
    "dreamgym-kit simulate --resume runs/2026-11-21-desk-7f3a",
)
CODES = (
    "Exit codes: 0 done; 1 the gate failed (something real was about to run, or a rule of [gate] or "
    "of the flags broke); 2 cannot run; 6 a real call was executed; 130 or 143 stopped, can be resumed."
)

FailOnFindings = Annotated[
    bool,
    typer.Option("--fail-on-findings", help="Exit with 1 also for critical findings.", show_default=False),
]
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
    fail_on_findings: FailOnFindings = False,
    gate_success: gate_options.Share = None,
    gate_success_low: gate_options.ShareLow = None,
    gate_undetermined: gate_options.Undetermined = None,
    gate_contradictions: gate_options.Contradictions = None,
    forbid: gate_options.Forbid = None,
    most: gate_options.Most = None,
    gate_findings: gate_options.Kinds = None,
    gate_usd: gate_options.GateUsd = None,
    gate_seconds: gate_options.GateSeconds = None,
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
        "simulate.n": n,
        "simulate.concurrency": concurrency,
        "engine.workers": workers,
        "engine.name": engine.value if engine is not None else None,
        "engine.address": address,
        "simulate.seed": seed,
        "simulate.abstain": abstain.value if abstain is not None else None,
        "limits.steps": steps,
        "limits.seconds": seconds,
        "limits.recursion": recursion,
        "budget.calls": calls,
        "budget.usd": usd,
    }
    gate = {
        "success": gate_success,
        "success_low": gate_success_low,
        "undetermined": gate_undetermined,
        "contradictions": gate_contradictions,
        "forbid": forbid,
        "max": gate_options.most_calls(most),
        "findings": [*(gate_findings or ()), *(["critical"] if fail_on_findings else ())],
        "usd": gate_usd,
        "seconds": gate_seconds,
    }
    settings = gate_options.with_gate(options.settings_for(graph, settings_file, overrides), gate)
    from dreamgym_kit.adapters.langgraph.run_request import RunRequest
    from dreamgym_kit.adapters.models.policies import opened_policy, with_policy
    from dreamgym_kit.cli.running import carry_out, end, exit_code, opened_recordings
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
        gate_options.write_reports(
            result.summary, result.directory, junit, markdown, fail_on_findings=fail_on_findings
        )
    except UserError as error:
        if not result.summary.executed:  # else there is worse to say than that
            raise
        tell(f"error: {error}")
    _show(result, as_json=as_json, fail_on_findings=fail_on_findings)
    end(exit_code(result, fail_on_findings=fail_on_findings), dreamt=True)


def _show(result: "RunResult", *, as_json: bool, fail_on_findings: bool) -> None:
    from dreamgym_kit.cli.running import look_at, stdout_paint, tell_warnings, unfinished
    from dreamgym_kit.report.terminal import finding_list, next_steps, render_run

    tell_warnings(result)
    if as_json:
        say_json(result.summary.to_json(fail_on_findings=fail_on_findings))
        return
    paint = stdout_paint()
    say(render_run(result.summary, paint=paint, fail_on_findings=fail_on_findings))
    if result.summary.findings:
        say(finding_list(result.summary, paint) + "\n")
    going_on = unfinished(result)
    say(next_steps([*going_on, look_at(result.summary, result.directory), _next(result)]))


def _next(result: "RunResult") -> tuple[str, str, str]:
    if result.summary.abstentions:
        return "Record", "dreamgym-kit record", "real calls, kept for the next dream"
    return "List", "dreamgym-kit report --list", "every episode of this run"
