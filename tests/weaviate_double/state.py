"""What the double holds, and how it filters, splits and ranks."""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from weaviate.proto.v1 import base_pb2

Op = base_pb2.Filters.Operator


@dataclass
class Item:
    id: str
    properties: dict[str, Any]
    vectors: dict[str, Any]


@dataclass
class State:
    key: str | None
    version: str
    most_bytes: int
    deletes_expired: bool
    schema: dict[str, dict[str, Any]] = field(default_factory=dict)
    tenants: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    items: dict[tuple[str, str], dict[str, Item]] = field(default_factory=lambda: defaultdict(dict))
    faults: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    requests: list[tuple[str, Any]] = field(default_factory=list)
    a_replica_is_down: bool = False
    lock: Any = field(default_factory=threading.RLock)

    def shard(self, collection: str, tenant: str) -> dict[str, Item]:
        """Raises LookupError with the server's own words."""
        if collection not in self.schema:
            raise LookupError(f"could not find class {collection} in schema")
        if not tenant:
            raise LookupError(f"class {collection} has multi-tenancy enabled, but request was without tenant")
        if tenant not in self.tenants[collection]:
            raise LookupError(f'tenant not found: "{tenant}"')
        return self.items[collection, tenant]

    def kinds(self, collection: str) -> dict[str, dict[str, Any]]:
        return {one["name"]: one for one in self.schema[collection]["properties"]}

    def fault(self, method: str) -> Any:
        with self.lock:
            due = self.faults[method]
            found = due.pop(0) if due else None
        if isinstance(found, float):
            time.sleep(found)
            return None
        return found


def passing(request: Any, kinds: dict[str, dict[str, Any]]) -> Callable[[Item], bool]:
    """Says of an item whether a request is about it."""
    return matcher(request.filters, kinds) if request.HasField("filters") else lambda _: True


def matcher(filters: Any, kinds: dict[str, dict[str, Any]]) -> Callable[[Item], bool]:
    """Says of an item whether the filters let it pass; read once, since thousands are asked."""
    if filters.operator in (Op.OPERATOR_AND, Op.OPERATOR_OR):
        parts = [matcher(one, kinds) for one in filters.filters]
        together = all if filters.operator == Op.OPERATOR_AND else any
        return lambda item: together(part(item) for part in parts)
    name, asked = filters.target.property, asked_value(filters)
    if name != "_id":
        if name not in kinds:
            raise LookupError(f"no such prop with name '{name}' found in class")
        if not kinds[name]["indexFilterable"]:
            raise LookupError(f"Filtering by property '{name}' requires inverted index")
    holds = {
        "OPERATOR_EQUAL": lambda has: has == asked,
        "OPERATOR_GREATER_THAN": lambda has: has > asked,
        "OPERATOR_GREATER_THAN_EQUAL": lambda has: has >= asked,
        "OPERATOR_LESS_THAN": lambda has: has < asked,
        "OPERATOR_LESS_THAN_EQUAL": lambda has: has <= asked,
        "OPERATOR_CONTAINS_ANY": lambda has: has in asked,
        "OPERATOR_NOT_EQUAL": lambda has: has != asked,
    }[Op.Name(filters.operator)]
    lacking = filters.operator == Op.OPERATOR_NOT_EQUAL

    def passes(item: Item) -> bool:
        has = trimmed(item.id if name == "_id" else item.properties.get(name))
        return bool(lacking if has is None else holds(has))

    return passes


def asked_value(filters: Any) -> Any:
    """What a filter compares with; a set where it names several."""
    which = filters.WhichOneof("test_value")
    asked = getattr(filters, which)
    return {trimmed(one) for one in asked.values} if which.endswith("_array") else trimmed(asked)


def trimmed(value: Any) -> Any:
    """FIELD tokenization."""
    return value.strip() if isinstance(value, str) else value


def by_words(query: Any, shard: dict[str, Item], found: list[Item]) -> list[tuple[float, Item]]:
    """BM25 as the server reckons it, over all rows of the shard."""
    names = [name.split("^")[0] for name in query.properties]
    texts = {
        one.id: " ".join(str(one.properties.get(name) or "") for name in names) for one in shard.values()
    }
    words = {name: text.split() for name, text in texts.items()}
    total = len(words) or 1
    average = sum(map(len, words.values())) / total or 1
    asked = set(query.query.split())
    weights = {}
    for word in asked:
        having = sum(word in row for row in words.values())
        weights[word] = math.log(1 + (total - having + 0.5) / (having + 0.5))
    scored = []
    for one in found:
        row = words[one.id]
        norm = 1.2 * (1 - 0.75 + 0.75 * len(row) / average)
        score = sum(
            weights[word] * (row.count(word) * 2.2) / (row.count(word) + norm)
            for word in asked
            if word in row
        )
        if score > 0:
            scored.append((score, one))
    return sorted(scored, key=lambda pair: (-pair[0], pair[1].id))


def by_vectors(query: Any, found: list[Item]) -> list[tuple[float, Item]]:
    name, asked = asked_vector(query)
    near = []
    for one in found:
        vector = one.vectors.get(name)
        if vector is None:
            continue
        if len(vector) != len(asked):
            raise LookupError(f"vector lengths don't match: {len(vector)} vs {len(asked)}")
        near.append((1 - float(unit(vector) @ unit(asked)), one))
    return sorted(near, key=lambda pair: (pair[0], pair[1].id))


def asked_vector(query: Any) -> tuple[str, Any]:
    if query.vector_for_targets:
        one = query.vector_for_targets[0]
        raw = one.vectors[0].vector_bytes if one.vectors else one.vector_bytes
        return one.name, np.frombuffer(raw, "<f4")
    raw = query.vectors[0].vector_bytes if query.vectors else query.vector_bytes
    return query.targets.target_vectors[0], np.frombuffer(raw, "<f4")


def unit(vector: Any) -> Any:
    length = np.linalg.norm(vector)
    return vector / length if length else vector
