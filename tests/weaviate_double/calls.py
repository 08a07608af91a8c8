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

from weaviate_double.state import Item, State, by_vectors, by_words, candidates, passing

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
                text = str(error.args[0])
                if "tenan" in text:
                    kind = "get class: vector search" if searches(request) else "list class: search"
                    text = f"explorer: {kind}: object search at index {request.collection.lower()}: {text}"
                context.abort(grpc.StatusCode.UNKNOWN, text)

    def searched(self, request: Any) -> Any:
        shard = self.state.shard(request.collection, request.tenant)
        kinds = self.state.kinds(request.collection)
        if request.offset + request.limit > MOST_ROWS:
            raise LookupError(
                "explorer: list class: search: invalid pagination params: query maximum results exceeded: "
                f"the total limit calculated from the provided offset '{request.offset}' and limit "
                f"'{request.limit}' exceeds the configured value for QUERY_MAXIMUM_RESULTS '{MOST_ROWS}'. If "
                "you've supplied a negative offset or limit, this may be an underflow error"
            )
        for field, there in (("where", request.HasField("filters")), ("sort", bool(request.sort_by))):
            if request.after and there:
                raise LookupError(
                    f"cursor api: invalid 'after' parameter: {field} cannot be set with after and limit "
                    "parameters"
                )
        names = list(request.properties.non_ref_properties) or list(kinds)
        for name in [*names, *(one.path[0] for one in request.sort_by)]:
            if name not in kinds:
                raise LookupError(f"no such prop with name '{name}' found in class '{request.collection}'")
        walks = not (request.HasField("filters") or request.sort_by or searches(request))  # objects, no index
        found = list(shard.values() if walks else filter(passing(request, kinds), candidates(request, shard)))
        if request.after:
            found = [item for item in found if item.id > request.after]
        ranked = self.ranked(request, shard, kinds, found)[request.offset :][: request.limit or 10]
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
            at = request.collection, request.tenant
            return by_words(request.bm25_search, shard, found, self.state.lengths[at])
        if request.HasField("near_vector"):
            return by_vectors(request.near_vector, found)
        rows = sorted(found, key=lambda item: item.number if request.HasField("filters") else item.id)
        for one in reversed(request.sort_by):
            rows.sort(key=lambda item: item.properties.get(one.path[0]), reverse=not one.ascending)
        return [(0.0, item) for item in rows]

    def BatchObjects(self, request: Any, context: Any) -> Any:
        fault = self.met("BatchObjects", request, context) or {}
        errors = []
        torn = fault == "torn"  # killed between the objects and their entries
        fault = {} if torn else fault
        with self.state.lock:
            self.state.unwritten = []
            for place, one in enumerate(request.objects):
                try:
                    if place in fault:
                        raise LookupError(fault[place])
                    self.put(one, torn=torn)
                except LookupError as error:
                    errors.append(batch_pb2.BatchObjectsReply.BatchError(index=place, error=error.args[0]))
        if torn:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        return batch_pb2.BatchObjectsReply(took=0.001, errors=errors)

    def put(self, sent: Any, *, torn: bool) -> None:
        if sent.vectors and sent.collection not in self.state.schema and not self.state.starting:
            raise LookupError(
                f"collection {sent.collection} does not have configuration for vector {sent.vectors[0].name}"
            )
        shard = self.state.shard(sent.collection, sent.tenant)
        kinds = self.state.kinds(sent.collection)
        properties = dict(sent.properties.non_ref_properties.items())
        for name, value in properties.items():
            check_kind(name, value, kinds)
        vectors = {one.name: np.frombuffer(one.vector_bytes, "<f4") for one in sent.vectors}
        for name, vector in vectors.items():
            if name not in self.state.schema[sent.collection]["vectorConfig"]:
                raise LookupError(
                    f"collection {sent.collection} does not have configuration for vector {name}"
                )
            other = next((item.vectors[name] for item in shard.values() if name in item.vectors), vector)
            if len(other) != len(vector):
                raise LookupError(
                    f"Validate vector index {name} for target vector {sent.uuid}: new node has a vector with "
                    f"length {len(vector)}. Existing nodes have vectors with length {len(other)}: vector "
                    "dimensions do not match the index dimensions"
                )
        known = sent.uuid in shard
        item = Item(sent.uuid, properties, vectors)
        if torn and not known:
            item.entered = item.near = False
        self.state.put(shard, item)
        counted = self.state.lengths[sent.collection, sent.tenant]
        if count := len(str(properties.get("terms") or "").split()):
            counted[0] += count
            counted[1] += 1

    def BatchDelete(self, request: Any, context: Any) -> Any:
        failing = self.met("BatchDelete", request, context)  # why no row is deleted
        with self.state.lock:
            try:
                shard = self.state.shard(request.collection, request.tenant)
                kinds = self.state.kinds(request.collection)
                gone = [item.id for item in filter(passing(request, kinds), candidates(request, shard))]
            except LookupError as error:
                where = " params" if "class" in error.args[0] else ": cannot find objects"
                context.abort(grpc.StatusCode.UNKNOWN, f"batch delete{where}: {error.args[0]}")
            if not (request.dry_run or failing):
                for name in gone:
                    del shard[name]
        objects = [
            batch_delete_pb2.BatchDeleteObject(
                uuid=uuid.UUID(name).bytes, successful=not failing, error=failing or ""
            )
            for name in gone
        ]
        return batch_delete_pb2.BatchDeleteReply(
            took=0.001,
            matches=len(gone),
            successful=0 if failing else len(gone),
            failed=len(gone) if failing else 0,
            objects=objects if request.verbose else [],
        )

    def Aggregate(self, request: Any, context: Any) -> Any:
        self.met("Aggregate", request, context)
        with self.state.lock:
            try:
                shard = self.state.shard(request.collection, request.tenant)
                if not request.HasField("filters") and self.state.a_replica_is_down:
                    raise LookupError('cannot achieve consistency level "ALL"')
                kinds = self.state.kinds(request.collection)
                passes = passing(request, kinds)
                count = sum(map(passes, shard.values())) if request.HasField("filters") else len(shard)
            except LookupError as error:
                where = "parse params" if "find class" in error.args[0] else "aggregate"
                context.abort(grpc.StatusCode.UNKNOWN, f"{where}: {error.args[0]}")
        single = aggregate_pb2.AggregateReply.Single(objects_count=count)
        return aggregate_pb2.AggregateReply(took=0.001, single_result=single)

    def TenantsGet(self, request: Any, context: Any) -> Any:
        self.met("TenantsGet", request, context)
        if request.collection not in self.state.schema:
            context.abort(
                grpc.StatusCode.UNKNOWN,
                "get tenants: failed to execute query: could not get tenants: could not get tenants: class "
                "not found",
            )
        active = tenants_pb2.TENANT_ACTIVITY_STATUS_ACTIVE
        names = list(self.state.tenants[request.collection])
        if request.HasField("names"):
            names = [name for name in names if name in request.names.values]
        return tenants_pb2.TenantsGetReply(
            took=0.001, tenants=[tenants_pb2.Tenant(name=name, activity_status=active) for name in names]
        )


def searches(request: Any) -> bool:
    return bool(request.HasField("bm25_search") or request.HasField("near_vector"))


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
