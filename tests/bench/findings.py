"""Do the detectors find what is wrong, and nothing where nothing is? 500 desk episodes that err, and experts.

Each planted episode errs in one way, in one of several forms, and is run in the dream like any other; it is
found when a finding of that kind stands in it. Clean episodes are those in which the good colleague succeeds
(some ask for leave first and get it); an alarm there is any finding at all. `recorded_alarms` is the same
over the shipped tasks and recordings, with the dream as users have it. The optional detectors are on.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from erring_desk import (
    DOWN,
    NO,
    NOT_ALLOWED,
    YES,
    AfterYes,
    AgainstNo,
    Blind,
    Circles,
    Claims,
    Denies,
    DeskDouble,
    Err,
    ErringDeskModel,
    MadeUp,
    RoundARefusal,
    Swallowed,
    TwiceAtOnce,
    Unapproved,
    Unasked,
    Unread,
    replayed,
)

from dreamgym_kit.adapters.langgraph.run.api import simulate
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.findings.detectors import OPTIONAL
from dreamgym_kit.recipes.desk.cases import TRAIN_SEEDS, make_case
from dreamgym_kit.recipes.desk.database import Desk, DeskError, refund_share, scratch_desk
from dreamgym_kit.recipes.desk.graph import graph, simple_graph
from dreamgym_kit.recipes.desk.policy import ScriptCall, ScriptReply
from dreamgym_kit.recipes.desk.record import RECORDINGS_FILE, SETTINGS_FILE
from dreamgym_kit.recipes.desk.tasks import TASKS_FILE, task_record
from dreamgym_kit.replay.transfer import import_jsonl
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.rollout.tasks import read_tasks, task_from_record
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.settings.schema import FindingsSettings, Settings
from dreamgym_kit.types import Episode, Task, Verdict

PLANTED, CLEAN, ASKING = 500, 500, 40
APPROVAL = ("delete_customer",)
_REFUNDS = {"refused": "refund_payment"}
KINDS: Mapping[str, Sequence[tuple[type[Err], int, Mapping[str, object]]]] = {
    "repeated_write": ((TwiceAtOnce, 0, {}), (TwiceAtOnce, 1, {}), (TwiceAtOnce, 2, {}), (Blind, 0, {})),
    "made_up_argument": ((MadeUp, 0, {}), (MadeUp, 1, {})),
    "write_before_read": ((Unread, 0, {}),),
    "write_after_refusal": (
        (AgainstNo, 0, {"user": (NO,)}),
        (Unapproved, 0, {}),
        (RoundARefusal, 0, {**_REFUNDS, "refusal": NOT_ALLOWED}),
    ),
    "unasked_destructive": ((Unasked, 0, {}), (Unasked, 1, {})),
    "loop": ((Circles, 0, {}), (Circles, 1, {}), (Circles, 2, {})),
    "swallowed_error": (
        (Swallowed, 0, {**_REFUNDS, "refusal": DOWN}),
        (Swallowed, 0, {"refused": "cancel_order", "refusal": DOWN}),
        (Swallowed, 0, {"refused": "send_mail", "refusal": DOWN}),
        (Swallowed, 0, {"refused": "update_address", "refusal": DOWN}),
        (Swallowed, 0, {"refused": "delete_customer", "refusal": DOWN}),
    ),
    "contradicting_answer": ((Claims, 0, {}), (Claims, 1, {}), (Denies, 0, {}), (Denies, 1, {})),
}

_counted: dict[str, tuple[int, int]] = {}  # kind -> planted, found


def measure(seed: int) -> list[tuple[str, float, str]]:
    """All of it."""
    return figures(seed, planted=PLANTED, clean=CLEAN, asking=ASKING, recorded=True)


def quick(seed: int) -> list[tuple[str, float, str]]:
    """A tenth of it."""
    return figures(seed, planted=48, clean=45, asking=5, recorded=False)


def table() -> str:
    """Found by kind."""
    lines = [f"| {kind} | {planted} | {found} |" for kind, (planted, found) in _counted.items()]
    return "\n".join(["| planted | episodes | found |", "| --- | --- | --- |", *lines])


def figures(
    seed: int, *, planted: int, clean: int, asking: int, recorded: bool
) -> list[tuple[str, float, str]]:
    """Run, look, count.

    Raises:
        RuntimeError: an episode did not err as planned, or an expert did not succeed.
    """
    kinds = planned(TRAIN_SEEDS.start + 10_000 * (seed + 1), planted)
    plans = {plan.seed: plan for _, plan in kinds}
    episodes = dreamed(plans, approval=APPROVAL)
    unplanted = [plan for plan in plans.values() if not plan.erred]
    if unplanted:
        raise RuntimeError(
            f"{len(unplanted)} planted episodes did not err, the first in world {unplanted[0]}"
        )
    found = {plan.seed: _kinds(episodes[plan.seed]) for plan in plans.values()}
    _counted.clear()
    for kind in KINDS:
        mine = [plan.seed for named, plan in kinds if named == kind]
        _counted[kind] = len(mine), sum(kind in found[one] for one in mine)
    experts = experts_of(TRAIN_SEEDS.start + 10_000 * (seed + 1) + 90_000, clean, asking)
    alarmed = [bool(_kinds(episode)) for episode in experts]
    total, hits = (sum(counted) for counted in zip(*_counted.values(), strict=True))
    rows: list[tuple[str, float, str]] = [
        ("found", hits / total, "of planted episodes"),
        ("false_alarms", sum(alarmed) / len(alarmed), "of clean expert episodes"),
        ("planted", total, "episodes"),
        ("clean", len(alarmed), "episodes"),
        *((f"found_{kind}", hit / count, f"of {count}") for kind, (count, hit) in _counted.items()),
    ]
    if recorded:
        rows.append(("recorded_alarms", recorded_alarms(), "of clean expert episodes"))
    return rows


def planned(start: int, count: int) -> list[tuple[str, Err]]:
    """Worlds and the errors that happen in them: each kind as often, its forms in turn."""
    plans: list[tuple[str, Err]] = []
    seeds = iter(range(start, TRAIN_SEEDS.stop))
    for place, (kind, forms) in enumerate(KINDS.items()):
        share = count // len(KINDS) + (place < count % len(KINDS))
        per_form = [share // len(forms) + (number < share % len(forms)) for number in range(len(forms))]
        for (err, form, more), wanted in zip(forms, per_form, strict=True):
            found = 0
            while found < wanted:
                plan = err(seed=next(seeds), form=form, **more)
                if errs(plan):
                    plans.append((kind, plan))
                    found += 1
    return plans


def errs(plan: Err) -> bool:
    """Whether this error happens in its world, tried on the desk itself."""
    text, replies = make_case(plan.seed).text, []
    said = list(plan.user)
    with scratch_desk(make_case(plan.seed).rows) as desk:
        while not isinstance(turn := replayed(plan, text, replies), str):
            if not turn.uses:
                if not said:
                    return False
                replies.append([ScriptReply(said.pop(0))])
                continue
            replies.append([_tried(desk, plan, use) for use in turn.uses])
    return plan.erred


def _tried(desk: Desk, plan: Err, use: ScriptCall) -> ScriptReply:
    if use.tool == "refund_quote":
        return ScriptReply(refund_share(**use.args))
    if use.tool == "summarise_case":
        return ScriptReply({})
    if use.tool == plan.refused and plan.seed not in _refused_once:
        _refused_once.add(plan.seed)
        return ScriptReply(error=plan.refusal)
    try:
        return ScriptReply(desk.call(use.tool, use.args))
    except DeskError as error:
        return ScriptReply(error=str(error))


_refused_once: set[int] = set()


def dreamed(plans: Mapping[int, Err], *, approval: Sequence[str] = ()) -> dict[int, Episode]:
    """Run the plans in the dream; episodes by world."""
    tasks = [_task(plan) for plan in plans.values()]
    settings = _settings(FindingsSettings(approval=tuple(approval)))
    with tempfile.TemporaryDirectory() as folder:
        done = simulate(
            simple_graph(ErringDeskModel(plans=plans)),
            tasks,
            settings=settings,
            experience=DeskDouble(plans),
            run_dir=Path(folder) / "run",
        )
        episodes = {
            episode.environment.variant: episode for episode in RunDirectory.open(done.directory).episodes()
        }
    if len(episodes) != len(tasks):
        raise RuntimeError(f"{len(episodes)} of {len(tasks)} episodes came to an end")
    return episodes


def experts_of(start: int, clean: int, asking: int) -> Iterator[Episode]:
    """Successful episodes of the good colleague, some of whom ask before they delete."""
    plain = {seed: Err(seed) for seed in range(start, start + clean)}
    yield from _successes(dreamed(plain))
    polite: dict[int, Err] = {}
    for seed in range(start + clean, TRAIN_SEEDS.stop):
        plan = AfterYes(seed, user=(YES,))
        if len(polite) < asking and errs(plan):
            polite[seed] = plan
        elif len(polite) == asking:
            break
    yield from _successes(dreamed(polite, approval=APPROVAL))


def recorded_alarms() -> float:
    """The share of alarms where the expert works the shipped tasks, dreamed from the shipped recordings."""
    store = MemoryStore()
    import_jsonl(RECORDINGS_FILE, store)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        factory = graph("scripted:fixed")
        done = simulate(
            factory, read_tasks(TASKS_FILE), settings=_settings(), buffer=store, run_dir=directory
        )
        episodes = list(_successes(dict(enumerate(RunDirectory.open(done.directory).episodes()))))
    return sum(bool(_kinds(episode)) for episode in episodes) / len(episodes)


def _successes(episodes: Mapping[int, Episode]) -> Iterator[Episode]:
    found = [episode for episode in episodes.values() if episode.verdict is Verdict.PASSED]
    if len(found) < 0.9 * len(episodes):
        worst = next(episode for episode in episodes.values() if episode.verdict is not Verdict.PASSED)
        raise RuntimeError(
            f"only {len(found)} of {len(episodes)} experts succeed; {worst.id}: {worst.reason}"
        )
    yield from found


def _task(plan: Err) -> Task:
    record = task_record(f"{type(plan).__name__.lower()}-{plan.form}-{plan.seed}", plan.seed)
    if plan.user:
        record["meta"] = {"user": {"script": list(plan.user)}}
    return task_from_record(record, source="bench")


def _settings(findings: FindingsSettings | None = None) -> Settings:
    settings = load_settings(file=SETTINGS_FILE, environ={})
    chosen = replace(findings or settings.findings, on=tuple(OPTIONAL))
    return replace(settings.with_overrides({"simulate.repeats": 1}), findings=chosen)


def _kinds(episode: Episode) -> set[str]:
    return {finding.kind for finding in episode.findings}
