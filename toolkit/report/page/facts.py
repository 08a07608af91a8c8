"""What the run was, in rows of two: from its manifest, with nothing added."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.figures import Summary

_LONG = 2000


def run_title(summary: Summary) -> str:
    """The run's name as people say it: its graph and its id."""
    words = [summary.fact("graph"), summary.fact("run")]
    return " ".join(word for word in words if isinstance(word, str) and word) or "run"


def manifest_rows(summary: Summary) -> list[JsonValue]:
    """Give `[[name, value], ...]`."""
    return manifest_of(summary.manifest)


def manifest_of(manifest: Mapping[str, JsonValue]) -> list[JsonValue]:
    """The same of a manifest's record."""
    rows: list[JsonValue] = []
    created = manifest.get("created_at")
    if isinstance(created, (int, float)):
        rows.append(["begun", datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")])
    for part in ("matters", "about"):
        value = manifest.get(part)
        if isinstance(value, Mapping):
            rows += [[name.replace("_", " "), text[:_LONG]] for name, text in _rows(value)]
    return rows


def _rows(facts: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            if value:
                yield name, ", ".join(f"{key} {_told(item)}" for key, item in value.items())
        else:
            yield name, _told(value)


def _told(value: JsonValue) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
