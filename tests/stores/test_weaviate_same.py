"""A buffer on Weaviate's double and a file answer alike, and how much is asked for that."""

import random
from collections import Counter
from pathlib import Path

import weaviate_buffers
from weaviate_double import WeaviateDouble

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.interfaces import HybridQuery
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition

SHOP = Environment("shop")
WORDS = [f"word{number}" for number in range(200)]


def made(count: int) -> list[Transition]:
    draw = random.Random(7)
    weights = [1 / (rank + 1) for rank in range(len(WORDS))]
    return [
        Transition(
            *(Call("get_order", {"id": step}), Answer(" ".join(draw.choices(WORDS, weights, k=12)))),
            *(Effect.READ, f"t.{step}", 1, SHOP),
        )
        for step in range(count)
    ]


def test_a_file_and_a_server_give_the_same_hits_with_few_requests(tmp_path: Path) -> None:
    rows, draw = made(600), random.Random(8)
    file = SqliteStore(tmp_path / "rows.db")
    file.put(rows)
    with (
        WeaviateDouble() as double,
        weaviate_buffers.on_server(weaviate_buffers.server_of(double.address)) as opened,
    ):
        store = opened()
        store.put(rows)
        store.search(HybridQuery("word1"))  # counts words
        double.requests.clear()
        overlaps: dict[bool, list[float]] = {True: [], False: []}
        for words_only in (True, False):
            for _ in range(40):
                query = HybridQuery(" ".join(draw.choices(WORDS, k=9)), words_only=words_only, k=8)
                here = {hit.transition.id for hit in file.search(query)}
                there = {hit.transition.id for hit in store.search(query)}
                overlaps[words_only].append(len(here & there) / max(1, len(here)))
        asked = [request for method, request in double.requests if method == "Search"]
        read = sum(request.limit for request in asked if "payload" in request.properties.non_ref_properties)
        words, hybrid = (sum(each) / len(each) for each in overlaps.values())
        print(f"overlap: words {words:.3f}, hybrid {hybrid:.3f}; {len(asked)} requests, {read} rows read")
        assert min(words, hybrid) >= 0.98
        assert len(asked) <= 40 * (2 + 3)
        assert read <= 80 * 16
        double.requests.clear()
        assert store.exact("get_order", rows[3].call.key, SHOP) == [rows[3]]
        assert Counter(method for method, _ in double.requests) == {"Search": 1}
    file.close()
