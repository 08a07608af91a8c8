"""The double's REST side: meta, schema and tenants."""

import copy
import json
import re
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from weaviate_double.state import State

HNSW = {
    "cleanupIntervalSeconds": 300,
    "distance": "cosine",
    "dynamicEfMin": 100,
    "dynamicEfMax": 500,
    "dynamicEfFactor": 8,
    "ef": -1,
    "efConstruction": 128,
    "filterStrategy": "acorn",
    "flatSearchCutoff": 40000,
    "maxConnections": 32,
    "skip": False,
    "vectorCacheMaxObjects": 10**12,
}
NO_SCHEDULE = (
    "enabling objectTTL requires a running background scheduler. "
    "Set OBJECTS_TTL_DELETE_SCHEDULE to activate it"
)
NO_KEY = "anonymous access not enabled. Please authenticate through one of the available methods: [API-keys]"
WRONG_KEY = "unauthorized: invalid api key"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    @property
    def state(self) -> State:
        return self.server.state  # type: ignore[attr-defined,no-any-return]

    def answer(self, status: int, body: Any = None) -> None:
        raw = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def refuse(self, status: int, text: str) -> None:
        schema = self.path.startswith("/v1/schema") and not self.path.endswith("/tenants")
        self.answer(status, {**({"allowed": None} if schema else {}), "error": [{"message": text}]})

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        size = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        self.state.requests.append((f"{self.command} {path}", copy.deepcopy(body)))
        parts = path.removeprefix("/v1").strip("/").split("/")
        if parts[0] == ".well-known":
            if parts[1] == "ready" and self.state.starting:
                self.state.starting -= 1
                return self.answer(503, {})
            return self.answer(404 if parts[1].startswith("openid") else 200, {})
        given = self.headers.get("authorization")
        if self.state.key and given != f"Bearer {self.state.key}":
            return self.answer(401, {"code": 401, "message": WRONG_KEY if given else NO_KEY})
        fault = self.state.fault(parts[0])
        if fault is not None:
            return self.refuse(*fault)
        with self.state.lock:
            return self.routed(parts, body)

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET

    def routed(self, parts: list[str], body: Any) -> None:
        if parts[0] == "meta":
            meta = {"hostname": "double", "modules": {}, "version": self.state.version}
            return self.answer(200, {**meta, "grpcMaxMessageSize": self.state.most_bytes})
        if parts[0] == "objects" and len(parts) == 3:
            return self.object(parts[1], parts[2])
        if parts[0] != "schema":
            return self.refuse(404, "no such route")
        if len(parts) == 1 and self.command == "GET":
            return self.answer(200, {"classes": list(self.state.schema.values())})
        if len(parts) == 1:
            return self.made(body)
        schema = self.state.schema.get(parts[1])
        if schema is None:
            if parts[-1] == "tenants" and self.command == "POST":
                return self.refuse(422, "updating schema: TYPE_ADD_TENANT: class not found")
            return self.answer(200 if len(parts) == 2 and self.command == "DELETE" else 404)
        if len(parts) == 2:
            return self.collection(parts[1], schema, body)
        if parts[2] == "properties":
            return self.added(schema, body)
        return self.tenants(parts, body)

    def object(self, collection: str, name: str) -> None:
        tenant = parse_qs(urlsplit(self.path).query)["tenant"][0]
        shard = self.state.shard(collection, tenant)
        if name not in shard:
            return self.answer(404)
        if self.command == "DELETE":
            del shard[name]
            return self.answer(204)
        item = shard[name]
        vectors = {each: vector.tolist() for each, vector in item.vectors.items()}
        return self.answer(
            200, {"class": collection, "id": name, "properties": item.properties, "vectors": vectors}
        )

    def made(self, body: Any) -> None:
        name = body["class"]
        if name in self.state.schema:
            return self.refuse(422, f"class name {name} already exists")
        for other in self.state.schema:
            if other.lower() == name.lower():
                return self.refuse(422, f'class already exists: found similar class "{other}"')
        if not re.fullmatch(r"[A-Z][_0-9A-Za-z]*", name):
            return self.refuse(422, f"'{name}' is not a valid class name")
        wanted = body.get("replicationConfig", {}).get("factor", 1)
        if wanted > self.state.nodes:
            return self.refuse(
                422,
                "init sharding state: could not find enough weaviate nodes for replication: "
                f"{self.state.nodes} available, {wanted} requested",
            )
        if body.get("objectTtlConfig", {}).get("enabled") and not self.state.deletes_expired:
            return self.refuse(422, NO_SCHEDULE)
        self.state.schema[body["class"]] = normalised(body)
        return self.answer(200, body)

    def collection(self, name: str, schema: Any, body: Any) -> None:
        if self.command == "DELETE":
            del self.state.schema[name]
            self.state.tenants.pop(name, None)
            for place in [place for place in self.state.items if place[0] == name]:
                del self.state.items[place]
            return self.answer(200)
        if self.command == "PUT":  # every change is looked at whole, as the server does
            # Go takes names in any case, the later one last, and the client spells this one in two
            lifetimes = {**body.get("objectTtlConfig", {}), **body.get("objectTTLConfig", {})}
            if lifetimes.get("enabled") and not self.state.deletes_expired:
                return self.refuse(422, f"ObjectTTLConfig: {NO_SCHEDULE}")
            schema["description"] = body["description"]
            if lifetimes:
                schema["objectTtlConfig"] = lifetimes
        return self.answer(200, schema)

    def added(self, schema: Any, body: Any) -> None:
        if any(one["name"] == body["name"] for one in schema["properties"]):
            return self.refuse(422, f"class {schema['class']}: property '{body['name']}' already exists")
        schema["properties"].append(with_defaults(body))
        return self.answer(200, body)

    def tenants(self, parts: list[str], body: Any) -> None:
        tenants = self.state.tenants[parts[1]]
        if len(parts) == 4:
            return self.answer(200 if parts[3] in tenants else 404)
        if self.command == "DELETE":
            for name in body:
                tenants.pop(name, None)
                self.state.items.pop((parts[1], name), None)
            return self.answer(200)
        for place, one in enumerate(body or []):
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one["name"]):
                return self.refuse(
                    422,
                    f"tenant name at index {place}: '{one['name']}' is not a valid tenant name. should only "
                    "contain alphanumeric characters (a-z, A-Z, 0-9), underscore (_), and hyphen (-), with a "
                    "length between 1 and 64 characters",
                )
        for one in body or []:
            tenants[one["name"]] = "HOT"
        return self.answer(200, body)


