"""A server that is cut off while a client records into it, and clients that are killed: is all there, once?

Run as a program this file is the recording client: it opens the buffer as `record` does, but tries a server
again sooner, and writes ids into a second file after the put of their rows has returned. `measure` has a
line between it and a double of Weaviate, which it cuts at random moments, in the middle of batches (half of
one stored, or all of it and the answer never heard) and while it kills the client; at the end it delivers
what waits and compares.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cut_line import CutLine

from dreamgym_kit.adapters.stores import outbox
from dreamgym_kit.adapters.stores.factory import open_store, spool_of
from dreamgym_kit.adapters.stores.outbox import BufferedStore
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.settings.buffer_url import Address, place_of
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition

if TYPE_CHECKING:
    from weaviate_double import WeaviateDouble

DISCONNECTS = 20
KILLED_FLUSHES = 20
_ACK = 128  # bytes of a line: a write that is killed ends between pages of memory, so between lines
_KINDS = ("cut", "half", "unheard", "killed", "killed away")
_TIMEOUT_S = 2  # of a request, and so how long a client waits for a line that is cut
_FEW, _MANY = (1, 8), (210, 240)  # rows of one put; more than 200 go to the server in two messages
_PAUSE_S = 0.005  # between puts: the double looks at every row it holds, however fast they come
_LONGEST_WAIT_S = 300.0  # for a client to get on


@dataclass(frozen=True, slots=True)
class Trial:
    """What some disconnects have shown."""

    disconnects: int
    kills: int
    acknowledged: int
    waited: int  # rows that were seen in the spool, whenever it was looked at
    lost: int
    doubled: int


class NotHere(Exception):
    """The client of Weaviate is not installed."""

    skips = True


class ForgetsDouble(BufferedStore):
    """A planted bug: acknowledges what the server did not take, and keeps it nowhere."""

    def _keep(self, transitions: Sequence[Transition]) -> int:
        return len(transitions)


class StoresPartOf:
    """A fault of the double: rows from `first` on are not stored; the line is cut before that is heard."""

    def __init__(self, line: CutLine, first: int) -> None:
        self._line, self._first = line, first

    def __contains__(self, place: int) -> bool:
        if place == 0:
            self._line.cut()
        return place >= self._first

    def __getitem__(self, place: int) -> str:
        return "the line was cut"


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    if find_spec("weaviate") is None:
        raise NotHere("weaviate-client is not installed: pip install 'dreamgym-kit[weaviate]'")
    trial, flushed = run_trial(seed, DISCONNECTS), kill_flushes(seed, KILLED_FLUSHES)
    return [
        ("lost", trial.lost + flushed.lost, "transitions"),
        ("doubled", trial.doubled + flushed.doubled, "transitions"),
        ("disconnects", trial.disconnects, "disconnects"),
        ("kills", trial.kills + flushed.kills, "killed processes"),
        ("acknowledged", trial.acknowledged, "transitions"),
        ("waited", trial.waited, "transitions"),
    ]


def run_trial(seed: int, disconnects: int, *, store: str = "BufferedStore") -> Trial:
    """Cut a recording client's line, or kill it, so many times.

    Raises:
        RuntimeError: a client ended by itself or got stuck, or nothing ever waited.
    """
    from weaviate_double import WeaviateDouble

    chance, kills, waited = random.Random(seed), 0, set[str]()
    with (
        tempfile.TemporaryDirectory() as folder,
        WeaviateDouble() as double,
        closing(CutLine(double._ports)) as line,
    ):
        client = Client(Path(folder), address_of(line), chance, store)
        with closing(client):
            for number in range(disconnects):
                kind = _KINDS[number % len(_KINDS)]
                client.has_put_more()
                _disconnect(kind, line, double, chance)
                if kind == "cut":
                    client.has_put_more()
                    client.has_put_more()  # all of this one while the line was cut, however slow the machine
                time.sleep(chance.uniform(0.05, 1.5 * _TIMEOUT_S))
                if kind == "killed away":
                    client.kill_and_start()
                    client.has_put_more()
                waited |= client.spool.ids()
                if kind == "killed":
                    client.kill_and_start()
                kills += kind.startswith("killed")
                line.mend()
            client.has_put_more()
        held, acked, cuts = _delivered(client, double), client.acknowledged(), line.cuts
    if not waited and store == "BufferedStore":
        raise RuntimeError("nothing ever waited for the server: nothing was tested")
    lost, doubled = len(acked - set(held)), len(held) - len(set(held))
    return Trial(cuts, kills, len(acked), len(waited), lost, doubled)


def address_of(line: CutLine) -> Address:
    """The buffer at the near end of a line."""
    http, grpc = line.ports
    place = place_of(f"weaviate://127.0.0.1:{http}?grpc={grpc}&timeout={_TIMEOUT_S}", Path())
    assert isinstance(place, Address)
    return place


def _disconnect(kind: str, line: CutLine, double: "WeaviateDouble", chance: random.Random) -> None:
    if kind in ("half", "unheard"):
        first = chance.randint(0, 4) if kind == "half" else 10_000
        double.faults["BatchObjects"].append(StoresPartOf(line, first))
        _wait_until(lambda: line.is_cut, "no batch came to cut")
    else:
        time.sleep(chance.uniform(0, 0.3))
        line.cut()


def _delivered(client: "Client", double: "WeaviateDouble") -> list[str]:
    """Deliver what waits, past the line, and give the ids of all that the server holds then."""
    place = place_of(f"{double.address}&timeout=120", Path())
    with closing(open_store(place, client.settings, read_only=False)) as store:
        client.spool.deliver(store)
        return [row.id for row in store.scan()]


class Client:
    """A process that records until it is killed, and is started again."""

    def __init__(self, folder: Path, address: Address, chance: random.Random, store: str) -> None:
        self.address = address
        self.settings = Settings(path=folder / "dreamgym.toml")
        self.spool = spool_of(address, self.settings)
        self._folder, self._chance, self._store = folder, chance, store
        self._acks = folder / "acks"
        self._acks.touch()
        self._process = self._started()

    def acknowledged(self) -> set[str]:
        """The ids of all rows whose put returned."""
        return {line.rstrip() for line in self._acks.read_text("ascii").split("\n")[:-1]}

    def has_put_more(self) -> None:
        """Wait until further rows were acknowledged."""
        before = self._acks.stat().st_size
        _wait_until(lambda: self._alive() and self._acks.stat().st_size > before, "the client got stuck")

    def kill_and_start(self) -> None:
        """Kill it, and start another one on the same buffer."""
        self.close()
        self._process = self._started()

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    def _started(self) -> "subprocess.Popen[bytes]":
        seed = str(self._chance.randrange(2**32))
        command = [sys.executable, __file__, str(self._folder), str(self.address), seed, self._store]
        errors = (self._folder / "errors").open("ab")
        with errors:
            return subprocess.Popen(command, stderr=errors, env=os.environ | {"PYTHONPATH": _neighbours()})

    def _alive(self) -> bool:
        if self._process.poll() is not None:
            said = (self._folder / "errors").read_text("utf-8", "replace")[-2000:]
            raise RuntimeError(f"the client ended by itself: {said}")
        return True


def kill_flushes(seed: int, kills: int) -> Trial:
    """Kill deliveries to a file at random moments, while others add; the last one may end."""
    chance = random.Random(seed)
    rows = _rows(chance, "flushed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        waiting, acked = outbox.Spool(folder / "spool.jsonl"), set[str]()
        for _ in range(kills):
            batch = [next(rows) for _ in range(300)]
            waiting.add(batch)
            acked |= {row.id for row in batch}
            with _flushing(folder) as flusher:
                time.sleep(chance.uniform(0, 0.3))
                flusher.kill()
        with closing(SqliteStore(folder / "b.db")) as store:
            waiting.deliver(store)
            held = [row.id for row in store.scan()]
    return Trial(0, kills, len(acked), 0, len(acked - set(held)), len(held) - len(set(held)))


@contextmanager
def _flushing(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that is about to deliver."""
    command = [sys.executable, __file__, str(folder)]
    environment = os.environ | {"PYTHONPATH": _neighbours()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as flusher:
        assert flusher.stdout is not None
        flusher.stdout.readline()
        yield flusher


def _neighbours() -> str:
    folder, before = Path(__file__).resolve().parent, os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(folder), str(folder.parent), *([before] if before else [])])


