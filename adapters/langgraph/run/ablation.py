"""`ablate`: the dream with one part left out at a time: how true it is, how an agent fares or learns in it.

Each row is kept in a file of its own as soon as it is known; a measurement that was broken off goes on there.
A training that was broken off goes on from its last checkpoint.
"""

import json
import tomllib
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from dreamgym_kit.adapters.langgraph.analysis.inspection import inspect_graph
from dreamgym_kit.adapters.langgraph.run.api import opened_store, waited
from dreamgym_kit.adapters.langgraph.run.evaluation import evaluate
from dreamgym_kit.adapters.langgraph.run.experiences import experience_endpoint, with_decisions, with_model
from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.deployment.model_files import model_digest
from dreamgym_kit.dream.held_out import Fidelity, fidelity
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.interfaces import ExperienceModel, TransitionStore
from dreamgym_kit.report.evaluation import DREAM_ONLY, LEARNING_ONLY, ROWS, WHOLE, AblationRow, Evaluation
from dreamgym_kit.rollout.atomic_files import read_whole, write_atomically
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.rundir import differences, to_resume
from dreamgym_kit.rollout.tasks import tasks_digest
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.render import render_settings
from dreamgym_kit.settings.schema import EvaluateSettings, Settings
from dreamgym_kit.types import Split, Task, Transition

Record = TypeVar("Record")
Tell = Callable[[AblationRow], None]
_MEASUREMENT_FILE = "asked.json"  # the request that all rows of a folder share


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRequest:
    """What to measure.

    Attributes:
        graph: its spec.
        tasks: those of the training split are learned from, the held-out ones are tried.
        settings: of the whole dream.
        out: the folder that rows and runs are kept in.
        parts: what is left out, one at a time; None: every part that this dream has.
        policy: a model directory that fares in each dream; None: only how true the dreams are is measured.
        learn: also train it in each dream, and try what came of it on the REAL tools.
        most: held-out recorded calls that are put to each dream.
    """

    graph: str
    tasks: Sequence[Task]
    settings: Settings
    out: Path
    parts: Sequence[str] | None = None
    policy: Path | None = None
    learn: bool = False
    most: int = 400


def ablate(request: AblationRequest, *, tell: Tell) -> list[AblationRow]:
    """Measure the whole dream, then without each part; `tell` hears each row.

    Raises:
        UserError: nothing is recorded, a part is to be left out that this dream does not have, or something
            cannot be used as asked.
    """
    if request.learn and request.policy is None:
        raise UserError("ablate: --learn needs a policy to begin with (--policy DIR).")
    parts = ablated_parts(request)
    if request.learn and not any(task.split is Split.HELD_OUT for task in request.tasks):
        raise UserError("ablate: --learn is tried on held-out tasks, and none is (split: held_out).")
    request.out.mkdir(parents=True, exist_ok=True)
    _must_be_same(request)
    rows, whole = [], None
    for part in (WHOLE, *parts):
        place = request.out / f"{part}.json"
        row = _read(place, ROWS.read, "remove it to measure that part again")
        if row is None:
            row = _measured(request, part, whole)
            write_atomically(place, json.dumps(ROWS.write(row)).encode("ascii"))
        if part == WHOLE:
            whole = request.out / WHOLE / "real"
        rows.append(row)
        tell(row)
    return rows


def ablated_parts(request: AblationRequest) -> tuple[str, ...]:
    """What is left out, one at a time: the parts that were asked for, or all that this dream has.

    Raises:
        UserError: this dream does not have one that was asked for: it would be measured twice.
    """
    if request.parts is None:
        every = (*DREAM_ONLY, *(LEARNING_ONLY if request.learn else ()))
        return tuple(part for part in every if not _lacks(request.settings, part))
    for part in request.parts:
        lacks = _lacks(request.settings, part)
        if lacks:
            raise UserError(f"ablate: there is no '{part}' to leave out: {lacks}.")
        if part in LEARNING_ONLY and not request.learn:
            raise UserError(f"ablate: '{part}' matters only where something is learned; say --learn as well.")
    return tuple(request.parts)


def _lacks(settings: Settings, part: str) -> str:
    """Why leaving a part out would change nothing; "" where it would."""
    decides = settings.experience.dir or settings.experience.urls
    if part == "reasoning" and not decides:
        return "no model decides anything (experience.dir, experience.urls)"
    if part == "curriculum" and not settings.curriculum.enabled:
        return "tasks go in turn (curriculum.enabled)"
    planned = settings.train.faults
    if planned is None:
        planned = max((rule.rate for rule in settings.faults.values()), default=0.0)
    if part == "faults" and not planned:
        return "nothing fails by plan (train.faults)"
    return ""


def settings_without(settings: Settings, part: str) -> Settings:
    """The settings with one part switched off."""
    if part == WHOLE:
        return settings
    if part == "faults":
        train = replace(settings.train, faults=None)
        return replace(settings, faults={}, train=train)
    if part == "curriculum":
        return settings.with_overrides({"curriculum.enabled": False})
    return settings.with_overrides({"simulate.disable": (part,)})


