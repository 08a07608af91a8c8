"""`dreamgym-kit buffer scrub`: masks what was stored before today's rules knew it for a secret.

Shows what it would change; changes it with `--yes`. Nothing that it prints holds a secret.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, say_json
from dreamgym_kit.errors import UserError
from dreamgym_kit.report.percent import format_count

if TYPE_CHECKING:
    from dreamgym_kit.replay.masking import Masker
    from dreamgym_kit.settings.buffer_url import Place
    from dreamgym_kit.settings.schema import Settings
    from dreamgym_kit.types import Episode, Transition

Yes = Annotated[bool, options.option("--yes", "Change it; else it is only shown.")]
_LISTED = 10
_TEXTS = (".html", ".md", ".xml", ".txt", ".log")
_BATCH = 500
_CHAINED = "each line holds the digest of the one before, so it stays; keep it where nobody else reads it"


@dataclass(frozen=True, slots=True)
class _Part:
    """One place that holds secrets."""

    place: str
    changes: int  # rows, episodes, lines or texts
    noun: str  # "recording"
    apply: Callable[[], None] | None  # None: it cannot be changed, see `why`
    ids: tuple[tuple[str, str], ...] = ()  # of recordings: before and after
    why: str = ""


def command(buffer: options.Buffer = None, yes: Yes = False, as_json: options.AsJson = False) -> None:
    """Mask what today's rules find in the buffer, in run directories and cassettes.

    Without --yes nothing is changed. Recordings that change their ids are named.
    """
    from dreamgym_kit.settings.buffer_url import buffer_of

    settings = options.settings_for(buffer=buffer)
    parts = [*_buffer(buffer_of(settings), settings), *_runs(settings), *_cassettes(settings)]
    for part in parts if yes else ():
        if part.apply is not None:
            part.apply()
    if as_json:
        say_json(
            {
                "changed": yes,
                "places": [
                    {"place": each.place, "changes": each.changes, "ids": dict(each.ids), "left": each.why}
                    for each in parts
                ],
            }
        )
        return
    for part in parts:
        _show(part, done=yes)
    if not parts:
        say("Nothing to mask: the buffer, the runs and the cassettes hold nothing that today's rules find.")
    elif not yes:
        say("Nothing was changed; add --yes to do so. Back up first what you cannot record again.")


def _show(part: _Part, *, done: bool) -> None:
    verb = "holds" if part.apply is None else "masked in" if done else "would be masked in"
    count = format_count(part.changes, part.noun)
    say(f"{part.place}: {verb} {count}{'; ' if part.why else ''}{part.why}")
    for before, after in part.ids[:_LISTED]:
        say(f"  {before} is {after}" if done else f"  {before} becomes {after}")
    if len(part.ids) > _LISTED:
        say(f"  ... and {len(part.ids) - _LISTED} more (--json lists all)")


def _buffer(place: "Place", settings: "Settings") -> Iterator[_Part]:
    from dreamgym_kit.adapters.stores.factory import open_store, salt_of, to_mask, waiting_for
    from dreamgym_kit.replay.masking import process_masker
    from dreamgym_kit.settings.buffer_url import is_missing

    if is_missing(place):
        return
    if waiting_for(place, settings):
        raise UserError(
            f"recordings wait for {place}; deliver them first (dreamgym-kit buffer flush). "
            "Nothing was changed."
        )
    with closing(open_store(place, settings)) as store:
        masker = process_masker(settings.experience.key_env, salt=salt_of(store, settings))
        rows = to_mask(store, masker)
    if rows:
        ids = tuple((before, row.id) for before, row in rows.items())
        yield _Part(str(place), len(rows), "recording", lambda: _rewrite(place, rows, settings), ids)


def _rewrite(place: "Place", rows: "dict[str, Transition]", settings: "Settings") -> None:
    """Put the rows in place. A file is written anew, since SQLite keeps what was deleted in free pages."""
    from dreamgym_kit.adapters.embedders.choosing import embedder_of
    from dreamgym_kit.adapters.stores.factory import open_store, program_file, put_in_place, salt_file
    from dreamgym_kit.replay.transfer import batches

    embedder = embedder_of(settings)
    _delete(program_file(place, settings))  # constants of programs are what was recorded
    if not isinstance(place, Path):
        with closing(open_store(place, settings, read_only=False, embedder=embedder)) as store:
            put_in_place(store, rows, salt_file(place, settings).with_suffix(".scrub.jsonl"))
        return
    place = place.resolve()  # of a link, what it leads to
    made = place.with_name(f"{place.name}.scrub")
    _delete(made)
    with (
        closing(open_store(place, settings)) as old,
        closing(open_store(made, settings, read_only=False, embedder=embedder)) as new,
    ):
        for batch in batches(((rows.get(row.id, row), 1) for row in old.scan()), _BATCH):
            new.put(batch)
    shutil.copymode(place, made)
    made.replace(place)
    for beside in ("-wal", "-shm"):  # of the old file; the new one's were written into it when it was closed
        place.with_name(place.name + beside).unlink(missing_ok=True)
    _delete(made)


def _delete(file: Path) -> None:
    for name in ("", "-wal", "-shm"):
        file.with_name(file.name + name).unlink(missing_ok=True)


def _runs(settings: "Settings") -> Iterator[_Part]:
    """The files of run directories. A run that is still going holds its lock: its files stay."""
    from dreamgym_kit.adapters.stores.factory import open_store, salt_of
    from dreamgym_kit.replay.masking import process_masker
    from dreamgym_kit.settings.buffer_url import buffer_of, is_missing
    from dreamgym_kit.supervision.audit import AUDIT

    place = buffer_of(settings)
    salt = None
    if not is_missing(place):
        with closing(open_store(place, settings)) as store:
            salt = salt_of(store, settings)
    masker = process_masker(settings.experience.key_env, salt=salt)
    root = settings.resolve(settings.runs)
    for manifest in sorted(root.glob("**/manifest.json")):
        folder = manifest.parent
        for file in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
            if file.name == "episodes.jsonl":
                yield from _journal(file, masker)
            elif file.name == AUDIT or file.suffix in (".json", ".jsonl", *_TEXTS):
                for part in _file(file, masker, stays=_CHAINED if file.name == AUDIT else ""):
                    yield replace(part, apply=part.apply and partial(_under_lock, folder, part.apply))


def _under_lock(folder: Path, apply: Callable[[], None]) -> None:
    from dreamgym_kit.rollout.atomic_files import RunLock

    with RunLock(folder / "lock"):
        apply()


def _journal(file: Path, masker: "Masker") -> Iterator[_Part]:
    from dreamgym_kit.adapters.stores.factory import masked_rows
    from dreamgym_kit.rollout.journal import JournalReader, masked_episode

    episodes: list[Episode] = []
    ids: list[tuple[str, str]] = []
    changes = 0
    for episode in JournalReader(file):
        rows = masked_rows(episode.transitions, masker)
        made = replace(masked_episode(episode, masker), transitions=tuple(rows))
        ids += [
            (old.id, new.id) for old, new in zip(episode.transitions, rows, strict=True) if new is not old
        ]
        changes += made != episode
        episodes.append(made)

    def apply() -> None:
        from dreamgym_kit.rollout.journal import Journal

        beside = file.with_name(f"{file.name}.scrub")
        beside.unlink(missing_ok=True)
        with closing(Journal(beside)) as journal:
            for episode in episodes:
                journal.append(episode)
        beside.replace(file)

    if changes:
        yield _Part(str(file), changes, "episode", partial(_under_lock, file.parent, apply), tuple(ids))


def _file(file: Path, masker: "Masker", *, stays: str = "") -> Iterator[_Part]:
    """A file of JSON, of JSON lines, or of text; `stays`: why it cannot be changed."""
    from dreamgym_kit.rollout.atomic_files import write_atomically

    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return
    lines = text.splitlines(keepends=True) if file.suffix == ".jsonl" else [text]
    masked = [_masked(line, masker, data=file.suffix not in _TEXTS) for line in lines]
    changes = sum(new != old for new, old in zip(masked, lines, strict=True))
    if changes:
        apply = partial(write_atomically, file, "".join(masked).encode("utf-8"))
        yield _Part(str(file), changes, "line", None if stays else apply, why=stays)


def _masked(text: str, masker: "Masker", *, data: bool) -> str:
    if not data:
        return masker.text(text)
    try:
        value: Any = json.loads(text)
    except ValueError:
        return text
    made = masker.plain(value)
    if made is value:
        return text
    compact = not text.startswith("{\n")
    spelled = json.dumps(made, separators=(",", ":") if compact else None, indent=None if compact else 2)
    return spelled + ("\n" if text.endswith("\n") else "")


def _cassettes(settings: "Settings") -> Iterator[_Part]:
    """Cassettes have marks without identity: a cassette is shared, a salt is not."""
    from dreamgym_kit.replay.masking import process_masker

    masker = process_masker(settings.experience.key_env)
    for file in sorted(settings.folder.glob("**/cassettes/**/*.jsonl")):
        if file.name.endswith(".models.jsonl"):
            why = "its turns name each other by digests; record the test again"
            yield from _file(file, masker, stays=why)
        else:
            yield from _cassette(file, masker)


def _cassette(file: Path, masker: "Masker") -> Iterator[_Part]:
    from dreamgym_kit.adapters.pytest_plugin.cassette import Cassette, Recording
    from dreamgym_kit.adapters.stores.factory import masked_rows

    cassette = Cassette(file)
    try:
        calls = cassette.calls()
    except UserError:  # another tool's
        return
    tasks: dict[str, list[Transition]] = {}
    for call in calls:
        tasks.setdefault(call.task, []).append(call)
    changed: dict[str, Sequence[Transition]] = {}
    count = 0
    for task, rows in tasks.items():
        masked = masked_rows(rows, masker)
        if changes := sum(new is not old for new, old in zip(masked, rows, strict=True)):
            changed[task] = masked
            count += changes

    def apply() -> None:
        for task, rows in changed.items():
            turns = tuple(turn for turn in cassette.turns() if turn.task == task)
            cassette.write(Recording(task, tuple(rows), turns), instead_of=task.__eq__)

    if changed:
        yield _Part(str(file), count, "call", apply)
