"""Buffers on Weaviate for tests: on the double, and on a live server where there is one.

A live server is named by WEAVIATE_URL (`http://host:8080`, `https://...` or `weaviate://host?grpc=50051`),
its key by WEAVIATE_API_KEY; or a binary by WEAVIATE_BINARY, which is started once for a module. Each module
has a collection of its own there, which is deleted afterwards, and each buffer a tenant.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dreamgym_kit.adapters.models.addresses import ApiKey
from dreamgym_kit.settings.buffer_url import Address, place_of

if find_spec("weaviate") is None:  # whoever imports this has nothing to test
    pytest.skip(
        "weaviate-client is not installed: pip install 'dreamgym-kit[weaviate]'", allow_module_level=True
    )


@contextmanager
def on_server(make: Callable[[str], Any]) -> Iterator[Callable[..., Any]]:
    """Opens buffers by name, each name a tenant; all are closed at the end.

    Args:
        make: gives a server for a place.
    """
    from dreamgym_kit.adapters.stores.weaviate_store import WeaviateStore

    opened: list[WeaviateStore] = []
    prefix = uuid.uuid4().hex[:8]
    collection = f"DreamgymTest_{prefix}"

    def open_buffer(name: str = "buffer", **said: Any) -> WeaviateStore:
        said = {"collection": collection, "tenant": f"{prefix}-{name}"[:64], **said}
        opened.append(WeaviateStore(make(f"weaviate test {name}"), **said))
        return opened[-1]

    try:
        yield open_buffer
    finally:
        for store in opened:
            store.close()
        server = make("weaviate test")
        server.ask("cleaning up", lambda client: client.collections.delete(collection), over_http=True)
        server.close()


def server_of(address: str, *, key: str = "", timeout_s: float = 120.0) -> Callable[[str], Any]:
    """Makes connections to an address."""
    from dreamgym_kit.adapters.stores.weaviate import target_of
    from dreamgym_kit.adapters.stores.weaviate_server import WeaviateServer

    place = place_of(address, Path())
    assert isinstance(place, Address)
    target = target_of(place)
    return lambda name: WeaviateServer(
        name, target, ApiKey(key), key_name="WEAVIATE_API_KEY", timeout_s=timeout_s
    )


@contextmanager
def live_server(folder: Path) -> Iterator[Callable[[str], Any]]:
    """Makes connections to a live server; skips where there is none."""
    url, binary = os.environ.get("WEAVIATE_URL"), os.environ.get("WEAVIATE_BINARY")
    if url:
        address = url.replace("https://", "weaviates://").replace("http://", "weaviate://")
        yield server_of(address, key=os.environ.get("WEAVIATE_API_KEY", ""))
    elif binary:
        from dreamgym_kit.adapters.stores.weaviate import start_embedded
        from dreamgym_kit.adapters.stores.weaviate_server import WeaviateServer

        running = start_embedded(Address("weaviate+embedded", path=str(folder)), binary=binary)
        try:
            yield lambda name: WeaviateServer(name, running.target, running.key, key_name="WEAVIATE_API_KEY")
        finally:
            running.stop()
    else:
        pytest.skip("NOT TESTED AGAINST A LIVE WEAVIATE: neither WEAVIATE_URL nor WEAVIATE_BINARY is set")
