"""The program of bar S2: does one thing to a buffer again and again, each time with another write failing.

Runs with `failing_writes.c` loaded before the C library. Prints a line for each write that failed: how, which
one, and what was found afterwards ("done", "refused", or what is wrong).

    python nth_write.py FOLDER ACT STRIDE
"""

import ctypes
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import StoreError, UserError
from dreamgym_kit.interfaces import HybridQuery, Room
from dreamgym_kit.replay.transfer import export_jsonl
from dreamgym_kit.types import Answer, Call, Effect, Transition

MODES = {"EIO once": b"E", "disk full": b"F", "half written": b"S"}
MOST = 2_000


def row(step: int) -> Transition:
    call = Call("get", {"id": f"ORD-{step}"})
    return Transition(call, Answer(f"lamp {step} " * 60), Effect.READ, f"t.{step}", step)


OLD, NEW = [row(step) for step in range(1, 6)], [row(step) for step in range(6, 12)]
OLD_STEPS, NEW_STEPS = list(range(1, 6)), list(range(1, 12))


class AcknowledgesAnywayDouble(SqliteStore):
    """A planted bug: a failed put is called stored."""

    def put(self, transitions: Sequence[Transition]) -> int:
        """Say yes, whatever happens."""
        try:
            return super().put(transitions)
        except StoreError:
            return len(transitions)


def put(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.put(NEW)


def put_again(path: Path) -> None:
    """What the message advises: repeat, with the same store."""
    with closing(SqliteStore(path)) as store:
        try:
            store.put(NEW)
        except StoreError:
            store.put(NEW)


def evict(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.evict(Room(rows=2))


def make(path: Path) -> None:
    path.unlink()
    put(path)


def export(path: Path) -> None:
    with closing(SqliteStore(path, read_only=True)) as store:
        export_jsonl(store, path.with_suffix(".jsonl"), overwrite=True)


def put_and_lie(path: Path) -> None:
    with closing(AcknowledgesAnywayDouble(path)) as store:
        store.put(NEW)


def export_in_place(path: Path) -> None:
    """A planted bug: the old export is gone before the new one is whole."""
    target = path.with_suffix(".jsonl")
    try:
        with closing(SqliteStore(path, read_only=True)) as store, target.open("wb", buffering=0) as file:
            for one in store.scan():
                file.write(f"{one.step}\n".encode())
    except OSError as error:
        raise UserError(f"{target}: {error}") from error


ACTS: dict[str, tuple[Callable[[Path], None], list[list[int]]]] = {  # what may be there after a refusal
    "put": (put, [OLD_STEPS, NEW_STEPS]),
    "put_again": (put_again, [OLD_STEPS, NEW_STEPS]),
    "evict": (evict, [OLD_STEPS, [4, 5]]),
    "make": (make, [[], [6, 7, 8, 9, 10, 11]]),
    "export": (export, [OLD_STEPS]),
    "put_and_lie": (put_and_lie, [OLD_STEPS, NEW_STEPS]),
    "export_in_place": (export_in_place, [OLD_STEPS]),
}


def failing(
    folder: Path, path: Path, number: int, mode: bytes, act: Callable[[Path], None]
) -> tuple[str, int]:
    """Do it in a process of its own; gives "done" or the error's text, and how many writes there were."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        library = ctypes.CDLL(None)
        library.failing_writes_arm(os.fsencode(folder), ctypes.c_long(number), ctypes.c_char(mode))
        said = "done"
        try:
            act(path)
        except UserError as error:
            said = f"refused: {error}"
        except BaseException as error:
            said = f"raised {error!r}"
        os.write(writing, f"{library.failing_writes_count()} {said}".encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        count, _, said = pipe.read().decode().partition(" ")
    os.waitpid(child, 0)
    return said, int(count)


def judged(path: Path, said: str, allowed: list[list[int]], *, exports: bool) -> str:
    named = said.startswith((f"refused: {path}: ", f"refused: {path.with_suffix('.jsonl')}: "))
    if said != "done" and (not named or "\n" in said):
        return said
    if exports:
        lines = path.with_suffix(".jsonl").read_text().splitlines()
        if said != "done" and lines != ["the old export"]:
            return f"the old export is gone after {said[:7]}"
        leftover = [file.name for file in path.parent.glob(".*.part")]
        if leftover:
            return f"left behind: {leftover}"
    with closing(SqliteStore(path)) as store:
        steps = [one.step for one in store.scan()]
        found = sorted(hit.transition.step for hit in store.search(HybridQuery("lamp", k=20)))
        if found != steps:
            return f"found {found} of {steps}"
        if steps not in allowed or (said == "done" and steps != allowed[-1]):
            return f"wrong rows after {said[:7]}: {steps}"
        store.put([row(99)])
        if [one.step for one in store.scan()] != [*steps, 99]:
            return "cannot be written any more"
    return said.partition(":")[0]


def main(folder: Path, name: str, stride: int) -> None:
    act, allowed = ACTS[name]
    with closing(SqliteStore(folder / "old.db")) as store:
        store.put(OLD)
    for mode, code in MODES.items():
        for number in range(1, MOST, stride):
            place = folder / f"{code.decode()}{number}"
            place.mkdir()
            path = place / "b.db"
            shutil.copy(folder / "old.db", path)
            path.with_suffix(".jsonl").write_text("the old export\n")
            said, count = failing(place, path, number, code, act)
            if count < number:
                break
            print(
                f"{mode} {number} {judged(path, said, allowed, exports=name.startswith('export'))}",
                flush=True,
            )
            shutil.rmtree(place)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
