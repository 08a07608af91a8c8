"""A real tool changes after it was recorded: how many real calls until that is caught, and what runs after?

The desk is recorded, then one of its tools answers otherwise, in one of several ways. Scripted colleagues
work the same requests on the real desk under an overseer, in the stage `live`, with nothing held.
`caught_after` is the worst of all changes: real calls of any tool from the first whose answer was changed to
the stop, both counted. `writes_after` counts writes that ran after the stop, over all changes. `false_stops`:
the unchanged desk, four times over. A change of a writing tool that its answers do not show cannot be seen,
and is not among them.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dreamgym_kit import record
from dreamgym_kit.adapters.langgraph.intercept.call_context import running
from dreamgym_kit.adapters.langgraph.run.crawling import CrawlRequest, crawl, crawl_targets
from dreamgym_kit.adapters.langgraph.run.experiences import chained_experience
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.s2r.supervisor import EarlierRecordings, open_audit, overseer_over
from dreamgym_kit.adapters.langgraph.training.rollouts import open_rollouts
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.recipes.desk.database import Desk, DeskError
from dreamgym_kit.recipes.desk.graph import simple_graph
from dreamgym_kit.recipes.desk.record import SETTINGS_FILE
from dreamgym_kit.recipes.desk.tasks import drawn_tasks
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.routing.router import Mode, Stage
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.supervision.audit import AuditLog, Entry, entries_of, verify
from dreamgym_kit.types import Task

WORLDS, FEW_WORLDS, UNCHANGED = 45, 18, 4
DESTRUCTIVE = ("refund_payment", "send_mail", "delete_customer")
WRITES = frozenset({"write", "destructive"})
Change = Callable[[Any], Any]


def renamed(old: str, new: str) -> Change:
    return lambda value: _each(value, lambda row: {new if key == old else key: row[key] for key in row})


def without(name: str) -> Change:
    return lambda value: _each(value, lambda row: {key: row[key] for key in row if key != name})


def with_more(name: str, said: str) -> Change:
    return lambda value: _each(value, lambda row: {**row, name: said})


def other(name: str, change: Callable[[str], str]) -> Change:
    return lambda value: _each(value, lambda row: {**row, name: change(row[name])} if name in row else row)


def fails(value: Any) -> Any:
    raise DeskError("this version is no longer supported")


def _each(value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    return [change(row) for row in value] if isinstance(value, list) else change(value)


CHANGES: tuple[tuple[str, str, Change], ...] = (
    ("find_customer", "a field is renamed", renamed("tier", "level")),
    ("find_customer", "other words for tiers", other("tier", str.upper)),
    ("list_orders", "a field is gone", without("item")),
    ("list_orders", "always fails", fails),
    ("get_order", "another unit", other("total", lambda text: text.replace(".", ""))),
    ("get_order", "a field more", with_more("currency", "EUR")),
    ("list_payments", "other words for states", other("status", lambda text: f"PAY_{text}")),
    ("refund_payment", "says something else", other("status", lambda _: "queued")),
    ("escalate", "always fails", fails),
    ("create_ticket", "a field is renamed", renamed("topic", "subject")),
)

_TABLE: list[str] = []


def table() -> str:
    """Change by change."""
    head = "| tool | change | real calls until caught | writes after |\n| --- | --- | --- | --- |"
    return "\n".join([head, *_TABLE])


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Every change."""
    return figures(seed, CHANGES, worlds=WORLDS, unchanged=UNCHANGED)


def quick(seed: int) -> list[tuple[str, float, str]]:
    """One change."""
    return figures(seed, CHANGES[4:5], worlds=FEW_WORLDS, unchanged=1)


