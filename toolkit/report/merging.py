"""Merge the shards of a run: one run directory, one journal, and the report of the whole run.

Nothing is guessed: all shards must be given, each complete, each once, and from the same run (equal
`matters`). The directory appears atomically. Merging the same shards into it again changes nothing, unless
errors in them were rerun with --resume meanwhile: then it is rebuilt from the shards.
"""

import heapq
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from dreamgym_kit.canonical import digest
from dreamgym_kit.codec import Codec
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.report.metrics import RunMetrics
from dreamgym_kit.report.summary import Tally, curve_of, facts_of
from dreamgym_kit.rollout.atomic_files import write_atomically
from dreamgym_kit.rollout.events import busy_seconds
from dreamgym_kit.rollout.jobs import Shard
from dreamgym_kit.rollout.line_log import read_lines
from dreamgym_kit.rollout.rundir import (
    EPISODES,
    EVENTS,
    MANIFEST,
    REPORT,
    Manifest,
    RunDirectory,
    differences,
    directory_name,
)
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Spend

_MERGING = "-merging"
_SHARDS = Codec(Shard)


@dataclass(frozen=True, slots=True)
class Merged:
    """A merged run."""

    directory: Path
    summary: RunMetrics
    episodes: int
    again: bool  # it already existed


@dataclass(frozen=True, slots=True)
class _Part:
    """A shard's run directory and its facts."""

    path: Path
    shard: Shard
    directory: RunDirectory
    matters: Mapping[str, JsonValue]  # of the whole run
    facts: Mapping[str, JsonValue]

    @property
    def expected(self) -> int:
        about, n = self.directory.manifest.about, self.matters.get("n")
        tasks = about.get("tasks")
        return tasks * n if isinstance(tasks, int) and isinstance(n, int) else 0


def merge_runs(paths: Sequence[Path], into: Path) -> Merged:
    """Merge the shards at `paths` into a new run directory.

    Raises:
        UserError: a path is not a shard, incomplete, given twice, missing, or of another run; or `into` is
            something else. Nothing was written.
    """
    parts = _whole(sorted((_part(path) for path in paths), key=lambda part: part.shard.number))
    manifest = _manifest(parts)
    place = into.parent / directory_name(into.name)
    if place.name != into.name:
        raise UserError(
            f"{into}: not a name for a run directory; use letters, digits, - and _. Nothing was merged."
        )
    there = _there(place, manifest) if place.exists() or place.is_symlink() else None
    if there is not None and not _run_again(there, parts):
        return _again(there)
    half = place.parent / directory_name(f"{place.name}{_MERGING}")
    _clear(half)
    with RunDirectory.create(half.parent, half.name, manifest) as made:
        try:
            episodes, tally = _journal(made, parts)
        except UserError:
            shutil.rmtree(made.path)
            raise
        _events(made.path / EVENTS, parts)
        _trials(made, parts, tally)
        summary = tally.summary(_facts(parts, manifest, place, episodes), curve_of(parts[0].directory))
        made.write_report(summary.to_json())
        if there is not None:
            shutil.rmtree(place)  # the shards have all of it
        made.path.rename(place)
    return Merged(place, summary, episodes, again=False)


def _part(path: Path) -> _Part:
    directory = RunDirectory.open(path)
    matters = dict(directory.manifest.matters)
    value = matters.pop("shard", None)
    try:
        shard = _SHARDS.read(value, "shard")
    except NotSerializable:
        raise UserError(f"{path}: is not a shard; only runs made with shard=I/N can be merged.") from None
    return _Part(path, shard, directory, matters, facts_of(directory))


def _whole(parts: list[_Part]) -> list[_Part]:
    """Return the parts if they are all shards of one run, each once."""
    first = parts[0]
    for part in parts[1:]:
        other = differences(first.matters, part.matters, sides=(f"in {first.path}", f"in {part.path}"))
        if first.shard.of != part.shard.of:
            other.insert(0, f"one of {first.shard.of} shards there, one of {part.shard.of} here")
        if other:
            raise UserError(f"{part.path}: is from another run than {first.path}: {'; '.join(other)}.")
    by_number: dict[int, _Part] = {}
    for part in parts:
        twin = by_number.setdefault(part.shard.number, part)
        if twin is not part:
            raise UserError(
                f"{part.path} and {twin.path}: are both shard {part.shard}; give only one of them."
            )
    missing = [str(number) for number in range(1, first.shard.of + 1) if number not in by_number]
    if missing:
        raise UserError(
            f"shard{'s'[: len(missing) > 1]} {', '.join(missing)} of {first.shard.of}: not among the "
            f"{len(parts)} given run directories. Nothing was merged."
        )
    gates = {digest(part.facts.get("gate")) for part in parts}
    if len(gates) > 1:
        raise UserError("the shards have different gates; run them with the same [gate].")
    return parts


def _manifest(parts: Sequence[_Part]) -> Manifest:
    first = parts[0].directory.manifest
    runs = [part.directory.manifest.run for part in parts]
    tasks = [part.directory.manifest.about.get("tasks") for part in parts]
    return Manifest(
        run=digest(runs)[:8],
        created_at=min(part.directory.manifest.created_at for part in parts),
        matters=parts[0].matters,
        about={**first.about, "tasks": sum(n for n in tasks if isinstance(n, int)), "shards": list(runs)},
    )


