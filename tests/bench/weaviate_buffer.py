"""The buffer on Weaviate, measured on a double of the server: no figure here is a live server's.

`faults_wrong`: answers of a live 1.39.0 whose meaning (wait, or final) is told wrong. `double_differs`: calls
of the adapter that the double answers otherwise than the live server did. `overlap_hybrid`, `overlap_words`:
how much of a file's best 8 a server gives; the double ranks by the server's BM25. `rows_unfindable`: rows
that one of the ways to ask does not give, after kills were planted in puts and in the log of vectors, and the
rows were put again; `rows_unfindable_repaired`: the same where the kills hit rows of other processes and
`buffer check --repair` mends. `requests_per_hybrid` counts what one question sends, `rows_read_per_hybrid`
the rows that come with their payload. `pages_per_row`: pages that a scan of 40,000 rows takes for each row,
as a multiple of one of 10,000. `fds_ratio`: CPU time of exact look-ups with 2,000 open files, as a multiple
of that with few.
"""

import json
import os
import random
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dreamgym_kit.adapters.embedders.models import HashedEmbedder
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import StoreUnavailable
from dreamgym_kit.interfaces import HybridQuery
from dreamgym_kit.replay.retrieval import question_text
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data" / "beds"
SMALL = Path(__file__).resolve().parents[1] / "data" / "beds"
ANSWERS = Path(__file__).resolve().parents[1] / "stores" / "weaviate_answers.jsonl"
BEDS = ("retail", "workbench", "bfcl")
K = 8
_PUT = 25  # rows of a put that is killed
_FILES = 2_000
_SHOP = Environment("shop")
Figure = tuple[str, float, str]


def measure(seed: int) -> list[Figure]:
    """Figures for the bench runner."""
    if not BESIDE.is_dir():
        raise NotHere(f"there are no beds in {BESIDE}")
    return figures(seed, rows=5_000, questions=300, kills=30, scanned=(10_000, 40_000))


def quick(seed: int) -> list[Figure]:
    """In small."""
    return figures(seed, rows=400, questions=30, kills=4, scanned=(500, 2_000))


class NotHere(Exception):
    """The client of Weaviate or the beds are not on this machine."""

    skips = True


def figures(seed: int, *, rows: int, questions: int, kills: int, scanned: tuple[int, int]) -> list[Figure]:
    """Measure all with so many rows and questions."""
    if find_spec("weaviate") is None:
        raise NotHere("weaviate-client is not installed: pip install 'dreamgym-kit[weaviate]'")
    with _double() as (double, opened):
        return [
            ("faults_wrong", _faults_wrong(), "answers"),
            ("double_differs", _double_differs(), "calls"),
            *_compared(double, opened("compared", embedder=HashedEmbedder()), seed, rows, questions),
            ("rows_unfindable", unfindable(double, opened, kills, repair=False), "rows"),
            ("rows_unfindable_repaired", unfindable(double, opened, kills, repair=True), "rows"),
            ("pages_per_row", _pages(double, opened, scanned), "x the smaller scan's"),
            ("fds_ratio", _with_open_files(opened("files")), "x few"),
        ]


@contextmanager
def _double() -> Iterator[tuple[Any, Any]]:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import weaviate_buffers
    from weaviate_double import WeaviateDouble

    with (
        WeaviateDouble(version="1.39.0") as double,
        weaviate_buffers.on_server(weaviate_buffers.server_of(double.address)) as opened,
    ):
        yield double, opened


def _faults_wrong() -> int:
    from dreamgym_kit.adapters.stores.weaviate_server import meaning

    answers = [json.loads(line) for line in ANSWERS.read_text("utf-8").splitlines()]
    return sum((meaning(each["status"], each["text"]) is not None) != each["stays"] for each in answers)


def _double_differs() -> int:
    from weaviate_double.live import differing

    return len(differing()[1])


