"""A shop's recordings by hand: orders that can be read and cancelled, refused where they are shipped."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

from dreamgym_kit.adapters.distilling.material import trajectories
from dreamgym_kit.adapters.langgraph.run.experiences import RecordedAnswers
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.dream.programs.experience import ProgramTracker
from dreamgym_kit.training.annotation import Annotation, StepNote, Trajectory
from dreamgym_kit.training.lessons import CallLesson, Counts, Leaving, Sight, lessons_of
from dreamgym_kit.types import Answer, Call, Effect, Environment, Split, ToolSpec, Transition, history_digest

SPECS = {
    "get_order": ToolSpec("get_order", Effect.READ, "Read an order."),
    "cancel_order": ToolSpec("cancel_order", Effect.WRITE, "Cancel an order."),
}
STATUSES = ("open", "shipped", "open")
WHOLE = Leaving(0, 0, 0)


def episode(
    seed: int, number: int, *, split: Split = Split.TRAIN, task: str | None = None, again: bool = True
) -> list[Transition]:
    """Look at an order, cancel it, and (`again`) look once more."""
    order = f"o{seed}{number}"
    status = STATUSES[(seed + number) % 3]
    told = {"order_id": order, "status": status, "days": seed}
    done = Answer({"order_id": order, "cancelled": "yes"})
    refused = Answer(error=f"{order} is shipped", error_type="ToolException")
    after = told if status == "shipped" else {**told, "status": "cancelled"}
    calls = [
        ("get_order", Answer(told)),
        ("cancel_order", refused if status == "shipped" else done),
        *([("get_order", Answer(after))] if again else []),
    ]
    rows, writes = [], []
    for step, (tool, answer) in enumerate(calls, 1):
        call = Call(tool, {"order_id": order})
        rows.append(
            Transition(
                *(call, answer, SPECS[tool].effect, f"e{seed}-{number}", step),
                *(Environment("shop", seed), task or f"t{seed}", history_digest(writes)),
                split=split,
            )
        )
        if SPECS[tool].effect.changes_environment:
            writes.append(call.key)
    return rows


def shop(worlds: int = 4, episodes: int = 3) -> list[Transition]:
    return [
        row for seed in range(1, worlds + 1) for number in range(episodes) for row in episode(seed, number)
    ]


def noted(one: Trajectory, **changes) -> Annotation:
    """Says of each step what its answer was."""
    notes = [StepNote(row.step, f"{row.call.args['order_id']} was seen.", **changes) for row in one.steps]
    return Annotation(one.key, "the test", tuple(notes))


def taught(
    folder: Path, rows: Sequence[Transition], leaving: Leaving = WHOLE, *, seed: int = 0, annotate=noted
) -> tuple[list[CallLesson], Counts, SimpleNamespace]:
    """Lessons of the last world, of which nothing else is known; and the sight that they were made with."""
    with closing(SqliteStore(folder / "shop.db")) as store:
        store.put(rows)
        every = trajectories(rows)
        last = max(str(one.environment) for one in every)
        others = [row for row in rows if str(row.environment) != last]
        recorded = RecordedAnswers(store, frozenset(row.id for row in others))
        programs = ProgramTracker(lambda tenant: others, {}, measured=False)
        sight = Sight(recorded.examples, recorded.schema, recorded.facts, programs)
        counts, found = Counts(), []
        for one in every:
            if str(one.environment) == last:
                found += lessons_of(one, annotate(one), sight, SPECS, counts, leaving=leaving, seed=seed)
    own = {row.id: row for row in rows}
    return found, counts, SimpleNamespace(sight=sight, rows=own, last=last, others=others)