def _there(place: Path, manifest: Manifest) -> RunDirectory:
    """Open an earlier merge of the same shards; refuse anything else."""
    there = RunDirectory.open(place) if (place / MANIFEST).is_file() and not place.is_symlink() else None
    if there is None or there.manifest != manifest or there.read_report() is None:
        raise UserError(f"{place}: already exists and is not a merge of these shards; choose another.")
    return there


def _run_again(there: RunDirectory, parts: Sequence[_Part]) -> bool:
    """Return whether the shards have later attempts of an episode than the earlier merge."""
    now = {episode.id: episode.attempt for part in parts for episode in part.directory.episodes()}
    merged = {episode.id: episode.attempt for episode in there.episodes()}
    if any(attempt > now.get(name, 0) for name, attempt in merged.items()):
        raise UserError(f"{there.path}: was resumed after the merge. Choose another directory.")
    return now != merged


def _again(there: RunDirectory) -> Merged:
    tally = Tally()
    count = 0
    for count, episode in enumerate(there.episodes(), 1):  # noqa: B007  the last count is all
        tally.add(episode)
    trials = there.read_trials()
    if trials is not None:
        tally.charge("calibration", trials[1])
    return Merged(there.path, tally.summary(_ended(there), curve_of(there)), count, again=True)


def _ended(there: RunDirectory) -> Mapping[str, JsonValue]:
    manifest = (there.read_report() or {}).get("manifest")
    return manifest if isinstance(manifest, Mapping) else {}


def _clear(half: Path) -> None:
    """Remove the remains of a killed merge."""
    if half.is_symlink() or (half.exists() and not half.is_dir()):
        raise UserError(f"{half}: is in the way; move or remove it.")
    if half.is_dir():
        left = {path.name for path in half.iterdir()}
        if not left <= {MANIFEST, f".{MANIFEST}.new", "lock", EPISODES, EVENTS, "trials.json", REPORT}:
            raise UserError(f"{half}: is in the way; move or remove it.")
        shutil.rmtree(half)


def _journal(made: RunDirectory, parts: Sequence[_Part]) -> tuple[int, Tally]:
    """Merge the journals; an unfinished shard is an error before the result is used."""
    tally, seen, unfinished = Tally(), 0, ""
    with closing(made.journal()) as journal:
        for part in parts:
            before = seen
            for episode in part.directory.episodes():
                if not journal.append(episode):
                    raise UserError(f"{part.path}: has episode {episode.id!a}, also in another shard.")
                tally.add(episode)
                seen += 1
            left = part.expected - (seen - before)
            if left and not unfinished:
                unfinished = (
                    f"{part.path}: shard {part.shard} has {left} of its {part.expected} episodes left; "
                    "finish it with --resume first. Nothing was merged."
                )
    if unfinished and not tally.executed:  # an executed real call ends its shard, which is merged unfinished
        raise UserError(unfinished)
    return seen, tally


def _events(path: Path, parts: Sequence[_Part]) -> None:
    """Merge the event logs by time."""
    events = heapq.merge(*(_lines(part.path / EVENTS) for part in parts), key=lambda event: event[0])
    write_atomically(path, b"".join(line for _, line in events))


def _lines(path: Path) -> Iterator[tuple[float, bytes]]:
    """Stream lines, because logs can be long."""
    for _, line in read_lines(path, torn=True):
        with suppress(ValueError, KeyError, TypeError):
            yield float(json.loads(line)["at"]), line if line.endswith(b"\n") else line + b"\n"


def _trials(made: RunDirectory, parts: Sequence[_Part], tally: Tally) -> None:
    """Merge the model's trials and their cost."""
    all_trials = [trials for part in parts if (trials := part.directory.read_trials()) is not None]
    if all_trials:
        spend = sum((spent for _, spent in all_trials), Spend())
        made.write_trials(all_trials[0][0], spend)
        tally.charge("calibration", spend)


def _facts(parts: Sequence[_Part], manifest: Manifest, place: Path, episodes: int) -> dict[str, JsonValue]:
    """Return the final facts of a whole run; see `runs._finish`."""
    first = _ended(parts[0].directory)
    strays = [stray for part in parts for stray in _list(part.facts.get("strays"))]
    unmatched = [_list(part.facts.get("unmatched")) for part in parts]
    facts: dict[str, JsonValue] = {
        **first,
        "run": manifest.run,
        "directory": str(place.absolute()),
        "not_run": sum(part.expected for part in parts) - episodes,
        "stopped": next((reason for part in parts if (reason := part.facts.get("stopped"))), ""),
        "strays": strays,
    }
    spent = [usage for part in parts if isinstance(usage := part.facts.get("spent"), Mapping)]
    if spent:
        facts["spent"] = {
            **{name: sum(_number(usage.get(name)) for usage in spent) for name in ("calls", "usd")},
            "seconds": busy_seconds(part.path / EVENTS for part in parts),
        }
    facts.pop("servers", None)  # each shard's counts include the others' use, so they cannot be added
    facts.pop("unmatched", None)
    everywhere = [name for name in unmatched[0] if all(name in names for names in unmatched)]
    if everywhere:
        facts["unmatched"] = everywhere
    return facts


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0


def _list(value: object) -> list[JsonValue]:
    return list(value) if isinstance(value, list) else []