def normalised(body: Any) -> Any:
    """The client reads back more than it sent, and stumbles where that is missing."""
    inverted = body.setdefault("invertedIndexConfig", {})
    inverted.setdefault("bm25", {"b": 0.75, "k1": 1.2})
    inverted.setdefault("cleanupIntervalSeconds", 60)
    stopwords = inverted.setdefault("stopwords", {})
    stopwords.update({name: stopwords.get(name) for name in ("additions", "removals")})
    stopwords.setdefault("preset", "en")
    tenancy = body.setdefault("multiTenancyConfig", {})
    for name in ("enabled", "autoTenantCreation", "autoTenantActivation"):
        tenancy.setdefault(name, False)
    replication = body.setdefault("replicationConfig", {})
    replication.setdefault("factor", 1)
    replication.setdefault("asyncEnabled", False)
    replication.setdefault("deletionStrategy", "TimeBasedResolution")
    body["shardingConfig"] = {}
    if "objectTtlConfig" in body:
        body["objectTtlConfig"].setdefault("filterExpiredObjects", False)
    for vector in body.get("vectorConfig", {}).values():
        vector.setdefault("vectorIndexType", "hnsw")
        vector["vectorIndexConfig"] = {**HNSW, **vector.get("vectorIndexConfig", {})}
    body["properties"] = [with_defaults(one) for one in body.get("properties") or []]
    return body


def with_defaults(one: Any) -> Any:
    text = one["dataType"][0].startswith("text")
    filled = {
        "indexFilterable": True,
        "indexSearchable": text,
        "indexRangeFilters": False,
        "tokenization": "word" if text else None,
    }
    return {**filled, **{name: value for name, value in one.items() if value is not None}}
