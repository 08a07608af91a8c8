"""What workers cannot be told of is refused by name before anything runs; what they are told is data."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row

from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.workers import check_worker_compatible, settings_of, worker_facts
from dreamgym_kit.adapters.models.named_models import NamedPolicy
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import UserError
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Task

SAID = """
[workers]
count = 2
[simulate]
seed = 7
[faults."refund_*"]
rate = 0.5
[tools.refund]
effect = "write"
"""


def asked(**given: Any) -> RunRequest:
    settings = parse_settings(SAID, path=Path("/project/dreamgym.toml"))
    return RunRequest(**{"graph": "agent:graph", "tasks": [Task("a", {})], "settings": settings} | given)


class PolicyDouble:
    """Is a policy by its form; nothing asks it."""

    async def chat(self, request: object) -> object:
        raise AssertionError(f"asked {request}")


@each_row(
    ("given", "why"),
    [
        (lambda: {"graph": object()}, r"a graph object \(object\) cannot be sent"),
        (lambda: {"experience": PolicyDouble()}, "experience .PolicyDouble. is an object of this process"),
        (lambda: {"judge": print}, "judge .builtin_function_or_method. is an object of this process"),
        (lambda: {"policy": PolicyDouble()}, "Name a model directory instead"),
        (lambda: {"store": MemoryStore()}, "a buffer of type MemoryStore exists only in this process"),
        (lambda: {"mode": Mode.S2R}, "supervised real calls stay in this one"),
    ],
)
def test_what_workers_cannot_be_told_of_is_refused(given: Callable[[], dict[str, Any]], why: str) -> None:
    with pytest.raises(UserError, match=why):
        check_worker_compatible(asked(**given()))
    check_worker_compatible(asked(**given(), settings=Settings()))  # without workers all of it is fine


def test_a_worker_has_the_drivers_settings_and_gives_no_work_away(tmp_path: Path) -> None:
    request = asked(policy=NamedPolicy("models/agent"), store=SqliteStore(tmp_path / "b.db"))
    check_worker_compatible(request)
    given = worker_facts(request, [Task("a", {})], folder=tmp_path, label="7f3a", seed=7, trials=())
    there = settings_of(json.loads(json.dumps(given)))
    assert there.with_overrides({"workers.count": 2}) == request.settings
    assert there.workers.elsewhere == 0
    assert there.folder == Path("/project")
    assert given["store"] == {"address": str(tmp_path / "b.db"), "write": False}
    assert given["policy"] == "models/agent"
