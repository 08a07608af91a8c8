"""`dreamgym-kit simulate`: the agent runs its tasks, and no real tool can run."""

from typing import TYPE_CHECKING

from dreamgym_kit.cli import export, options
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
from dreamgym_kit.errors import UserError

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
_LIST = ("List", "dreamgym-kit report --list", "every episode of this run")
CODES = (
    "Exit codes: 0 passed; 1 failed (a real call was blocked, or a rule of the gate broke); 2 cannot run; "
    "3 inconclusive; 4 error; 5 no task; 6 a real call was executed; 130 or 143 stopped, can be resumed."
)


@options.keyed(
    *("tasks", "buffer", "simulate.repeats"),
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

    Shows what it would have done, what to look at first, and how much of it rests on recordings.
    """
    settings, targets = given.settings(), export.targets_of(output)
    from dreamgym_kit.adapters.langgraph.run.request import RunRequest

    spec = options.graph_of(settings, "simulate")
    chosen = options.selected_tasks(settings, "simulate", select)
    with opened_recordings(settings) as store:
        request = RunRequest(
            graph=spec,
            tasks=chosen,
            settings=settings,
            store=store,
            directory=resume.absolute() if resume is not None else None,
            resume=resume is not None,
            shard=options.shard_of(settings),
        )
        result = carry_out(request)
    try:
        for target in targets:
            export.write(target, result.summary, result.directory)
    except UserError as error:
        if not result.summary.executed:  # else there is worse to say than that
            raise
        tell(f"error: {error}")
    _show(result, verbose=verbose, as_json=as_json)
    end(result.exit_code, dreamt=True)


def _show(result: "RunResult", *, verbose: int, as_json: bool) -> None:
    from dreamgym_kit.report.terminal import finding_list, render_run

    tell_warnings(result)
    if as_json:
        say_json(result.summary.to_json())
        return
    paint = stdout_paint()
    say_episodes(result.directory, verbose)
    say(render_run(result.summary, paint=paint))
    if result.summary.findings:
        say(finding_list(result.summary, paint) + "\n")
    going_on = unfinished(result)
    say_steps(*going_on, look_at(result.summary, result.directory), _LIST)
