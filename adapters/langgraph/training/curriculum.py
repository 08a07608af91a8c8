"""A training's curriculum, put together from settings: who is alike, who makes tasks, who judges them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.embedders.choosing import embedder_of
from dreamgym_kit.adapters.embedders.models import HashedEmbedder
from dreamgym_kit.adapters.langgraph.analysis.loading import load_named
from dreamgym_kit.adapters.langgraph.analysis.references import checkers_of
from dreamgym_kit.adapters.langgraph.training.rollouts import Rollouts
from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.curriculum.curriculum import Curriculum, CurriculumPlan, TaskBounds, Workshop
from dreamgym_kit.curriculum.makers import AGREED, Agreed, ModelMaker, RuleMaker, agreed_error
from dreamgym_kit.curriculum.task_sampler import Clusters
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.findings.text import leaves
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import ChatEndpoint, Checker, TaskMaker, TransitionStore
from dreamgym_kit.replay.masking import process_masker
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.training.samples import COMPARED
from dreamgym_kit.types import Environment, Task

ENDPOINT = "experience"
"""The name in `curriculum.judges` for the dream's own model."""
_MAX_VALUES = 2_000  # of a world
_LONGEST = 80  # characters of a value that a task may speak of


def curriculum_of(
    settings: Settings,
    tasks: Sequence[Task],
    held_out: Sequence[Task],
    rollouts: Rollouts,
    *,
    store: TransitionStore | None,
    folder: Path,
    judged_apart: bool = False,
) -> Curriculum | None:
    """The curriculum that settings ask for; None: the tasks go in turn.

    Args:
        settings: `[curriculum]` and `[train]` among them.
        tasks: to learn from.
        held_out: to measure with: nothing that is made may be like them.
        rollouts: run what is chosen.
        store: what the dream answers from; None: it does not say which worlds it knows.
        folder: where what was made is kept.
        judged_apart: a judge of the training's own rewards the given tasks, and it errs as any model's.

    Raises:
        UserError: settings name a maker or judges that cannot be used; nothing was learned.
    """
    wanted = settings.curriculum
    if not wanted.enabled:
        return None
    apart = {task.id for task in tasks} if judged_apart else set[str]()
    embedder = embedder_of(settings) or HashedEmbedder()
    judges = _judges(settings, rollouts.chat)
    makers = _makers(settings, rollouts.chat)
    environments = RecordedValues(store, settings.tenant)
    workshop = Workshop(
        makers=makers,
        bounds=TaskBounds(
            held_out=held_out,
            given=tasks,
            recorded=environments.recorded,
            known_values=environments.values,
            embedder=embedder,
        ),
        judged=lambda task: _judged(task, settings, judges),
        admit=lambda made: rollouts.admit(made, judges),
        folder=folder,
    )
    return Curriculum(
        CurriculumPlan(
            tasks=tasks,
            settings=wanted,
            per_step=settings.train.tasks_per_step,
            seed=settings.train.seed,
            error=lambda task: wanted.judge_error if task.id in apart else _error(task, wanted.judge_error),
            clusters=Clusters(wanted.clusters, embedder),
            workshop=workshop if makers else None,
            by_cluster=settings.train.algorithm not in COMPARED,
        )
    )


class RecordedValues:
    """What recordings say of a world: whether there are any, and the short values in its answers."""

    def __init__(self, store: TransitionStore | None, tenant: str) -> None:
        self._store, self._tenant = store, tenant
        self.values = lru_cache(maxsize=512)(self._values)
        self.recorded = lru_cache(maxsize=4096)(self._recorded)

    def _recorded(self, environment: Environment) -> bool:
        if self._store is None:
            return True
        with egress.exempt():  # the buffer is the kit's own file
            return (
                next(iter(self._store.scan(tenant=self._tenant, environment=environment)), None) is not None
            )

    def _values(self, environment: Environment) -> tuple[str, ...]:
        values: dict[str, None] = {}
        if self._store is None:
            return ()
        with egress.exempt():
            for row in self._store.scan(tenant=self._tenant, environment=environment):
                values.update(dict.fromkeys(_short_values(row.answer.content)))
                if len(values) >= _MAX_VALUES:
                    break
        return tuple(values)[:_MAX_VALUES]


