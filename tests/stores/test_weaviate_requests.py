"""What is sent to Weaviate, compared with stored files: a change of it is a change that somebody wanted.

`DREAMGYM_WRITE_GOLDEN=1` writes the files anew. Times are fixed; what differs from run to run is named.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weaviate_buffers
from google.protobuf.json_format import MessageToDict
from weaviate_double import WeaviateDouble

from dreamgym_kit.adapters.stores.weaviate_store import WeaviateStore
from dreamgym_kit.interfaces import HybridQuery, Room
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, Split, Transition

FOLDER = Path(__file__).parent / "weaviate_requests"


class TwoNumbersDouble:
    """An embedder whose vectors fit on a page."""

    name = "two-numbers"
    dimension = 2
    local = True

    def embed(self, texts: Any) -> Any:
        return np.array([[0.6, 0.8]] * len(texts), dtype=np.float32)


def row(step: int, *, made: Source = Source.REAL, split: Split = Split.TRAIN) -> Transition:
    call, answer = Call("get_order", {"id": step}), Answer(f"lamp {step}", source=made)
    return Transition(
        *(call, answer, Effect.READ, "t.1", step, Environment("shop", 2)),
        split=split,
        recorded_at=1_700_000_000.0,
        tenant="acme",
    )


ROOM = Room(rows=100, dreamt_share=1.0, dreamt_lifetime_s=3600.0)
QUERY = HybridQuery(
    "Which lamp, of order 1?",
    tool="get_order",
    environment=Environment("shop", 2),
    tenant="acme",
    k=1,
    not_episode="t.9",
)
STEPS: dict[str, Callable[[WeaviateStore], object]] = {
    "open": lambda store: None,
    "put": lambda store: store.put([row(1), row(2, made=Source.MODEL), row(3, split=Split.HELD_OUT)]),
    "put_again": lambda store: store.put([row(1)]),
    "exact": lambda store: store.exact("get_order", row(1).call.key, Environment("shop", 2), tenant="acme"),
    "scan": lambda store: list(store.scan(tenant="acme")),
    "search": lambda store: store.search(QUERY),
    "count": lambda store: store.count(),
    "evict": lambda store: store.evict(Room(rows=2, dreamt_share=0.0), now=1_700_000_001.0),
}


def test_what_is_sent_is_what_was_sent_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_700_000_000_000_000_000)
    with WeaviateDouble() as double:
        make = weaviate_buffers.server_of(double.address)
        store = WeaviateStore(make("golden"), tenant="shop", embedder=TwoNumbersDouble(), room=ROOM)
        try:
            for step, act in STEPS.items():
                act(store)
                compare(step, [(method, plain(sent)) for method, sent in double.requests])
                double.requests.clear()
        finally:
            store.close()


def plain(sent: Any) -> Any:
    if sent is None or isinstance(sent, dict | list):
        return sent
    message = MessageToDict(sent)
    asked = message.get("properties", {}).get("nonRefProperties", [])
    asked.sort()  # the client keeps them in a set
    return message


def compare(step: str, sent: list[tuple[str, Any]]) -> None:
    text = json.dumps(sent, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
    text = re.sub(r'"(checksum)": "[0-9a-f]+"', r'"\1": "..."', text)
    file = FOLDER / f"{step}.json"
    if os.environ.get("DREAMGYM_WRITE_GOLDEN"):
        FOLDER.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), f"{step}: another request than in {file}"
