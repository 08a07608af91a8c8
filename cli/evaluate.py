"""`dreamgym-kit evaluate` and `experience ablate`: the worth of an agent, and of the dream's parts."""

import shlex
from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dreamgym_kit.cli import export, options
from dreamgym_kit.cli.approving import agree
from dreamgym_kit.cli.output import near, say, say_json, say_steps, stdout_paint, tell
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
from dreamgym_kit.errors import ExitCode, UserError

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.run.request import RunRequest
    from dreamgym_kit.adapters.langgraph.run.run import RunResult
    from dreamgym_kit.report.evaluation import Evaluation

EXAMPLES = (
    "dreamgym-kit evaluate my_agent:graph --tasks held-out.jsonl -n 4",
    "dreamgym-kit evaluate --real --yes --split held_out -n 4 --json > score.json",
    "dreamgym-kit evaluate --real --baseline runs/2026-11-20-desk-1c2d",
    "dreamgym-kit evaluate --baseline RUN --require better",
    "dreamgym-kit evaluate --real --policy models/trained --baseline models/start",
    "dreamgym-kit evaluate --real --set evaluate.faults=0.1 --policy models/trained",
    "dreamgym-kit evaluate --set gate.min_pass_rate=0.8 -o evaluation.html",
)
CODES = (
    "Exit codes: 0 evaluated; 1 a gate rule or --require failed, or a real call was blocked in a "
    "dream; 2 cannot run, or not confirmed; 3 inconclusive; 4 error; 5 no task; 6 a real call was executed "
    "in a dream; 130 or 143 stopped, can be resumed."
)


_LAST = 127  # codes above it: stopped by a signal


Real = Annotated[
    bool, options.option("--real", "Run the REAL tools; resets the environment for each episode; asks.")
]
Baseline = Annotated[
    Path | None, options.option("--baseline", "Compare with this run or this model.", "RUN|MODEL")
]
Split = Annotated[
    Literal["train", "held_out"] | None, options.option("--split", "Only the tasks of this split.")
]
Require = Annotated[
    Literal["better", "not-worse"] | None,
    options.option("--require", "Exit with 1 unless the result is better (or not worse) than --baseline."),
]


@options.keyed("tasks", "simulate.repeats")
def command(
    given: options.Given,
    select: options.Select = None,
    real: Real = False,
    yes: options.Yes = False,
    baseline: Baseline = None,
    require: Require = None,
    policy: options.Policy = None,
    split: Split = None,
    resume: options.Resume = None,
    output: options.Output = None,
    verbose: options.Verbose = 0,
    as_json: options.AsJson = False,
) -> None:
    """Measure pass@1 and pass^k, in a dream or --real.

    Prints 95% confidence intervals, results by task family, and cost. --baseline compares with an earlier
    run of the same tasks, or with another model, which is run first. Inconclusive episodes count as neither
    passed nor failed. A pass rate is required only with --set gate.min_pass_rate=SHARE.
    """
    targets = export.targets_of(output, reports=True)
    settings = given.settings()
    if not given.assigns("gate.min_pass_rate"):  # it measures; a rate is required only where it is named here
        settings = replace(settings, gate=replace(settings.gate, min_pass_rate=0.0))
    from dreamgym_kit.adapters.langgraph.run.evaluation import evaluation_of, scores_against, tasks_of_split
    from dreamgym_kit.adapters.langgraph.run.request import RunRequest
    from dreamgym_kit.rollout.rundir import MANIFEST

    if require is not None and baseline is None:
        raise UserError("evaluate: --require goes with --baseline RUN, or with --baseline MODEL.")
    against = baseline if baseline is not None and (baseline / MANIFEST).exists() else None
    model = baseline if against is None else None
    if model is not None and not model.is_dir() and not settings.policy.urls:
        raise UserError(f"{model}: is neither a run directory nor a model directory.")
    spec = options.graph_of(settings, "evaluate")
    chosen = tasks_of_split(options.selected_tasks(settings, "evaluate", select), split)
    part = options.shard_of(settings)
    own = part.part(chosen) if part is not None else chosen
    if real:
        episodes = len(own) * settings.simulate.repeats * (1 if model is None else 2)
        most = settings.limits.max_tool_calls
        whole = episodes * most if settings.budget.max_calls is None else settings.budget.max_calls
        tell(f"Real calls: at most {most} an episode, {min(whole, episodes * most):,} in all.")
        agree(spec, settings, episodes=episodes, yes=yes, command="evaluate")
    else:
        confine(settings, targets=[target.place for target in targets], resume=resume)
    must_be = require or ""
    request = RunRequest(
        graph=spec,
        tasks=chosen,
        settings=settings,
        shard=part,
        overlap=given.overlaps(settings),
        resume=resume is not None,
        directory=resume.absolute() if resume is not None else None,
    )
    policies = [policy] if model is None else [str(model), policy]
    before, codes = scores_against(against, own), []
    for number, named in enumerate(policies, start=1):
        result = _run_side(request, named, real=real, must_be=must_be)
        evaluation = evaluation_of(result, own, against=before, run=near(result.directory), must_be=must_be)
        codes.append(evaluation.exit_code if result.stopped_by is None else result.exit_code)
        if result.stopped_by is not None and number < len(policies):
            codes.append(128 + result.stopped_by)
        if result.stopped_by is not None or result.summary.executed:
            break
        before, request = evaluation.b, replace(request, resume=False, directory=None)
    for target in targets:
        export.write(target, result.summary, result.directory, data=evaluation.to_json())
    _show(evaluation, result, verbose=verbose, as_json=as_json)
    end(_worst(codes), dreamt=not real)