def _short_values(content: JsonValue) -> Iterator[str]:
    """Yield the short texts and numbers in an answer, including JSON in a text."""
    for leaf in leaves(content):
        inner = _parsed(leaf) if isinstance(leaf, str) else None
        if inner is not None:
            yield from _short_values(inner)
        elif not isinstance(leaf, str) or 0 < len(leaf) <= _LONGEST:
            yield str(leaf)


def _parsed(text: str) -> JsonValue:
    """The object or list that a text spells; None where it is plain text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return read_json(text)
    except NotSerializable:
        return None


def _makers(settings: Settings, chat: ChatEndpoint | None) -> list[TaskMaker]:
    wanted, makers = settings.curriculum, list[TaskMaker]()
    if wanted.task_generator is not None:
        where = settings.where("curriculum", "task_generator")
        made: Any = load_named(wanted.task_generator, kind="maker", where=where, folder=settings.folder)
        if not callable(made):
            raise UserError(
                f"{where}: maker '{wanted.task_generator}' is of type {type(made).__name__}, not a function"
            )
        makers.append(RuleMaker(made, wanted.task_generator))
    if wanted.llm_variations:
        where = settings.where("curriculum", "llm_variations")
        if chat is None:
            raise UserError(
                f"{where}: curriculum.llm_variations has the endpoint's model make variations, and there "
                "is none; "
                "set experience.urls and experience.model, or leave vary out."
            )
        if wanted.checker is None and not wanted.judges:
            raise UserError(
                f"{where}: nobody may judge the variations that a model makes. Name one checker that judges "
                "any task of these environments (curriculum.checker), or two that have to agree: "
                'curriculum.judges = ["experience", "my_agent.checks:judge"].'
            )
        makers.append(ModelMaker(chat))
    if makers and int(wanted.synthetic * settings.train.tasks_per_step) < 1:
        where, per_step = settings.where("curriculum", "synthetic"), settings.train.tasks_per_step
        raise UserError(
            f"{where}: {wanted.synthetic:g} of the {per_step} tasks of a step (train.tasks_per_step) is less "
            "than "
            "one, so no task that is made would ever be drawn; raise one of the two, or make none."
        )
    return makers


def _judges(settings: Settings, chat: ChatEndpoint | None) -> dict[str, Checker]:
    """The checker of made tasks that nobody else judges: all judges of the settings, who have to agree."""
    names = settings.curriculum.judges
    if not names:
        return {}
    where = settings.where("curriculum", "judges")
    if len(set(names)) < 2:
        raise UserError(
            f"{where}: curriculum.judges names one judge; a made task needs two that have to agree, for one "
            "that errs in 5 % of its verdicts makes a third of the impossible tasks look learnable."
        )
    judges: dict[str, Checker] = {}
    for name in names:
        if name != ENDPOINT:
            judges[name] = checkers_of(settings, [Task("curriculum.judges", {}, checker=name)])[name]
        elif chat is None:
            raise UserError(f"{where}: 'experience' is to judge, and there is none; set experience.urls.")
        else:
            from dreamgym_kit.dream.judge import ModelJudge

            by_model: Any = ModelJudge(chat).judge  # awaited, too
            judges[name] = by_model
    for name, other in combinations(judges, 2):
        if judges[name] is judges[other]:
            raise UserError(
                f"{where}: curriculum.judges names '{name}' and '{other}', which are the same judge: its "
                "second word says nothing new."
            )
    agreed: Any = Agreed(judges)  # awaited by whoever asks it, as checkers of a user's may be
    return {AGREED: agreed}


def _judged(task: Task, settings: Settings, judges: Mapping[str, Checker]) -> Task | None:
    """A made task with who judges it, and without secrets of this process; None where nobody may judge it."""
    masked: Any = process_masker(settings.experience.key_env).plain(dict(task.input))
    task = replace(task, input=masked)
    if task.checker is not None or task.expect:  # its maker's own, who knows what is right
        return task
    if settings.curriculum.checker is not None:
        return replace(task, checker=settings.curriculum.checker)
    return replace(task, checker=AGREED) if judges else None


def _error(task: Task, error: float) -> float:
    """Share of a task's verdicts that are wrong: of agreeing judges, of a checker, of a model alone."""
    if task.checker == AGREED:
        return agreed_error(error)
    return 0.0 if task.checker is not None or task.expect else error