def _compared(double: Any, store: Any, seed: int, rows: int, questions: int) -> Iterator[Figure]:
    recorded = list(islice(_recorded("train", "crawl", "test_same"), rows))
    assert len(recorded) == rows
    calls = list(_recorded("test_other", "test_unseen"))
    asked = random.Random(seed).sample(calls, questions)
    with TemporaryDirectory() as folder:
        file = SqliteStore(Path(folder) / "rows.db", embedder=HashedEmbedder())
        for first in range(0, rows, 500):
            file.put(recorded[first : first + 500])
            store.put(recorded[first : first + 500])
        store.search(HybridQuery("words are counted at the first question"))
        for name in ("hybrid", "words"):
            shares = []
            double.requests.clear()
            for row in asked:
                text = question_text(row.call, row.task)
                query = HybridQuery(text, row.call.tool, k=K, words_only=name == "words")
                here = {hit.transition.id for hit in file.search(query)}
                there = {hit.transition.id for hit in store.search(query)}
                shares.append(len(here & there) / len(here) if here else float(not there))
            yield f"overlap_{name}", sum(shares) / len(shares), "of a file's best 8"
            if name == "hybrid":  # asked first: nothing that it finds was read before
                searches = [request for method, request in double.requests if method == "Search"]
                whole = [one.limit for one in searches if "payload" in one.properties.non_ref_properties]
                yield "requests_per_hybrid", len(double.requests) / questions, "requests"
                yield "rows_read_per_hybrid", sum(whole) / questions, "rows"
        double.requests.clear()
        for row in recorded[:50]:
            store.exact(row.call.tool, row.call.key, row.environment)
        yield "requests_per_exact", len(double.requests) / 50, "requests"
        file.close()


def _recorded(*files: str) -> Iterator[Transition]:
    """The beds' calls, one of each bed in turn, as `record` would keep them."""
    folder = BESIDE if BESIDE.is_dir() else SMALL
    calls = [list(_calls_of(folder / bed, files)) for bed in BEDS]
    for place in range(max(map(len, calls), default=0)):
        yield from (each[place] for each in calls if place < len(each))


def _calls_of(bed: Path, files: Sequence[str]) -> Iterator[Transition]:
    for file in filter(Path.is_file, (bed / f"{name}.jsonl" for name in files)):
        for line in file.read_text("utf-8").splitlines():
            episode = json.loads(line)
            for step, call in enumerate(episode["calls"], 1):
                answer = Answer(call.get("answer"), error=call.get("error"))
                yield Transition(
                    *(Call(call["tool"], call["args"]), answer, Effect.READ, episode["id"], step),
                    Environment(bed.name),
                    task=episode["task"],
                )


def unfindable(double: Any, opened: Any, kills: int, *, repair: bool) -> int:
    """Plant kills of both causes; gives how many rows cannot be found in the end.

    Without `repair` the rows are put again, as a recorder or the outbox does; with it they are not, and the
    indexes of others lose entries.
    """
    from dreamgym_kit.adapters.stores.weaviate_check import check_buffer

    tenant = f"killed-{repair}"
    store = opened(tenant, embedder=HashedEmbedder())
    rows = [_row(number, tenant) for number in range(2 * kills * _PUT)]
    puts = [rows[first : first + _PUT] for first in range(0, len(rows), _PUT)]
    for number, put in enumerate(puts):
        if number % 2:  # the log of the vectors of what was put last is lost
            store.put(put)
            double.state.killed()
        else:  # objects are there, their entries are not
            double.faults["BatchObjects"] = ["torn"]
            with suppress(StoreUnavailable):
                store.put(put)
            if not repair:
                store.put(put)
    if repair:
        for item in _items(double, store)[::7]:
            item.entered = False
        check_buffer(store, repair=True, every_vector=True)
    scanned = {row.id for row in store.scan(tool="get_order")}
    lost = {row.id for row in rows if row.id not in scanned}
    lost |= {row.id for row in rows if not store.exact("get_order", row.call.key, _SHOP)}
    return len(lost | {item.id for item in _items(double, store) if item.vectors and not item.near})


def _items(double: Any, store: Any) -> list[Any]:
    items = double.state.items[store.tenant._collection, store.tenant._name]
    return list(items.values())


def _row(number: int, episode: str) -> Transition:
    call = Call("get_order", {"id": number})
    return Transition(call, Answer(f"lamp {number}"), Effect.READ, episode, number + 1, _SHOP)


def _pages(double: Any, opened: Any, sizes: tuple[int, int]) -> float:
    store, per_row, there = opened("scanned"), [], 0
    for size in sizes:
        for first in range(there, size, 1_000):
            store.put([_row(number, "scanned") for number in range(first, min(size, first + 1_000))])
        there = size
        double.requests.clear()
        assert sum(1 for _ in store.scan()) == size
        per_row.append(len(double.requests) / size)
    return per_row[1] / per_row[0]


def _with_open_files(store: Any) -> float:
    """The least of several rounds in turn: another program may have the machine for a while."""
    store.put([_row(1, "files")])
    few, many = [], []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, _FILES + 500)), hard))
    for _ in range(5):
        few.append(_looked_up(store))
        with ExitStack() as files:
            for _ in range(_FILES):
                files.enter_context(open(os.devnull))
            many.append(_looked_up(store))
    return min(many) / min(few)


def _looked_up(store: Any) -> float:
    start = time.thread_time()
    for _ in range(100):
        store.exact("get_order", _row(1, "files").call.key, _SHOP)
    return time.thread_time() - start
