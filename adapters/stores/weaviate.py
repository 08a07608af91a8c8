"""Opens the buffer that an address names on Weaviate: which server and key, which tenant of which collection.

`weaviate://host[:port][/Collection]`, `weaviates://` for TLS and Weaviate Cloud, and
`weaviate+embedded:folder` for a server of one's own; what may follow is `?tenant=`, `grpc=`, `consistency=`,
`replicas=`, `timeout=` and `binary=`. The key comes from the environment or a file and stands in no address.
"""

import os
from collections.abc import Mapping

from dreamgym_kit.adapters.models.addresses import ApiKey, read_key
from dreamgym_kit.adapters.stores.weaviate_embedded import start_embedded
from dreamgym_kit.adapters.stores.weaviate_server import TIMEOUT_S, WeaviateServer, target_of
from dreamgym_kit.adapters.stores.weaviate_store import WeaviateStore
from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.interfaces import Embedder, Room
from dreamgym_kit.settings.buffer_url import COLLECTION, TENANT, Address
from dreamgym_kit.settings.schema import Settings

_KEY = "WEAVIATE_API_KEY"
_OPTIONS = ("binary", "consistency", "grpc", "replicas", "tenant", "timeout")
_NUMBERS = {"replicas": (1, 99), "timeout": (1, 600)}
_CONSISTENCY = ("ONE", "QUORUM", "ALL")


def open_weaviate(
    address: Address,
    settings: Settings,
    *,
    read_only: bool,
    embedder: Embedder | None,
    room: Room | None,
) -> WeaviateStore:
    """Open the buffer at an address; see docs/weaviate.md.

    Raises:
        StoreUnavailable: no server answers.
        StoreError: it refuses, or what it holds cannot be read here.
        UserError: the address or the key is none.
    """
    options = _options(address)
    if address.scheme == "weaviate+embedded":
        running = start_embedded(address, binary=options.get("binary"))
        target, key, stop = running.target, running.key, running.stop
    else:
        key, target, stop = _key(settings), target_of(address), None
    try:
        return WeaviateStore(
            WeaviateServer(
                str(address),
                target,
                key,
                key_name=settings.replay.weaviate_key_env or settings.replay.weaviate_key_file or _KEY,
                timeout_s=float(options.get("timeout", TIMEOUT_S)),
            ),
            collection=COLLECTION if stop else address.path.strip("/") or COLLECTION,
            tenant=options.get("tenant", TENANT),
            read_only=read_only,
            embedder=embedder,
            room=room,
            consistency=options.get("consistency", "quorum").upper(),
            replicas=int(options.get("replicas", "1")),
            on_close=stop,
        )
    except BaseException:
        if stop is not None:
            stop()
        raise


def _options(address: Address) -> Mapping[str, str]:
    for name, value in address.options.items():
        if name not in _OPTIONS:
            raise UnknownName("option", name, known=_OPTIONS, source=str(address), where="those of Weaviate")
        if name in _NUMBERS:
            low, high = _NUMBERS[name]
            if not value.isdecimal() or not low <= int(value) <= high:
                raise UserError(f"{address}: {name} is a whole number from {low} to {high}, not {value!r}")
        if name == "consistency" and value.upper() not in _CONSISTENCY:
            raise UserError(f"{address}: consistency is one, quorum or all, not {value!r}")
    return address.options


def _key(settings: Settings) -> ApiKey:
    """The key that settings name; else that of the usual variable, where it is set; else none."""
    variable, file = settings.replay.weaviate_key_env, settings.replay.weaviate_key_file
    if variable is None and file is None:
        variable = _KEY if os.environ.get(_KEY) else None
    named = "weaviate_key_file" if file is not None else "weaviate_key_env"
    return read_key(variable, file=file, source=settings.where("replay", named))