def _run_side(request: "RunRequest", policy: str | None, *, real: bool, must_be: str) -> "RunResult":
    """Run the tasks with one policy; real tools need no recordings."""
    from dreamgym_kit.adapters.langgraph.run.evaluation import evaluation_request
    from dreamgym_kit.adapters.models.named_models import opened_policy, weights_digest, with_policy

    settings = with_policy(policy, request.settings)
    recordings = nullcontext() if real else opened_recordings(settings)
    with opened_policy(policy, settings) as server, recordings as store:
        side = replace(
            request,
            settings=settings,
            gate=settings.gate,
            store=store,
            policy=server,
            weights=weights_digest(policy, settings),
        )
        return carry_out(evaluation_request(side, real=real, must_be=must_be))


def _show(evaluation: "Evaluation", result: "RunResult", *, verbose: int, as_json: bool) -> None:
    from dreamgym_kit.report.evaluation import render_evaluation

    tell_warnings(result)
    if as_json:
        say_json(evaluation.to_json())
        return
    say_episodes(result.directory, verbose)
    say(render_evaluation(evaluation, paint=stdout_paint()))
    going_on = unfinished(result)
    run = shlex.quote(near(result.directory))
    steps = [*going_on, look_at(result.summary, result.directory)]
    if evaluation.a is None:
        steps.append(
            ("Against", f"dreamgym-kit evaluate --baseline {run}", "another agent on the same tasks")
        )
    else:
        before = shlex.quote(near(Path(evaluation.a.run)))
        steps.append(("Compare", f"dreamgym-kit compare {before} {run}", "by task, by tool, by finding"))
    say_steps(*steps)


def _worst(codes: "list[int]") -> int:
    """Of both sides: stopped, then a real call, then by the precedence of verdicts."""
    order = (ExitCode.EXECUTED, ExitCode.FAILED, ExitCode.ERROR, ExitCode.INCONCLUSIVE)
    stopped = [code for code in codes if code > _LAST]
    return stopped[0] if stopped else next((code for code in order if code in codes), max(codes))


ABLATE_EXAMPLES = (
    "dreamgym-kit experience ablate my_agent:graph",
    "dreamgym-kit experience ablate --without history --without state --calls 200 --out runs/ablation",
    "dreamgym-kit experience ablate --policy models/agent --tasks tasks.jsonl",
    "dreamgym-kit experience ablate --policy models/agent --learn --yes",
)
ABLATE_CODES = "Exit codes: 0 measured; 2 cannot run, or not confirmed. Run it again to continue."


Part = StrEnum(
    "Part", ("HISTORY", "STATE", "RETRIEVAL", "REASONING", "CURRICULUM", "FAULTS")
)  # in small letters
Without = Annotated[
    list[Part] | None, options.option("--without", "Disable this part; repeatable (default: each).")
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for the results.")]
Most = Annotated[int, typer.Option("--calls", min=1, help="Held-out calls to predict in each dream.")]
AblatedPolicy = Annotated[Path | None, options.option("--policy", "Model to evaluate in each dream.", "DIR")]
Learn = Annotated[
    bool,
    options.option("--learn", "Train it in each dream, then evaluate on the REAL tools; asks."),
]


@options.keyed("tasks", "buffer")
def ablate_command(
    given: options.Given,
    without: Without = None,
    policy: AblatedPolicy = None,
    learn: Learn = False,
    most: Most = 400,
    out: Out = Path("ablation"),
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Disable one part of the dream at a time and measure the effect.

    Each dream's answers are compared with the recorded ones. --policy also evaluates an agent in each dream;
    --learn trains it there and evaluates it on the REAL tools.
    """
    settings = given.settings()
    from dreamgym_kit.adapters.langgraph.run.ablation import AblationRequest, ablate, ablated_parts
    from dreamgym_kit.report.evaluation import ROWS, render_ablation
    from dreamgym_kit.rollout.tasks import read_tasks
    from dreamgym_kit.types import Split

    parts = tuple(dict.fromkeys(part.value for part in without or ())) or None
    needs_tasks = policy is not None or learn
    request = AblationRequest(
        graph=options.graph_of(settings, "ablate"),
        tasks=read_tasks(options.tasks_of(settings, "ablate")) if needs_tasks else [],
        settings=settings,
        out=out.absolute(),
        parts=parts,
        policy=policy.absolute() if policy is not None else None,
        learn=learn,
        most=most,
    )
    if learn:  # say what the real tools can do and how often they may be called, and ask
        tried = [task for task in request.tasks if task.split is Split.HELD_OUT] or list(request.tasks)
        episodes = (1 + len(ablated_parts(request))) * len(tried) * settings.train.eval_n
        agree(request.graph, settings, episodes=episodes, yes=yes, command="ablate")
    rows = ablate(request, tell=lambda row: tell(f"measured without {row.part}"))
    if as_json:
        say_json({"kind": "ablate", "rows": [ROWS.write(row) for row in rows]})
    else:
        say(render_ablation(rows))
    end(0, dreamt=policy is not None)
