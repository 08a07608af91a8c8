"""The double's gRPC side."""

import uuid
from typing import Any

import grpc
import numpy as np
from weaviate.proto.v1 import (
    aggregate_pb2,
    base_pb2,
    batch_delete_pb2,
    batch_pb2,
    properties_pb2,
    search_get_pb2,
    tenants_pb2,
    weaviate_pb2_grpc,
)

from weaviate_double.state import Item, State, by_vectors, by_words, passing

MOST_ROWS = 10_000


class Service(weaviate_pb2_grpc.WeaviateServicer):
    def __init__(self, state: State) -> None:
        self.state = state

    def met(self, method: str, request: Any, context: Any) -> Any:
        self.state.requests.append((method, request))
        metadata = dict(context.invocation_metadata())
        if self.state.key and metadata.get("authorization") != f"Bearer {self.state.key}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "unauthorized: invalid api key")
        fault = self.state.fault(method)
        if isinstance(fault, tuple):
            context.abort(*fault)
        return fault

    def Search(self, request: Any, context: Any) -> Any:
        self.met("Search", request, context)
        with self.state.lock:
            try:
                return self.searched(request)
            except LookupError as error:
                context.abort(grpc.StatusCode.UNKNOWN, str(error.args[0]))

    def searched(self, request: Any) -> Any:
        shard = self.state.shard(request.collection, request.tenant)
        kinds = self.state.kinds(request.collection)
        if request.limit > MOST_ROWS:
            raise LookupError("query maximum results exceeded")
        if request.after and (request.HasField("filters") or request.sort_by):
            raise LookupError("where cannot be set with after and limit parameters")
        names = list(request.properties.non_ref_properties) or list(kinds)
        for name in [*names, *(one.path[0] for one in request.sort_by)]:
            if name not in kinds:
                raise LookupError(f"no such prop with name '{name}' found in class '{request.collection}'")
        found = list(filter(passing(request, kinds), shard.values()))
        ranked = self.ranked(request, shard, kinds, found)[: request.limit or 10]
        return search_get_pb2.SearchReply(
            took=0.001, results=[result(request, item, score, names, kinds) for score, item in ranked]
        )

    def ranked(
        self, request: Any, shard: dict[str, Item], kinds: Any, found: list[Item]
    ) -> list[tuple[float, Item]]:
        if request.HasField("bm25_search"):
            for name in request.bm25_search.properties:
                if not kinds[name]["indexSearchable"]:
                    raise LookupError(f"property '{name}' is not searchable")
            return by_words(request.bm25_search, shard, found)
        if request.HasField("near_vector"):
            return by_vectors(request.near_vector, found)
        rows = sorted(found, key=lambda item: item.id)
        for one in reversed(request.sort_by):
            rows.sort(key=lambda item: item.properties.get(one.path[0]), reverse=not one.ascending)
        return [(0.0, item) for item in rows]

    def BatchObjects(self, request: Any, context: Any) -> Any:
        fault = self.met("BatchObjects", request, context) or {}
        errors = []
        with self.state.lock:
            for place, one in enumerate(request.objects):
                try:
                    if place in fault:
                        raise LookupError(fault[place])
                    self.put(one)
                except LookupError as error:
                    errors.append(batch_pb2.BatchObjectsReply.BatchError(index=place, error=error.args[0]))
        return batch_pb2.BatchObjectsReply(took=0.001, errors=errors)

    def put(self, sent: Any) -> None:
        shard = self.state.shard(sent.collection, sent.tenant)
        kinds = self.state.kinds(sent.collection)
        properties = dict(sent.properties.non_ref_properties.items())
        for name, value in properties.items():
            check_kind(name, value, kinds)
        vectors = {one.name: np.frombuffer(one.vector_bytes, "<f4") for one in sent.vectors}
        for name, vector in vectors.items():
            other = next((item.vectors[name] for item in shard.values() if name in item.vectors), vector)
            if len(other) != len(vector):
                raise LookupError(
                    f"new node has a vector with length {len(vector)}. Existing nodes have vectors with "
                    f"length {len(other)}"
                )
        shard[sent.uuid] = Item(sent.uuid, properties, vectors)

    def BatchDelete(self, request: Any, context: Any) -> Any:
        self.met("BatchDelete", request, context)
        with self.state.lock:
            try:
                shard = self.state.shard(request.collection, request.tenant)
                kinds = self.state.kinds(request.collection)
                gone = [item.id for item in filter(passing(request, kinds), shard.values())]
            except LookupError as error:
                context.abort(grpc.StatusCode.UNKNOWN, f"batch delete: {error.args[0]}")
            for name in gone:
                del shard[name]
        return batch_delete_pb2.BatchDeleteReply(
            took=0.001, matches=len(gone), successful=len(gone), failed=0
        )

    def Aggregate(self, request: Any, context: Any) -> Any:
        self.met("Aggregate", request, context)
        with self.state.lock:
            try:
                shard = self.state.shard(request.collection, request.tenant)
                if not request.HasField("filters") and self.state.a_replica_is_down:
                    raise LookupError('cannot achieve consistency level "ALL"')
                kinds = self.state.kinds(request.collection)
                count = sum(map(passing(request, kinds), shard.values()))
            except LookupError as error:
                context.abort(grpc.StatusCode.UNKNOWN, f"aggregate: {error.args[0]}")
        single = aggregate_pb2.AggregateReply.Single(objects_count=count)
        return aggregate_pb2.AggregateReply(took=0.001, single_result=single)

    def TenantsGet(self, request: Any, context: Any) -> Any:
        self.met("TenantsGet", request, context)
        active = tenants_pb2.TENANT_ACTIVITY_STATUS_ACTIVE
        names = list(self.state.tenants[request.collection])
        if request.HasField("names"):
            names = [name for name in names if name in request.names.values]
        return tenants_pb2.TenantsGetReply(
            took=0.001, tenants=[tenants_pb2.Tenant(name=name, activity_status=active) for name in names]
        )


