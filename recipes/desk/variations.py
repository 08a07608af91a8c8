"""Other requests like a given one, by rules: what else a desk's customer could ask, in desks that are known.

Same kind of request, of the customer whose desk it is, about another order, item or city; in the desk of the
pattern first, then in the others. The desk's checker judges any of them: it works out from the words what a
good colleague would have done. Named by `curriculum.task_generator`; it gets an `interfaces.Pattern`.
"""

import random
from collections.abc import Iterator

from dreamgym_kit.interfaces import Pattern
from dreamgym_kit.recipes.desk.cases import CITIES, WORDINGS, make_case
from dreamgym_kit.recipes.desk.database import COLUMNS
from dreamgym_kit.recipes.desk.tasks import task_record
from dreamgym_kit.rollout.tasks import task_from_record
from dreamgym_kit.types import Task

_WORLD = "desk"


def like(pattern: Pattern, count: int, seed: int) -> list[Task]:
    """Give up to `count` requests like the pattern's, none for other worlds; equal arguments, equal ones."""
    if pattern.task.environment.name != _WORLD:
        return []
    chance = random.Random(f"like {pattern.task.id} {seed}")  # noqa: S311  reproducible, not secret
    family = str(pattern.task.meta.get("family", ""))
    here, *elsewhere = [environment.variant for environment in pattern.environments] or [
        pattern.task.environment.variant
    ]
    chance.shuffle(elsewhere)
    made: list[Task] = []
    for environment in [here, *elsewhere]:
        if len(made) >= count:
            break
        texts = list(_requests(family, environment))
        chance.shuffle(texts)
        most = count if environment == here else 1
        made += [_task(pattern, family, environment, text) for text in texts[:most]]
    return made[:count]


def _task(pattern: Pattern, family: str, environment: int, text: str) -> Task:
    """The pattern's form with other words, in this desk."""
    record = task_record(pattern.task.id, environment) | {"input": text, "meta": {"family": family}}
    return task_from_record(record, source="a request like another")


def _requests(family: str, environment: int) -> Iterator[str]:
    """All that the customer of this desk could ask of this kind."""
    case = make_case(environment)
    rows = {
        table: [dict(zip(columns, row, strict=True)) for row in case.rows[table]]
        for table, columns in COLUMNS.items()
    }
    me = next(row for row in rows["customers"] if row["id"] == case.customer_id)
    mine = [row for row in rows["orders"] if row["customer_id"] == me["id"]]
    others = [row for row in rows["orders"] if row["customer_id"] != me["id"]]
    about = others if family == "stranger" else mine
    for wording in WORDINGS.get("cancel" if family == "stranger" else family, ()):
        if "{city}" in wording:
            for city in CITIES:
                if city != me["city"]:
                    yield wording.format(name=me["name"], city=city)
        elif "{order}" in wording or "{item}" in wording:
            for order in about:
                yield wording.format(name=me["name"], order=order["id"], item=order["item"])
        else:
            yield wording.format(name=me["name"])
