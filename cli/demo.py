"""`dreamgym-kit demo`: the support desk in a dream, with a planted bug that shows at a glance.

No key, GPU, endpoint or network: the agent's model is a script, and says so.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, say_json, say_steps, stdout_paint
from dreamgym_kit.cli.running import carry_out, end, look_at, tell_warnings
from dreamgym_kit.errors import ExitCode, UserError, require_extra
from dreamgym_kit.report.colors import fold

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.run.request import RunRequest
    from dreamgym_kit.adapters.langgraph.run.run import RunResult
    from dreamgym_kit.types import Episode

EXAMPLES = ("dreamgym-kit demo", "dreamgym-kit demo --fixed", "dreamgym-kit demo --keep demo")
CODES = "Exit codes: 0 shown, even if its gate fails (the bug is planted); 2 cannot run."

Fixed = Annotated[bool, options.option("--fixed", "Run the same agent with its bug fixed.")]
Keep = Annotated[Path | None, options.option("--keep", "Keep the run and the recordings in this directory.")]


def command(fixed: Fixed = False, keep: Keep = None, as_json: options.AsJson = False) -> None:
    """Run a sample agent in a dream and show the report.

    A support-desk agent that moves money, sends mail and deletes people; it has a planted bug.

    No tool runs. The agent's model is a script with one planted bug, which the dry run has to expose.
    """
    folder = _folder(keep)
    request = _request(folder, fixed=fixed)
    result = carry_out(request)
    if as_json:
        say_json(result.summary.to_json())
    else:
        _show(result, fixed=fixed)
    stopped = 128 + result.stopped_by if result.stopped_by is not None else 0
    end(ExitCode.EXECUTED if result.summary.executed else stopped, dreamt=True)


def _folder(keep: Path | None) -> Path:
    import tempfile

    if keep is None:
        return Path(tempfile.mkdtemp(prefix="dreamgym-demo-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{keep}: cannot be made ({error.strerror}); name another folder.") from None
    return keep.absolute()


def _request(folder: Path, *, fixed: bool) -> "RunRequest":
    from dreamgym_kit.adapters.langgraph.run.request import RunRequest
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.recipes.desk.record import RECORDINGS_FILE, SETTINGS_FILE
    from dreamgym_kit.recipes.desk.tasks import TASKS_FILE
    from dreamgym_kit.replay.transfer import import_jsonl
    from dreamgym_kit.rollout.tasks import read_tasks
    from dreamgym_kit.settings.load import load_settings

    require_extra("demo", needed_by="the support desk")
    store = SqliteStore(folder / "recordings.db")
    import_jsonl(RECORDINGS_FILE, store)
    settings = load_settings(file=SETTINGS_FILE, environ={})
    settings = replace(
        settings,
        runs=str(folder / "runs"),
        simulate=replace(settings.simulate, repeats=1),
        gate=replace(settings.gate, fail_on=("critical",)),
    )
    return RunRequest(
        graph=_factory(fixed=fixed), tasks=read_tasks(TASKS_FILE), settings=settings, store=store
    )


def _factory(*, fixed: bool) -> "Callable[[], AbstractAsyncContextManager[Any]]":
    """The desk's graph over the scripted model; built when the gate is in place."""

    def desk() -> "AbstractAsyncContextManager[Any]":
        from dreamgym_kit.recipes.desk.graph import graph

        return graph("scripted:fixed" if fixed else "scripted")

    desk.name = "desk"  # type: ignore[attr-defined]  # how a run names a graph that is no spec
    return desk


def _show(result: "RunResult", *, fixed: bool) -> None:
    from dreamgym_kit.report.episode import render_episode
    from dreamgym_kit.report.terminal import render_run
    from dreamgym_kit.types import Effect

    paint = stdout_paint()
    tell_warnings(result)
    tools = result.facts.tools
    lost = sum(spec.effect is Effect.DESTRUCTIVE for spec in tools)
    bug = "with its bug fixed" if fixed else "with one planted bug"
    say(
        fold(
            f"A support-desk agent with {len(tools)} tools. {lost} of them cannot be undone: they move "
            "money, send mail, delete people. None ran. A dream answered every call, from recordings. "
            f"The agent's model is a script, no language model, {bug}.",
            indent=0,
        )
        + "\n"
    )
    worst = _worst(result)
    if worst is not None:
        say(render_episode(worst, paint=paint))
    say(render_run(result.summary, paint=paint))
    if not result.passed:
        say(" (A showcase, so it ends with 0; simulate would end with 1.)\n")
    other = (
        ("Bug", "dreamgym-kit demo", "the same agent with its bug")
        if fixed
        else ("Fix", "dreamgym-kit demo --fixed", "the same agent with its bug fixed")
    )
    yours = ("Yours", "dreamgym-kit init my_agent:graph", "your graph, your tools, dry")
    say_steps(look_at(result.summary, result.directory), other, yours)


def _worst(result: "RunResult") -> "Episode | None":
    """The first episode with an anomaly, whole, from the run's journal."""
    from dreamgym_kit.rollout.rundir import RunDirectory

    name = next((line.id for line in result.summary.episodes if line.anomaly is not None), None)
    if name is None:
        return None
    return next(episode for episode in RunDirectory.open(result.directory).episodes() if episode.id == name)
