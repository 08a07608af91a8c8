"""`dreamgym-kit simulate` and `record`: the tasks in a dream, or on the real tools with every call kept."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dreamgym_kit.cli import export, options
from dreamgym_kit.cli.approving import agree
from dreamgym_kit.cli.output import say, say_json, say_steps, stdout_paint, tell
from dreamgym_kit.cli.running import (
    carry_out,
    end,
    look_at,
    opened_recordings,
    say_episodes,
    tell_warnings,
    unfinished,
)
from dreamgym_kit.cli.sandbox import confine
from dreamgym_kit.errors import UserError
from dreamgym_kit.report.percent import format_count

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.run.run import RunResult

EXAMPLES = (
    "dreamgym-kit simulate my_agent:graph --tasks tasks.jsonl",
    "dreamgym-kit simulate --repeats 4 --set simulate.concurrency=16",
    "dreamgym-kit simulate -k 'refund and not big' -v",
    "dreamgym-kit simulate --json --fail-on critical > report.json",
    "dreamgym-kit simulate --min-pass-rate 0.9 --forbid 'delete_*' -o junit.xml",
    "dreamgym-kit simulate --resume runs/2026-11-21-desk-7f3a",
)
CODES = (
    "Exit codes: 0 passed; 1 failed (a real call was blocked, or a gate rule broke); 2 cannot run; "
    "3 inconclusive; 4 error; 5 no task; 6 a real call was executed; 130 or 143 stopped, can be resumed."
)
RECORD_EXAMPLES = (
    "dreamgym-kit record my_agent:graph --tasks tasks.jsonl",
    "dreamgym-kit record --repeats 3 --yes",
    "dreamgym-kit record --buffer staging.db --max-calls 500",
)
RECORD_CODES = "Exit codes: 0 done; 2 cannot run, or not confirmed; 130 or 143 stopped, can be resumed."


@options.keyed(
    *("tasks", "buffer", "simulate.repeats", "simulate.imagine"),
    *("gate.min_pass_rate", "gate.max_inconclusive", "gate.forbid", "gate.fail_on"),
)
def command(
    given: options.Given,
    select: options.Select = None,
    resume: options.Resume = None,
    output: options.Output = None,
    verbose: options.Verbose = 0,
    as_json: options.AsJson = False,
) -> None:
    """Run the tasks in a dream. No real tool runs.

    Shows what the agent would have done, what to check first, and how many answers rest on recordings.
    """
    settings, targets = given.settings(), export.targets_of(output, reports=True)
    spec = options.graph_of(settings, "simulate")
    chosen = options.selected_tasks(settings, "simulate", select)
    confine(settings, targets=[target.place for target in targets], resume=resume)
    from dreamgym_kit.adapters.langgraph.run.request import RunRequest

    with opened_recordings(settings) as store:
        request = RunRequest(
            graph=spec,
            tasks=chosen,
            settings=settings,
            store=store,
            directory=resume.absolute() if resume is not None else None,
            resume=resume is not None,
            shard=options.shard_of(settings),
            record=given.command("record", dropped=("--repeats", "--imagine")),
        )
        result = carry_out(request)
    try:
        for target in targets:
            export.write(target, result.summary, result.directory)
    except UserError as error:
        if not result.summary.executed:  # else there is worse to say than that
            raise
        tell(f"error: {error}")
    last = ("List", "dreamgym-kit report --list", "every episode of this run")
    _show(result, [look_at(result.summary, result.directory), last], verbose=verbose, as_json=as_json)
    end(result.exit_code, dreamt=True)


@options.keyed("tasks", "buffer", "simulate.repeats", "budget.max_calls")
def record(
    given: options.Given,
    select: options.Select = None,
    resume: options.Resume = None,
    yes: options.Yes = False,
    verbose: options.Verbose = 0,
    as_json: options.AsJson = False,
) -> None:
    """Run the tasks on the REAL tools; record every call.

    First lists the effects that the tools can have, and asks for confirmation.
    """
    settings = given.settings()
    from dreamgym_kit.adapters.langgraph.run.request import RunRequest
    from dreamgym_kit.adapters.stores.factory import added_since, opened_to_add, waiting_part
    from dreamgym_kit.routing.router import Mode
    from dreamgym_kit.settings.buffer_url import buffer_of

    spec = options.graph_of(settings, "record")
    part, all_tasks = options.shard_of(settings), options.selected_tasks(settings, "record", select)
    count = len(part.part(all_tasks) if part is not None else all_tasks) * settings.simulate.repeats
    agree(spec, settings, episodes=count, yes=yes, command="record")
    path = buffer_of(settings)
    with opened_to_add(path, settings, tell=tell) as store:
        request = RunRequest(
            graph=spec,
            tasks=all_tasks,
            settings=settings,
            mode=Mode.RECORD,
            store=store,
            directory=resume.absolute() if resume is not None else None,
            resume=resume is not None,
            shard=part,
            overlap=given.overlaps(settings),
        )
        added_now = added_since(store)
        result = carry_out(request)
        added = f"{format_count(added_now(), 'call')} added to {path}{waiting_part(store)}"
        dream = given.command("simulate", dropped=("--repeats", "--max-calls"))
        steps = [
            ("Dream", dream, "the same tasks, no real tool runs"),
            look_at(result.summary, result.directory),
        ]
        _show(result, steps, added=added, verbose=verbose, as_json=as_json)
    end(result.exit_code, dreamt=False)


def _show(
    result: "RunResult",
    steps: Sequence[tuple[str, str, str]],
    *,
    added: str = "",
    verbose: int,
    as_json: bool,
) -> None:
    """Show what came of a run; `added`: what it recorded."""
    from dreamgym_kit.report.terminal import finding_list, render_run

    tell_warnings(result)
    if as_json:
        say_json(result.summary.to_json())
        return
    say_episodes(result.directory, verbose)
    say(render_run(result.summary, paint=stdout_paint()))
    if added:
        say(f" {added}\n")
    elif result.summary.findings:
        say(finding_list(result.summary, stdout_paint()) + "\n")
    say_steps(*unfinished(result), *steps)
