"""`dreamgym-kit s2r`: continue training on the real tools, behind a gate and hard limits."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.approving import TerminalApprover, confirm, format_effects
from dreamgym_kit.cli.output import can_ask, near, say, say_json, say_steps, stdout_paint, tell
from dreamgym_kit.cli.progress import TrainingProgress
from dreamgym_kit.cli.running import end, going_on, inspected, watched
from dreamgym_kit.errors import ExitCode
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.s2r.s2r_run import S2rResult
    from dreamgym_kit.rollout.rundir import RunDirectory

EXAMPLES = (
    "dreamgym-kit s2r --policy runs/TRAIN/weights/step-000040 --max-calls 1000 --preflight-only",
    "dreamgym-kit s2r my_agent:graph --stage shadow --max-calls 1000",
    "dreamgym-kit s2r --stage approve --max-calls 200 --approver my_agent.rules:may_run",
    "dreamgym-kit s2r --stage live --max-calls 1000 --yes --json",
    "dreamgym-kit s2r --resume runs/2026-11-21-s2r-desk-7f3a --max-calls 1500",
    "dreamgym-kit s2r verify runs/2026-11-21-s2r-desk-7f3a --head $HEAD",
)
CODES = (
    "Exit codes: 0 done, or its budget spent; 1 the preflight failed, a call was refused, a real "
    "answer diverged, or the audit log is incomplete; 2 cannot run, or not confirmed; 6 a real call was "
    "executed past the gate; 130 or 143 stopped, can be resumed."
)

_ALLOWED = {
    "shadow": "Reads will be REAL, writes dreamed",
    "approve": "Reads will be REAL, and so will each write that is approved",
    "live": "Reads and writes will be REAL; one that cannot be undone is held unless s2r.auto_approve "
    "names it",
}
PreflightOnly = Annotated[bool, options.option("--preflight-only", "Run only the preflight: no real call.")]
Audited = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or its audit log.")]
Head = Annotated[str | None, options.option("--head", "The log's last digest, from another copy.", "DIGEST")]


@options.keyed("tasks", "buffer", "s2r.stage", "s2r.max_calls", "s2r.approver", "train.steps")
def command(
    given: options.Given,
    policy: options.StartPolicy = None,
    preflight_only: PreflightOnly = False,
    resume: options.Resume = None,
    yes: options.Yes = False,
    verbose: options.Verbose = 0,
    as_json: options.AsJson = False,
) -> None:
    """Continue training on the REAL tools, supervised.

    First a preflight in the dream, then canary tasks in stage shadow. The budget, each tool's own limit, the
    stage and approvals bound the real calls. Training stops when real answers diverge from the dream's. The
    audit log has every call.
    """
    settings = given.settings(policy)
    from dreamgym_kit.adapters.langgraph.run.request import S2rRequest
    from dreamgym_kit.adapters.langgraph.s2r.supervisor import real_limits
    from dreamgym_kit.adapters.models.folders import require_extra
    from dreamgym_kit.adapters.stores.factory import opened_to_add
    from dreamgym_kit.settings.buffer_url import buffer_of

    require_extra("train")
    real_limits(settings)
    file, stage = options.tasks_of(settings, "s2r"), settings.s2r.stage
    # a function of the settings, or nobody, where no person sits at a terminal
    asks = settings.s2r.approver is None and stage != "shadow" and can_ask()
    with opened_to_add(buffer_of(settings), settings, tell=tell) as store:
        request = S2rRequest(
            graph=options.graph_of(settings, "s2r"),
            tasks=file,
            settings=settings,
            store=store,
            directory=resume.absolute() if resume is not None else None,
            resume=resume is not None,
            gate_only=preflight_only,
            approver=TerminalApprover() if asks else None,
        )
        if not preflight_only:  # say what the real tools can do, how far the stage lets them, and ask
            tell(f"{_ALLOWED[stage]}: at most {settings.s2r.max_calls:,} real calls. What the tools can do:")
            tell(format_effects(inspected(str(request.graph), settings).tools))
            confirm("Begin, with the gate first?", "s2r runs real tools", yes=yes)
        from dreamgym_kit.adapters.langgraph.s2r.s2r_run import run_s2r

        plain = verbose > 0 or request.approver is not None
        with watched(TrainingProgress(stage), plain=plain) as (events, stop):
            if isinstance(request.approver, TerminalApprover):
                request.approver.until(lambda: stop.requested)
            result = run_s2r(request, events=events, stop=stop)
    _show(result, stage, as_json=as_json)
    end(_code(result), dreamt=True)


def _code(result: "S2rResult") -> int:
    if result.executed:
        return ExitCode.EXECUTED
    if result.stopped_by is not None:
        return 128 + result.stopped_by
    if result.stopped is not None:
        return 0 if result.stopped.why in ("budget", "limit") else 1
    return 0 if result.gate.passed else 1


def _show(result: "S2rResult", stage: str, *, as_json: bool) -> None:
    from dreamgym_kit.adapters.langgraph.s2r.s2r_run import s2r_report
    from dreamgym_kit.report.s2r_text import render_s2r

    report = s2r_report(result)
    if as_json:
        say_json({"directory": str(result.directory), **report})
        return
    if result.executed:
        say(f"FAILED  {one_line(result.executed)}\n")
    say(f" {near(result.directory)}")
    say(render_s2r(report, stage=stage, paint=stdout_paint()))
    run = shlex.quote(near(result.directory))
    steps = [("Verify", f"dreamgym-kit s2r verify {run}", "every byte of the audit log")]
    if result.weights is not None:
        weights = shlex.quote(near(result.weights))
        steps.append(("Prove", f"dreamgym-kit evaluate --real --policy {weights}", "what it is worth"))
    say_steps(*steps, *_onward(result))


def _onward(result: "S2rResult") -> list[tuple[str, str, str]]:
    """What can be done next: a shut gate is opened by no budget."""
    if result.stopped is None and not result.gate.passed:
        tried = [shlex.quote(near(place)) for place in sorted(result.directory.glob("gate/step-*"))]
        return [("Look", f"dreamgym-kit report {run}", "the episodes that the gate tried") for run in tried]
    if result.stopped is not None and result.stopped.why.final:
        return []
    spent = result.stopped is not None and result.stopped.why in ("budget", "limit")
    how = "with a larger budget" if spent else "from where it is"
    again = going_on(near(result.directory), options=["--max-calls"], flags=["--preflight-only"])
    return [("Go on", f"{again} --max-calls N", how)]


def shown(directory: "RunDirectory", *, as_json: bool) -> bool:
    """Show a run directory if it is one of ours; False where it is not."""
    from dreamgym_kit.report.s2r_text import MODE, render_s2r

    if directory.mode != MODE:
        return False

    report = directory.read_report()
    if as_json:
        say_json({"directory": str(directory.path), **(report or {})})
        return True
    say(f" {near(directory.path)}")
    if report is None:
        say(" NOT FINISHED  what was done so far is in its audit log")
        return True
    stage = str(directory.manifest.matters.get("stage")).replace("staged", "approve")
    say(render_s2r(report, stage=stage, paint=stdout_paint()))
    return True


def verify_log(run: Audited, head: Head = None, as_json: options.AsJson = False) -> None:
    """Check that the audit log is complete and unaltered."""
    from dreamgym_kit.supervision.audit import AUDIT, verify

    path = run / AUDIT if run.is_dir() else run
    checked = verify(path, head=head or "")
    if as_json:
        say_json({"log": str(path), "whole": checked.whole, **asdict(checked)})
    elif checked.whole:
        state = "" if checked.closed else "; its run goes on, was killed, or lines at the end are missing"
        say(f" WHOLE  {checked.entries} lines, head {checked.head}{state}")
        if not head:
            say(" That none was cut off or rewritten at the end shows only with --head, kept elsewhere.")
    else:
        say(f" NOT WHOLE  {path}: {checked.wrong}")
    end(0 if checked.whole else 1, dreamt=False)