def check_kind(name: str, value: Any, kinds: dict[str, dict[str, Any]]) -> None:
    """The server would add an unknown property by itself; who relies on that has misspelt one."""
    if name not in kinds:
        raise LookupError(f"no such prop with name '{name}'")
    kind = kinds[name]["dataType"][0]
    right = {"text": str, "date": str, "int": float, "number": float, "boolean": bool}[kind]
    if type(value) is not right or (kind == "int" and (value != int(value) or value > 2**53)):
        raise LookupError(f"invalid {kind} property '{name}'")


def result(request: Any, item: Item, score: float, names: list[str], kinds: Any) -> Any:
    words, near = request.HasField("bm25_search"), request.HasField("near_vector")
    metadata = search_get_pb2.MetadataResult(
        id=item.id,
        id_as_bytes=uuid.UUID(item.id).bytes,
        score=score if words else 0,
        score_present=request.metadata.score and words,
        distance=score if near else 0,
        distance_present=request.metadata.distance and near,
    )
    if request.metadata.vector or request.metadata.vectors:
        for name, vector in item.vectors.items():
            metadata.vectors.append(base_pb2.Vectors(name=name, vector_bytes=vector.tobytes()))
    fields = {name: spelled(item.properties.get(name), kinds[name]["dataType"][0]) for name in names}
    return search_get_pb2.SearchResult(
        metadata=metadata,
        properties=search_get_pb2.PropertiesResult(
            target_collection=request.collection, non_ref_props=properties_pb2.Properties(fields=fields)
        ),
    )


def spelled(value: Any, kind: str) -> Any:
    if value is None:
        return properties_pb2.Value(null_value=0)
    if kind == "int":
        return properties_pb2.Value(int_value=int(value))
    name = {"text": "text_value", "number": "number_value", "boolean": "bool_value", "date": "date_value"}[
        kind
    ]
    return properties_pb2.Value(**{name: value})
