"""What the double holds, and how it filters, splits and ranks."""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
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
    number: int = 0  # the server's own, rising; what has no order comes by it
    entered: bool = True  # in the index of ids and properties
    near: bool = True  # in the index of vectors


@dataclass
class State:
    key: str | None
    version: str
    most_bytes: int
    deletes_expired: bool
    schema: dict[str, dict[str, Any]] = field(default_factory=dict)
    tenants: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    items: dict[tuple[str, str], dict[str, Item]] = field(default_factory=lambda: defaultdict(dict))
    lengths: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    faults: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    requests: list[tuple[str, Any]] = field(default_factory=list)
    a_replica_is_down: bool = False
    starting: int = 0  # how often it still says that it is not ready; until then it knows no collection
    nodes: int = 1
    numbers: int = 0
    unwritten: list[Item] = field(default_factory=list)  # whose vectors' log is in memory only
    lock: Any = field(default_factory=threading.RLock)

    def shard(self, collection: str, tenant: str) -> dict[str, Item]:
        """Raises LookupError with the server's own words."""
        if collection not in self.schema or self.starting:
            raise LookupError(f"could not find class {collection} in schema")
        if not tenant:
            raise LookupError(f"class {collection} has multi-tenancy enabled, but request was without tenant")
        if tenant not in self.tenants[collection]:
            raise LookupError(f'tenant not found: "{tenant}"')
        return self.items[collection, tenant]

    def put(self, shard: dict[str, Item], item: Item) -> None:
        """Store an object. What is there with the same vectors keeps the entries that it has, or has not."""
        old = shard.get(item.id)
        self.numbers += 1
        item.number = self.numbers
        if old is not None and same_vectors(old, item):
            item.entered, item.near = old.entered, old.near
        else:
            self.unwritten.append(item)
        shard[item.id] = item

    def killed(self) -> None:
        """What a killed server loses: the log of the vectors of its last batch."""
        with self.lock:
            for item in self.unwritten:
                item.near = False
            self.unwritten = []

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


def same_vectors(one: Item, other: Item) -> bool:
    return one.vectors.keys() == other.vectors.keys() and all(
        np.array_equal(one.vectors[name], other.vectors[name]) for name in one.vectors
    )


def passing(request: Any, kinds: dict[str, dict[str, Any]]) -> Callable[[Item], bool]:
    """Says of an item whether a request is about it; by an index only what was entered there is found."""
    if not request.HasField("filters"):
        return lambda item: item.entered
    fits = matcher(request.filters, kinds)
    return lambda item: item.entered and fits(item)


def candidates(request: Any, shard: dict[str, Item]) -> Iterable[Item]:
    """The rows that filters can let pass: where these name ids alone, nothing else is looked at."""
    filters = request.filters
    if not filters.filters and filters.target.property == "_id" and filters.WhichOneof("test_value"):
        asked = asked_value(filters)
        return [shard[name] for name in sorted(asked if isinstance(asked, set) else {asked}) if name in shard]
    return shard.values()


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
            raise LookupError(
                f"Filtering by property '{name}' requires inverted index. Is `indexFilterable` option of "
                f"property '{name}' enabled? Set it to `true` or leave empty"
            )
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


def by_words(
    query: Any, shard: dict[str, Item], found: list[Item], lengths: list[int]
) -> list[tuple[float, Item]]:
    """BM25 as the server reckons it, over all rows of the shard.

    `lengths`: words and rows that were ever put. Of what is overwritten or deleted nothing is taken off the
    average, and rows without words are not in it: by that alone live scores are met.
    """
    names = [name.split("^")[0] for name in query.properties]
    texts = {
        one.id: " ".join(str(one.properties.get(name) or "") for name in names) for one in shard.values()
    }
    words = {name: text.split() for name, text in texts.items()}
    total = len(words) or 1
    average = lengths[0] / max(1, lengths[1]) or 1
    asked = query.query.split()  # a word that is said twice counts twice
    weights = {}
    for word in asked:
        having = sum(word in row for row in words.values())
        weights[word] = math.log(1 + (total - having + 0.5) / (having + 0.5))
    scored = []
    for one in found:
        row = words[one.id]
        norm = 1.2 * (1 - 0.75 + 0.75 * len(row) / average)
        score = sum(
            weights[word] * row.count(word) / (row.count(word) + norm) for word in asked if word in row
        )
        if score > 0:
            scored.append((score, one))
    return sorted(scored, key=lambda pair: (-pair[0], pair[1].number))


def by_vectors(query: Any, found: list[Item]) -> list[tuple[float, Item]]:
    name, asked = asked_vector(query)
    near = []
    for one in found:
        vector = one.vectors.get(name)
        if vector is None or not one.near:
            continue
        if len(vector) != len(asked):
            raise LookupError(f"vector lengths don't match: {len(vector)} vs {len(asked)}")
        near.append((1 - float(unit(vector) @ unit(asked)), one))
    return sorted(near, key=lambda pair: (pair[0], -pair[1].number))


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
