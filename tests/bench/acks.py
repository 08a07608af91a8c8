"""Kill a recording process with SIGKILL at random moments: is all that was acknowledged there?

Run as a program this file is the recording process: it puts transitions into a buffer and, after each
put has returned, writes their ids into a second file. `measure` starts it, kills it, starts it again on
the same buffer, and compares. Kills also hit the making and the opening of a buffer.
"""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import astuple, dataclass
from pathlib import Path

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition

KILLS = 200
KILLS_PER_BUFFER = 20
BUFFERS_AT_ONCE = 2
LONGEST_LIFE_S = 0.25  # from where it is about to open the buffer, or from the first of its acknowledgements
FIRST_ACK_S = 60.0  # opening may take long on a busy machine
LINE = 128  # bytes: a write that is killed ends between two pages of memory, so between two lines


@dataclass(frozen=True, slots=True)
class Trial:
    """What some kills have shown."""

    kills: int
    acknowledged: int
    lost: int


class LateCommitDouble(SqliteStore):
    """A planted bug: returns before the rows are in the file, as a write-behind cache would."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._waiting: list[Transition] = []

    def put(self, transitions: Sequence[Transition]) -> int:
        """Acknowledge now, store every 50 rows."""
        self._waiting += transitions
        if len(self._waiting) >= 50:
            super().put(self._waiting)
            self._waiting.clear()
        return len(transitions)


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner: acknowledged transitions that were lost, kills, and how long it took."""
    began = time.monotonic()
    trial = run_trial(seed, KILLS)
    took = time.monotonic() - began
    return [("lost", trial.lost, "transitions"), ("kills", trial.kills, "kills"), ("seconds", took, "s")]


def run_trial(seed: int, kills: int, *, store: str = "SqliteStore") -> Trial:
    """Kill recorders until there were `kills`, on several buffers.

    Raises:
        RuntimeError: a recorder ended by itself, or nothing was ever acknowledged.
        StoreError: a buffer is damaged.
    """
    numbers = range(-(-kills // KILLS_PER_BUFFER))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(BUFFERS_AT_ONCE) as pool:

        def tried(number: int) -> Trial:
            some = min(KILLS_PER_BUFFER, kills - number * KILLS_PER_BUFFER)
            return _on_one_buffer(Path(folder) / str(number), some, random.Random(f"{seed} {number}"), store)

        trials = list(pool.map(tried, numbers))
    trial = Trial(*map(sum, zip(*map(astuple, trials), strict=True)))
    if trial.acknowledged < kills:
        raise RuntimeError(
            f"only {trial.acknowledged} transitions were acknowledged in {kills} kills: nothing was tested"
        )
    return trial


def _on_one_buffer(path: Path, kills: int, chance: random.Random, store: str) -> Trial:
    buffer, acks = path.with_suffix(".db"), path.with_suffix(".acks")
    acks.touch()
    for number in range(kills):
        _kill_one(buffer, acks, chance, store, opening=number % 4 == 0)
    promised = _whole_lines(acks)
    return Trial(kills, len(promised), len(promised - _ids(buffer)))


def _kill_one(buffer: Path, acks: Path, chance: random.Random, store: str, *, opening: bool) -> None:
    seed = str(chance.randrange(2**32))
    command = [sys.executable, __file__, str(buffer), str(acks), seed, store]
    before = acks.stat().st_size
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as recorder:
        assert recorder.stdout is not None
        recorder.stdout.readline()
        if not opening:  # else nothing might be acknowledged where a start is slow
            _wait_for_more(acks, before, recorder)
        time.sleep(chance.uniform(0, LONGEST_LIFE_S))
        if recorder.poll() is not None:
            raise RuntimeError(f"the recorder ended by itself: {recorder.communicate()[1]}")
        recorder.kill()


def _wait_for_more(acks: Path, before: int, recorder: subprocess.Popen[str]) -> None:
    ends = time.monotonic() + FIRST_ACK_S
    while acks.stat().st_size == before and recorder.poll() is None and time.monotonic() < ends:
        time.sleep(0.001)


def _whole_lines(acks: Path) -> set[str]:
    return {line.rstrip() for line in acks.read_text("ascii").split("\n")[:-1]}


def _ids(buffer: Path) -> set[str]:
    if not buffer.exists():
        return set()
    with closing(SqliteStore(buffer)) as store:
        return {transition.id for transition in store.scan()}


def _transitions(chance: random.Random, episode: str) -> Iterator[Transition]:
    step = 0
    while True:
        step += 1
        call = Call(chance.choice(["get_order", "refund"]), {"order": chance.randrange(1000)})
        answer = Answer({"status": "paid", "note": "n" * chance.randrange(3000)})
        yield Transition(
            call, answer, Effect.WRITE, episode, step, environment=Environment("shop", chance.randrange(3))
        )


def _record(buffer: Path, acks: Path, seed: str, kind: str) -> None:
    """Record until killed."""
    chance = random.Random(seed)
    rows = _transitions(chance, f"episode-{seed}")
    print("ready", flush=True)
    store = {"SqliteStore": SqliteStore, "LateCommitDouble": LateCommitDouble}[kind](buffer)
    with acks.open("ab", buffering=0) as file:
        while True:
            batch = [next(rows) for _ in range(chance.randint(1, 20))]
            store.put(batch)
            file.write("".join(f"{row.id:<{LINE - 1}}\n" for row in batch).encode("ascii"))


if __name__ == "__main__":
    _record(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])
