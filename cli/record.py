"""`dreamgym-kit record`: the tasks on the real tools, every call kept. Says before what that can do."""

from typing import TYPE_CHECKING

from dreamgym_kit.cli import options
from dreamgym_kit.cli.approving import agree
from dreamgym_kit.cli.output import say, say_json, say_steps, stdout_paint, tell
from dreamgym_kit.cli.running import carry_out, end, look_at, say_episodes, tell_warnings, unfinished
from dreamgym_kit.report.percent import format_count

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.run.run import RunResult

EXAMPLES = (
    "dreamgym-kit record my_agent:graph --tasks tasks.jsonl",
    "dreamgym-kit record --repeats 3 --yes",
    "dreamgym-kit record --buffer staging.db --max-calls 500",
)
CODES = "Exit codes: 0 done; 2 cannot run, or nobody agreed; 130 or 143 stopped, can be resumed."


@options.keyed("tasks", "buffer", "simulate.repeats", "budget.max_calls")
def command(
    given: options.Given,
    select: options.Select = None,
    resume: options.Resume = None,
    yes: options.Yes = False,
    verbose: options.Verbose = 0,
    as_json: options.AsJson = False,
) -> None:
    """Run the tasks on the REAL tools; record every call.

    Says first which effects the tools can have, and asks.
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
        _show(
            result,
            added,
            dream=given.command("simulate", dropped=("--repeats", "--max-calls")),
            verbose=verbose,
            as_json=as_json,
        )
    end(result.exit_code, dreamt=False)


def _show(result: "RunResult", added: str, *, dream: str, verbose: int, as_json: bool) -> None:
    from dreamgym_kit.report.terminal import render_run

    tell_warnings(result)
    if as_json:
        say_json(result.summary.to_json())
        return
    say_episodes(result.directory, verbose)
    say(render_run(result.summary, paint=stdout_paint()))
    say(f" {added}\n")
    going_on = unfinished(result)
    again = ("Dream", dream, "the same tasks, no real tool runs")
    say_steps(*going_on, again, look_at(result.summary, result.directory))