def _must_be_same(request: AblationRequest) -> None:
    """Refuse a folder with rows of another measurement: they cannot be compared.

    Raises:
        UserError: the folder holds rows of another one; says where the two differ.
    """
    wanted: dict[str, JsonValue] = {
        "graph": request.graph,
        "tasks": tasks_digest(request.tasks),
        "policy": model_digest(request.policy) if request.policy is not None else None,
        "learn": request.learn,
        "calls": request.most,
        "settings": tomllib.loads(render_settings(request.settings)),
    }
    path = request.out / _MEASUREMENT_FILE
    there = _read(path, _object, "measure into another folder (--out)")
    if there is None:
        write_atomically(path, json.dumps(wanted, indent=1).encode("ascii"))
        return
    changes = differences(there, wanted)
    if changes:
        raise UserError(
            f"{request.out}: holds rows of another measurement ({'; '.join(changes)}); name another folder "
            "(--out), or ask as before."
        )


def _measured(request: AblationRequest, part: str, whole: Path | None) -> AblationRow:
    settings = settings_without(request.settings, part)
    row = AblationRow(part=part)
    with opened_store(None, settings, create=False) as store:
        if store is None:
            raise UserError("ablate: nothing is recorded; make recordings with dreamgym-kit record.")
        if part not in LEARNING_ONLY:
            figures = waited(lambda: _fidelity(request, settings, store))
            row = replace(row, calls=figures.calls, answered=figures.answered, exact=figures.exact)
            if request.policy is not None:
                evaluation = _evaluated(request, settings, store, part, request.policy, real=False)
                row = replace(row, dream=_mean(evaluation), inconclusive=evaluation.b.inconclusive)
        if request.learn:
            row = _learned(request, settings, store, row, whole)
    return row


async def _fidelity(request: AblationRequest, settings: Settings, store: TransitionStore) -> Fidelity:
    specs = (await inspect_graph(request.graph, settings)).specs()
    rows = list(store.scan(tenant=settings.tenant))
    budget = RunBudget(calls=settings.budget.max_calls, usd=settings.budget.max_usd)
    async with AsyncExitStack() as stack:
        chat = await stack.enter_async_context(experience_endpoint(settings, budget, dreams=True))

        def finish(first: ExperienceModel, seen: Sequence[Transition]) -> ExperienceModel:
            shown = frozenset(row.id for row in seen)  # the model is shown no held-out episode either
            decides = stack.enter_context(with_decisions(first, settings))
            model = with_model(first, chat, settings, store, before=decides, only=shown)
            assert model is not None  # there is a first one
            return model

        return await fidelity(
            rows, finish, specs, threshold=settings.simulate.min_confidence, most=request.most
        )


def _learned(
    request: AblationRequest, settings: Settings, store: TransitionStore, row: AblationRow, whole: Path | None
) -> AblationRow:
    """Train in this dream, and try what came of it on the real tools."""
    from dreamgym_kit.adapters.langgraph.training.train import train

    place = request.out / row.part / "training"
    learned_from = [task for task in request.tasks if task.split is Split.TRAIN]
    done = train(
        request.graph,
        learned_from,
        policy=request.policy,
        settings=settings,
        buffer=store,
        run_dir=place,
        resume=to_resume(place),
    )
    assert request.policy is not None  # asked for above
    trial = _evaluated(
        request, settings, store, row.part, done.weights or request.policy, real=True, against=whole
    )
    claim = (
        trial.beating.phrase("learned in the whole dream", "learned without it") if trial.beating else None
    )
    alarm = done.trained.alarm
    return replace(row, real=_mean(trial), against_whole=claim, alarm=str(alarm) if alarm else None)


def _evaluated(
    request: AblationRequest,
    settings: Settings,
    store: TransitionStore,
    part: str,
    policy: Path,
    *,
    real: bool,
    against: Path | None = None,
) -> Evaluation:
    """Try a policy on the held-out tasks, or on those of the training split where the dream knows them."""
    wanted = Split.HELD_OUT if real else Split.TRAIN
    chosen = [task for task in request.tasks if task.split is wanted]
    if not real and not chosen:
        chosen = list(request.tasks)
    return evaluate(
        request.graph,
        chosen,
        real=real,
        settings=replace(settings, evaluate=EvaluateSettings()),  # only [faults], and in a dream only
        buffer=None if real else store,
        policy=policy,
        baseline=against,
        repeats=settings.train.eval_n,
        run_dir=_free(request.out / part / ("real" if real else "dream")),
    )


def _free(place: Path) -> Path:
    """A run directory that was broken off is no result: it is moved aside, and the run is made anew."""
    if place.exists():
        number = 1
        while (aside := place.with_name(f"{place.name}-broken-{number}")).exists():
            number += 1
        place.rename(aside)
    return place


def _mean(evaluation: Evaluation) -> float | None:
    return evaluation.b.once.mean if evaluation.b.once is not None else None


def _read(path: Path, read: Callable[[Any], Record], advice: str) -> Record | None:
    try:
        return read(read_json(read_whole(path)))
    except FileNotFoundError:
        return None
    except NotSerializable as error:
        raise UserError(f"{path}: is damaged ({error}); {advice}.") from error


def _object(value: object) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}
