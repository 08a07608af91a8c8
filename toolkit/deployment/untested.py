"""What an evaluation says nothing about: told on the card, lest anybody read more into it than was tried."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from dreamgym_kit.report.evaluation import Evaluation
from dreamgym_kit.vocabulary import Split, Task

_SHOWN = 12  # names in a sentence


def untested(found: Evaluation | None, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Sentences, the most telling first; `tasks` are all that there are, on both sides of the line."""
    if found is None:
        return ("Everything: it was deployed without an evaluation on the real tools.",)
    return tuple(_told(found, tasks))


def _told(found: Evaluation, tasks: Sequence[Task]) -> Iterator[str]:
    summary, tried = found.b.summary, {one.task for one in found.b.outcomes}
    worlds = sorted({task.world.name for task in tasks if task.id in tried})
    kinds = f" of {len(found.b.families)} kinds" if found.b.families else ""
    if not found.b.real:
        yield "The real tools: it was tried in a dream only."
    yield f"Requests other than these {len(tried)} tasks{kinds}, and worlds other than {_named(worlds)}."
    families = {
        str(task.meta["family"]) for task in tasks if task.split is Split.TRAIN and "family" in task.meta
    }
    left = sorted(families - set(found.b.families))
    if left:
        yield f"Kinds of tasks that it learned from and was not tried on: {_named(left)}."
    effects = summary.fact("effects")
    idle = sorted(set(effects) - {use.name for use in summary.tools}) if isinstance(effects, Mapping) else []
    if idle:
        yield f"Tools that no episode of the evaluation called: {_named(idle)}."
    if not summary.faults:
        yield "Tools that fail, are slow or answer nonsense: none was made to."
    policy = summary.fact("policy")
    if isinstance(policy, Mapping):
        yield (
            f"Sampling other than at temperature {policy.get('temperature')} with at most "
            f"{policy.get('max_output')} tokens an answer; and the server that it will be used behind."
        )
    yield "Input that is meant to mislead it, other languages, and load."
    if found.b.inconclusive:
        yield f"{found.b.inconclusive} of its {found.b.episodes} episodes could not be judged."


def _named(names: Collection[str]) -> str:
    told = list(names)
    more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return ", ".join(f"'{name}'" for name in told[:_SHOWN]) + more