def _wait_until(holds: Any, otherwise: str) -> None:
    deadline = time.monotonic() + _LONGEST_WAIT_S
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{otherwise} within {_LONGEST_WAIT_S:g} s")
        time.sleep(0.01)


def _rows(chance: random.Random, episode: str) -> Iterator[Transition]:
    step = 0
    while True:
        step += 1
        call = Call(chance.choice(["get_order", "refund"]), {"order": chance.randrange(1000)})
        answer = Answer({"status": "paid", "note": "n" * chance.randrange(300)})
        yield Transition(
            call, answer, Effect.WRITE, episode, step, environment=Environment("shop", chance.randrange(3))
        )


def _record(folder: Path, address: str, seed: str, kind: str) -> None:
    """Record until killed."""
    chance = random.Random(seed)
    rows = _rows(chance, f"episode-{seed}")
    settings = Settings(path=folder / "dreamgym.toml")
    place = place_of(address, folder)
    assert isinstance(place, Address)
    store = {"BufferedStore": BufferedStore, "ForgetsDouble": ForgetsDouble}[kind](
        lambda: open_store(place, settings, read_only=False),
        spool_of(place, settings),
        tell=lambda _: None,
        retry_s=0.2,
    )
    with (folder / "acks").open("ab", buffering=0) as file:
        while True:
            few_or_many = chance.choices((_FEW, _MANY), (9, 1))[0]
            batch = [next(rows) for _ in range(chance.randint(*few_or_many))]
            store.put(batch)
            file.write("".join(f"{row.id:<{_ACK - 1}}\n" for row in batch).encode("ascii"))
            time.sleep(_PAUSE_S)


def _flush(folder: Path) -> None:
    """Deliver until killed or done."""
    outbox._BATCH_ROWS = 10  # more moments at which to be killed
    with closing(SqliteStore(folder / "b.db")) as store:
        print("ready", flush=True)
        outbox.Spool(folder / "spool.jsonl").deliver(store)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        _flush(Path(sys.argv[1]))
    else:
        _record(Path(sys.argv[1]), *sys.argv[2:])
