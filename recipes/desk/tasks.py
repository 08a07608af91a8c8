"""The desk's tasks: which seeds are shipped, their form as JSON lines, and other requests like a given one.

`python -m dreamgym_kit.recipes.desk.tasks OUT.jsonl` writes the file that is shipped as data/tasks.jsonl.
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from dreamgym_kit.interfaces import Pattern
from dreamgym_kit.recipes.desk.cases import (
    CITIES,
    FAMILIES,
    HELD_OUT_SEEDS,
    TRAIN_SEEDS,
    WORDINGS,
    family_of,
    make_case,
    split_of,
)
from dreamgym_kit.recipes.desk.database import COLUMNS
from dreamgym_kit.rollout.tasks import task_from_record
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Split, Task

TASKS_FILE = Path(__file__).parent / "data" / "tasks.jsonl"
CHECKER = "desk"
_WORLD = "desk"

_REFUND_FAMILIES = frozenset({"double", "cancel", "broken"})
_SHIPPED_ROUNDS = 50  # of worlds: shipped tasks and benches take theirs from the first of each family
_PER_SPLIT = {True: (8, 4), False: (4, 2)}  # of a refund family or another: train and held-out tasks


def desk_tasks() -> Iterator[dict[str, JsonValue]]:
    """All shipped tasks, family by family, as the objects of data/tasks.jsonl."""
    for place, family in enumerate(FAMILIES):
        train, held_out = _PER_SPLIT[family in _REFUND_FAMILIES]
        seeds = [*_seeds(TRAIN_SEEDS, place, train), *_seeds(HELD_OUT_SEEDS, place, held_out)]
        for number, seed in enumerate(seeds, start=1):
            yield task_record(f"{family}-{number:02d}", seed)


def task_record(task_id: str, seed: int) -> dict[str, JsonValue]:
    """One task as the object of a line; also for worlds beyond those shipped."""
    case = make_case(seed)
    return {
        "id": task_id,
        "input": case.text,
        "world": {"name": _WORLD, "seed": seed},
        "checker": CHECKER,
        "split": str(split_of(seed)),
        "meta": {"family": case.family},
    }


def drawn_tasks(count: int, *, split: Split = Split.TRAIN, seed: int = 0) -> list[Task]:
    """Tasks in worlds beyond those shipped, families in turn; equal arguments give equal tasks.

    Drawn without repetition, and never one of a shipped task's world.
    """
    seeds = TRAIN_SEEDS if split is Split.TRAIN else HELD_OUT_SEEDS
    first = seeds.start + len(FAMILIES) * _SHIPPED_ROUNDS
    first += -first % len(FAMILIES)  # a world of the first family
    rounds = (seeds.stop - first) // len(FAMILIES)
    chance = random.Random(f"tasks {split} {seed}")  # noqa: S311  reproducible, not secret
    chosen = chance.sample(range(rounds), -(-count // len(FAMILIES)))
    environments = [
        first + round_ * len(FAMILIES) + place for round_ in chosen for place in range(len(FAMILIES))
    ]
    return [
        task_from_record(
            task_record(f"{family_of(environment)}-{environment}", environment), source="drawn task"
        )
        for environment in environments[:count]
    ]


def like(pattern: Pattern, count: int, seed: int) -> list[Task]:
    """Give up to `count` requests like the pattern's, none for other worlds; equal arguments, equal ones.

    The same kind of request, of the customer whose desk it is, about another order, item or city; in the desk
    of the pattern first, then in the others. The desk's checker judges any of them: it works out from the
    words what a good colleague would have done. Named by `curriculum.task_generator`.
    """
    here, variants = pattern.task.environment, [environment.variant for environment in pattern.environments]
    if here.name != _WORLD:
        return []
    chance = random.Random(f"like {pattern.task.id} {seed}")  # noqa: S311  reproducible, not secret
    family = str(pattern.task.meta.get("family", ""))
    first, *elsewhere = variants or [here.variant]
    chance.shuffle(elsewhere)
    made: list[Task] = []
    for environment in [first, *elsewhere]:
        if len(made) >= count:
            break
        texts = list(_requests(family, environment))
        chance.shuffle(texts)
        form = task_record(pattern.task.id, environment) | {"meta": {"family": family}}
        made += [
            task_from_record(form | {"input": text}, source="a request like another")
            for text in texts[: count if environment == first else 1]
        ]
    return made[:count]


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


def write_tasks(path: Path) -> int:
    """Write all tasks; gives their number."""
    lines = [json.dumps(task) for task in desk_tasks()]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def _seeds(seeds: range, place: int, count: int) -> list[int]:
    """The first seeds of a range that belong to the family at this place."""
    first = seeds.start + (place - seeds.start) % len(FAMILIES)
    return [first + number * len(FAMILIES) for number in range(count)]


if __name__ == "__main__":
    written = Path(sys.argv[1]) if len(sys.argv) > 1 else TASKS_FILE
    sys.stdout.write(f"{write_tasks(written)} tasks in {written}\n")
