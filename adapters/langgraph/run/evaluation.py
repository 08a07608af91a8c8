"""`evaluate`: how good an agent is on its tasks, on the real tools or in a dream, and whether B beats A.

    from dreamgym_kit import evaluate
    before = evaluate("my_agent:graph", "held-out.jsonl", repeats=4, real=True)
    print(evaluate("my_agent:better", "held-out.jsonl", repeats=4, real=True, baseline=before))

An evaluation is a run like any other, in a directory of its own. On the real tools nothing is kept for later
dreams, and each world has to be put back for each episode.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.langgraph.run.api import renamed_arguments, requested, settings_of, waited_run
from dreamgym_kit.adapters.langgraph.run.request import RunRequest, Tasks, tasks_of
from dreamgym_kit.adapters.langgraph.run.run import RunResult, run
from dreamgym_kit.adapters.models.named_models import Named, opened_policy, weights_digest, with_policy
from dreamgym_kit.dream.faults import rules_at
from dreamgym_kit.errors import NoTaskSelected, UserError
from dreamgym_kit.interfaces import EventSink, ExperienceModel, TransitionStore
from dreamgym_kit.report.evaluation import Evaluation, Scores, evaluated, scores_of
from dreamgym_kit.report.metrics import RunMetrics
from dreamgym_kit.report.summary import curve_of, facts_of, summarize
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.settings.schema import GateSettings, Settings
from dreamgym_kit.types import Split, Task

_ALWAYS: dict[str, Any] = {"min_pass_rate": 0.0, "max_inconclusive": None, "max_errors": 0}
"""Rules that every run is held to: an evaluation with no others requires nothing of its agent."""


@renamed_arguments(store="buffer", n="repeats", directory="run_dir", against="baseline")
async def aevaluate(
    graph: object,
    tasks: Tasks,
    *,
    real: bool = False,
    baseline: "Evaluation | str | Path | None" = None,
    split: Split | str | None = None,
    settings: Settings | None = None,
    buffer: TransitionStore | str | Path | None = None,
    experience: ExperienceModel | None = None,
    policy: Named = None,
    repeats: int | None = None,
    faults: float | None = None,
    run_dir: str | Path | None = None,
    events: EventSink | None = None,
    stop: StopSwitch | None = None,
) -> Evaluation:
    """Try an agent on tasks and score it; by default in a dream.

    Args:
        graph: as for `simulate`.
        tasks: a JSON-lines file, or a list of `Task`.
        real: run the REAL tools. Nothing is kept for dreams. Refused if tools change an environment that no
            `[environments.NAME]` resets for each episode.
        baseline: the agent to compare with (A): an evaluation, or a run directory of the same tasks.
        split: only the tasks of this side of the train/test line.
        settings: default: the nearest dreamgym.toml, if there is one.
        buffer: recordings that a dream answers from; default: the buffer of the settings.
        experience: an experience model of one's own instead of recordings.
        policy: a model directory, or a chat endpoint, that answers in place of the agent's chat models.
        repeats: episodes per task; pass^k is reported for k up to this.
        faults: share of the calls that fail by plan, 0..1, on the real tools too; default: `evaluate.faults`
            of the settings. `[faults]` says how, and what fails in a dream where neither is given.
        run_dir: the run directory to make; default: a new one under `settings.runs`.
        events: receives the events of the run.
        stop: ends the run early, from any thread.

    Raises:
        UserError: an argument cannot be used; nothing was run.
    """
    run_settings = with_policy(
        policy, settings_of(settings, repeats).with_overrides({"evaluate.faults": faults})
    )
    chosen = tasks_of_split(tasks, split)
    before = scores_against(baseline, chosen)  # before anything runs: a wrong name costs no episode
    with (
        requested(
            RunRequest,
            graph,
            chosen,
            run_settings,
            buffer=buffer,
            run_dir=run_dir,
            create=None if real else False,
            experience=experience,
        ) as request,
        opened_policy(policy, run_settings) as answers,
    ):
        request = replace(request, policy=answers, weights=weights_digest(policy, run_settings))
        result = await run(evaluation_request(request, real=real), events=events, stop=stop)
    return evaluation_of(result, chosen, against=before)


def evaluate(graph: object, tasks: Tasks, **options: Any) -> Evaluation:
    """`aevaluate` for sync code; also inside a running event loop."""
    return waited_run(lambda stop: aevaluate(graph, tasks, stop=stop, **options))


def evaluation_request(request: RunRequest, *, real: bool, must_be: str = "") -> RunRequest:
    """The run that an evaluation is; a real one has no store, so that nothing of it is kept for dreams.

    Without a `gate` it is held to that of the settings, but that no pass rate is required. `must_be`: what is
    required against another run.
    """
    settings = request.settings
    share = settings.evaluate.faults
    gate = request.gate if request.gate is not None else replace(settings.gate, min_pass_rate=0.0)
    required = must_be or gate.min_pass_rate or replace(gate, **_ALWAYS) != GateSettings(**_ALWAYS)
    return replace(
        request,
        settings=under_faults(settings, share),
        mode=Mode.RECORD if real else Mode.DREAM,
        gate=gate,
        evaluates="required" if required else "measured",
        store=None if real else request.store,
        must_reset=real,
        real_faults=real and share is not None,
    )


def under_faults(settings: Settings, rate: float | None) -> Settings:
    """The settings with faults at this rate; None: as they are.

    Raises:
        UserError: it is no share.
    """
    if rate is None:
        return settings
    if not 0 <= rate <= 1:
        raise UserError(f"faults: {rate:g} is no share of the calls; give a number from 0 to 1.")
    return replace(settings, faults=rules_at(settings.faults, rate))


def evaluation_of(
    result: RunResult,
    tasks: Sequence[Task],
    *,
    against: Scores | None = None,
    run: str = "",
    must_be: str = "",
) -> Evaluation:
    """Score a run that has ended; `run` is how its directory is told, its path when left out."""
    return evaluated(_scores(result.directory, tasks, run or str(result.directory)), against, must_be=must_be)


def evaluation_between(evaluated_run: Path, against: Path | None, tasks: Sequence[Task]) -> Evaluation:
    """The evaluation that two runs are that were made before; `against` is A.

    Raises:
        UserError: one is no run, or has episodes of none of the tasks.
    """
    b, a = scores_against(evaluated_run, tasks), scores_against(against, tasks)
    assert b is not None  # a directory was named
    return evaluated(b, a)


def scores_against(against: "Evaluation | str | Path | None", tasks: Sequence[Task]) -> Scores | None:
    """A's scores on these tasks: of an evaluation, or of a run directory.

    Raises:
        UserError: it is no run, or has none of the tasks.
    """
    if against is None:
        return None
    place = against.directory if isinstance(against, Evaluation) else against
    if not isinstance(place, (str, Path)):
        raise UserError(f"baseline: expected a run directory or an evaluation, got {type(place).__name__}.")
    scores = _scores(Path(place), tasks, against.b.run if isinstance(against, Evaluation) else str(place))
    if not scores.outcomes:
        raise UserError(f"{place}: has no episode of any of these {len(tasks)} tasks. Nothing was run.")
    return scores


def _scores(directory: Path, tasks: Sequence[Task], run: str) -> Scores:
    """Score the episodes of a run that are of these tasks."""
    opened = RunDirectory.open(directory)
    wanted = {task.id for task in tasks}
    episodes, others = [], 0
    for episode in opened.episodes():
        if episode.task in wanted:
            episodes.append(episode)
        else:
            others += 1
    facts = facts_of(opened)
    about = facts.get("about")
    if others and isinstance(about, Mapping):  # what was not run is counted of these tasks alone
        facts["about"] = {**about, "tasks": len({episode.task for episode in episodes})}
    summary = summarize(episodes, facts, curve_of(opened))
    return scores_of(summary, tasks, run=run, directory=str(directory.absolute()), agent=_agent_of(summary))


def tasks_of_split(tasks: Tasks, split: Split | str | None) -> list[Task]:
    """The tasks, or those of one side of the train/test line.

    Raises:
        UserError: the tasks cannot be used, or none is on that side.
    """
    read = tasks_of(tasks)
    if split is None:
        return read
    if split not in set(Split):
        raise UserError(f"split: there is no {split!r}; known: {', '.join(Split)}.")
    chosen = [task for task in read if task.split == split]
    if not chosen:
        raise NoTaskSelected(f"split: none of the {len(read)} tasks is {split}. Nothing was run.")
    return chosen


def _agent_of(summary: RunMetrics) -> str:
    named, policy = summary.fact("graph"), summary.fact("policy")
    graph = named if isinstance(named, str) else "not named"
    if not isinstance(policy, Mapping):
        return graph
    model = policy.get("model")
    return f"{graph}, policy {model if isinstance(model, str) else 'of the caller'}"
