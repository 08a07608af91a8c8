"""Open a Weaviate buffer from its URL: server, key, collection and tenant.

`weaviate://host[:port][/Collection]`, `weaviates://` for TLS and Weaviate Cloud, and
`weaviate+embedded:folder` for a local server started for the buffer; options follow. The key comes from the
environment or a file, never from the URL.
"""

import os
from collections.abc import Mapping

from dreamgym_kit.adapters.models.addresses import ApiKey, read_host, read_key
from dreamgym_kit.adapters.stores.weaviate_embedded import start_embedded
from dreamgym_kit.adapters.stores.weaviate_server import TIMEOUT_S, ServerTarget, WeaviateServer
from dreamgym_kit.adapters.stores.weaviate_store import WeaviateStore
from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.interfaces import Embedder, Room
from dreamgym_kit.settings.buffer_url import COLLECTION, PORTS, TENANT, Address
from dreamgym_kit.settings.schema import Settings

_KEY = "WEAVIATE_API_KEY"
_FORM = "weaviate://HOST[:PORT], and grpc=[HOST:]PORT if gRPC has another"
_OPTIONS = ("binary", "consistency", "grpc", "index", "proxy", "replicas", "tenant", "timeout")
_NUMBERS = {"replicas": (1, 99), "timeout": (1, 600)}
_CHOICES = {
    "consistency": ("one", "quorum", "all"),
    "index": ("hnsw", "flat"),
    "proxy": ("none", "environment"),
}


def open_weaviate(
    address: Address, settings: Settings, *, read_only: bool, embedder: Embedder | None, room: Room | None
) -> WeaviateStore:
    """Open the buffer at a URL; raises the errors of `factory.open_store`. See docs/weaviate.md."""
    options, replay = _options(address), settings.replay
    running = None
    if address.scheme == "weaviate+embedded":
        running = start_embedded(address, binary=options.get("binary"))
        target, key = running.target, running.key
    else:
        key, target = _key(settings), target_of(address)
    try:
        return WeaviateStore(
            WeaviateServer(
                str(address),
                target,
                key,
                key_name=replay.weaviate_key_env or replay.weaviate_key_file or _KEY,
                timeout_s=float(options.get("timeout", TIMEOUT_S)),
                proxy=options.get("proxy") == "environment",
                ended=running.ended if running else lambda: None,
            ),
            collection=COLLECTION if running else address.path.strip("/") or COLLECTION,
            tenant=options.get("tenant", TENANT),
            read_only=read_only,
            embedder=embedder,
            room=room,
            consistency=options.get("consistency", "quorum").upper(),
            replicas=int(options.get("replicas", "1")),
            flat=options.get("index") == "flat",
            on_close=running.stop if running else None,
        )
    except BaseException:
        if running:
            running.stop()
        raise


def target_of(address: Address) -> ServerTarget:
    """Return host and ports of a URL's server; the option `grpc` is a port or `host:port`."""
    secure = address.scheme == "weaviates"
    host = read_host(address.host, source=str(address), form=_FORM)
    grpc_host, grpc_port = host, 50051
    if secure and host.endswith(".weaviate.cloud"):
        grpc_host, grpc_port = f"grpc-{host}", 443
    elif secure and host.endswith(".weaviate.network"):
        grpc_host, grpc_port = host.replace(".", ".grpc.", 1), 443
    if grpc := address.options.get("grpc"):
        named, colon, port = grpc.rpartition(":")
        if not port.isdecimal() or int(port) > 65535 or (colon and not named):
            raise UserError(f"{address}: grpc must be a port or HOST:PORT")
        if named:
            named = read_host(named.removeprefix("[").removesuffix("]"), source=str(address), form=_FORM)
        grpc_host, grpc_port = named or host, int(port)
    http_port = address.port or PORTS[address.scheme]
    if (host, http_port) == (grpc_host, grpc_port):
        raise UserError(
            f"{address}: HTTP and gRPC cannot share port {http_port}; set the gRPC port with grpc="
        )
    return ServerTarget(host, http_port, grpc_host, grpc_port, secure)


def _options(address: Address) -> Mapping[str, str]:
    for name, value in address.options.items():
        if name not in _OPTIONS:
            raise UnknownName(
                "option", name, known=_OPTIONS, source=str(address), where="the options of Weaviate"
            )
        if name in _NUMBERS:
            low, high = _NUMBERS[name]
            if not value.isdecimal() or not low <= int(value) <= high:
                raise UserError(f"{address}: {name} must be from {low} to {high}, not {value!r}")
        if name in _CHOICES and value.lower() not in _CHOICES[name]:
            *first, last = _CHOICES[name]
            raise UserError(f"{address}: {name} must be {', '.join(first)} or {last}, not {value!r}")
    return address.options


def _key(settings: Settings) -> ApiKey:
    """Return the key that the settings name, else $WEAVIATE_API_KEY, else no key."""
    variable, file = settings.replay.weaviate_key_env, settings.replay.weaviate_key_file
    if variable is None and file is None:
        variable = _KEY if os.environ.get(_KEY) else None
    named = "weaviate_key_file" if file is not None else "weaviate_key_env"
    return read_key(variable, file=file, source=settings.where("replay", named))
