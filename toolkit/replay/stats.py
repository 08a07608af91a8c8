"""What a buffer holds, counted: enough to see whether a dream can answer from it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from dreamgym_kit.codec import Codec
from dreamgym_kit.interfaces import TransitionStore
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Effect


@dataclass(frozen=True, slots=True)
class ToolCount:
    """One tool's recordings."""

    transitions: int
    calls: int  # different calls: arguments, world and tenant
    errors: int  # answers that say the tool failed
    effect: Effect  # of the last recording


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Counts over all transitions of a store; the most frequent first."""

    transitions: int
    episodes: int
    tools: Mapping[str, ToolCount]
    environments: Mapping[str, int]
    tenants: Mapping[str, int]
    sources: Mapping[str, int]

    def to_json(self) -> dict[str, JsonValue]:
        """The same as JSON data, stable for machines."""
        return _STATS.write(self)


_STATS = Codec(StoreStats)


def count_transitions(store: TransitionStore) -> StoreStats:
    """Read a store to its end and count what is in it."""
    tools, errors, environments, tenants, sources = (Counter[str]() for _ in range(5))
    effects: dict[str, Effect] = {}
    episodes: set[tuple[str, str]] = set()
    calls: dict[str, set[tuple[str, str, str]]] = {}
    for row in store.scan():
        tool, environment = row.call.tool, str(row.environment)
        tools[tool] += 1
        errors[tool] += row.answer.error is not None
        environments[environment] += 1
        tenants[row.tenant] += 1
        sources[str(row.answer.source)] += 1
        effects[tool] = row.effect
        episodes.add((row.tenant, row.episode))
        calls.setdefault(tool, set()).add((row.tenant, environment, row.call.key))
    return StoreStats(
        transitions=tools.total(),
        episodes=len(episodes),
        tools={
            name: ToolCount(count, len(calls[name]), errors[name], effects[name])
            for name, count in tools.most_common()
        },
        environments=dict(environments.most_common()),
        tenants=dict(tenants.most_common()),
        sources=dict(sources.most_common()),
    )