def figures(
    seed: int, changes: Sequence[tuple[str, str, Change]], *, worlds: int, unchanged: int
) -> list[tuple[str, float, str]]:
    """Record once, then try each change on the same recordings."""
    _TABLE.clear()
    with tempfile.TemporaryDirectory() as scratch, closing(SqliteStore(Path(scratch) / "desk.db")) as store:
        tasks = drawn_tasks(worlds, seed=seed)
        settings = _settings(Path(scratch), seed)
        record(_desk, tasks, settings=settings, buffer=store, repeats=2)
        worked = [*crawl_targets(tasks)]
        request = CrawlRequest(
            graph=_desk, environments=worked, settings=settings, store=store, most=10**6, per_second=0
        )
        asyncio.run(crawl(request))
        caught, after = [], 0
        for number, (tool, what, change) in enumerate(changes):
            log, first = _worked(Path(scratch) / f"{number}", tasks, settings, store, tool, change)
            calls, writes = _caught(log, tool, first)
            caught.append(calls)
            after += writes
            _TABLE.append(f"| {tool} | {what} | {calls} | {writes} |")
            sys.stderr.write(_TABLE[-1] + "\n")
        stops = 0
        for number in range(unchanged):
            log, _ = _worked(
                Path(scratch) / f"same-{number}",
                tasks,
                _settings(Path(scratch), seed + number),
                store,
                "",
                fails,
            )
            stops += any(one.kind == "stopped" for one in log)
    return [
        ("caught_after", max(caught), "real calls, the worst change"),
        ("writes_after", after, "writes"),
        ("false_stops", stops, "of unchanged runs"),
    ]


def _settings(folder: Path, seed: int) -> Settings:
    desk = replace(load_settings(file=SETTINGS_FILE, environ={}), path=None)  # its lock has an MCP tool
    return desk.with_overrides(
        {
            "runs": str(folder / "runs"),
            "simulate.seed": seed,
            "s2r.max_calls": 100_000,
            "s2r.rate": 0.0,
            "s2r.auto_approve": DESTRUCTIVE,
        }
    )


def _desk() -> Any:
    return simple_graph(os.environ.get("DIVERGENCE_MODEL", "scripted:mixed"))


_desk.name = "desk"  # type: ignore[attr-defined]


@contextmanager
def _changed(tool: str, change: Change, audit: AuditLog) -> Iterator[list[int]]:
    """Change a tool for the block; gives how long the log was when an answer was first changed."""
    real, first = Desk.call, []

    def call(self: Desk, operation: str, args: Any) -> Any:
        value = real(self, operation, args)
        if operation != tool:
            return value
        if running() is not None:  # a real call; the judge works on a desk of its own
            first.append(audit.entries)
        return change(value)

    Desk.call = call  # type: ignore[method-assign]
    try:
        yield first
    finally:
        Desk.call = real  # type: ignore[method-assign]


def _worked(
    folder: Path, tasks: list[Task], settings: Settings, store: SqliteStore, tool: str, change: Change
) -> tuple[list[Entry], int]:
    """Let colleagues work on the changed desk until they are stopped, or done.

    Gives the audit log, and how long it was when an answer was first changed.
    """
    folder.mkdir()
    earlier = EarlierRecordings(store, f"{folder.name}:")
    stop = StopSwitch()
    with closing(open_audit(folder / "audit.jsonl")) as audit, _changed(tool, change, audit) as first:
        overseer = overseer_over(
            audit,
            settings,
            experience=chained_experience(earlier, settings),
            store=earlier,
            approver=None,
            on_stop=lambda stopped: stop.request(stopped.text),
        )
        request = RunRequest(
            graph=_desk,
            tasks=tasks,
            settings=settings,
            mode=Mode.S2R,
            stage=Stage.LIVE,
            overseer=overseer,
            store=None,
            experience=chained_experience(earlier, settings),
            directory=folder / "run",
            label=folder.name,
        )
        asyncio.run(_collected(request, tasks, stop))
    assert verify(folder / "audit.jsonl").whole
    return list(entries_of(folder / "audit.jsonl")), min(first, default=0)


async def _collected(request: RunRequest, tasks: list[Task], stop: StopSwitch) -> None:
    async with open_rollouts(request, stop=stop) as rollouts:
        await rollouts.collect(tasks, 2, step=1, seed=0)


def _caught(log: Sequence[Entry], tool: str, length: int) -> tuple[int, int]:
    """Real calls from the first changed one to the stop, and writes after it; all of them where none came."""
    calls = [one for one in log if one.kind == "call"]
    first = max(
        (one.number for one in calls if one.facts["tool"] == tool and one.number <= length), default=0
    )
    stops = [one.number for one in log if one.kind == "stopped" and one.facts["why"] == "diverged"]
    end = stops[0] if stops else sys.maxsize
    after = [one for one in calls if one.number > end and one.facts["effect"] in WRITES]
    seen = sum(first <= one.number < end for one in calls)
    return (seen if stops else len(calls) + 10**6), len(after)
