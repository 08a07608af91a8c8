"""A training's curriculum, put together from settings: who is alike, whose verdicts are doubted."""

from collections.abc import Sequence

from dreamgym_kit.adapters.embedders.choosing import embedder_of
from dreamgym_kit.adapters.embedders.hashed import HashedEmbedder
from dreamgym_kit.curriculum.clusters import Clusters
from dreamgym_kit.curriculum.curriculum import Curriculum, CurriculumPlan
from dreamgym_kit.settings.model import Settings
from dreamgym_kit.vocabulary import Task


def curriculum_of(settings: Settings, tasks: Sequence[Task]) -> Curriculum | None:
    """The curriculum that settings ask for; None: the tasks go in turn."""
    wanted = settings.curriculum
    if not wanted.use:
        return None
    return Curriculum(
        CurriculumPlan(
            tasks=tasks,
            settings=wanted,
            per_step=settings.train.tasks,
            seed=settings.train.seed,
            doubted=_by_a_model_alone,
            clusters=Clusters(wanted.clusters, embedder_of(settings) or HashedEmbedder()),
        )
    )


def _by_a_model_alone(task: Task) -> bool:
    """Nobody but a model can judge it: neither checker nor expectations."""
    return task.checker is None and not task.expect
