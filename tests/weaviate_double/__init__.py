"""A double of a Weaviate server on the wire: REST and gRPC by the client's own protobufs, on two ports.

Behaves as the server's source says where that matters to a buffer: what is filtered by is trimmed, words are
split at blanks, a batch overwrites, 10,000 rows at most, a cursor only without filters, tenants are made by
name alone, and errors of Go have no status. It cannot tell how a real server ranks, replicates or expires.
`faults` holds what the next calls of a method meet; `requests` what was sent.
"""

import threading
import warnings
from concurrent import futures
from http.server import ThreadingHTTPServer
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import grpc
    from weaviate.proto.v1 import weaviate_pb2_grpc

from ports import own_port

from weaviate_double.calls import Service
from weaviate_double.rest import Handler
from weaviate_double.state import State

__all__ = ["DoubleOnItsOwnPorts", "WeaviateDouble", "grpc"]


class WeaviateDouble:
    """Listens from the start; `stop` and `start` again on the same ports play a server that was away.

    Args:
        key: the only one that is let in; None: anybody is.
        version: as the server says it.
        most_bytes: of one message.
        deletes_expired: whether it has a schedule for that, without which it refuses to be told lifetimes.
    """

    def __init__(
        self,
        *,
        key: str | None = None,
        version: str = "1.36.4",
        most_bytes: int = 104_858_000,
        deletes_expired: bool = True,
    ) -> None:
        self.state = State(key, version, most_bytes, deletes_expired)
        self.faults = self.state.faults
        self.requests = self.state.requests
        self._ports = (0, 0)
        self._rpc: Any = None
        self._web: Any = None
        self.start()

    @property
    def address(self) -> str:
        """Where it listens, as `--buffer` takes it."""
        return f"weaviate://127.0.0.1:{self._ports[0]}?grpc={self._ports[1]}"

    def start(self) -> None:
        """Listen; on the ports of before, if there were any."""
        http, rpc = self._ports
        self._web = ThreadingHTTPServer(("127.0.0.1", http), Handler)
        self._web.daemon_threads = True
        self._web.state = self.state  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._web.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self._rpc = grpc.server(
            futures.ThreadPoolExecutor(8),
            options=[
                ("grpc.max_send_message_length", -1),
                ("grpc.max_receive_message_length", self.state.most_bytes),
                ("grpc.so_reuseport", 0),
            ],
        )
        weaviate_pb2_grpc.add_WeaviateServicer_to_server(Service(self.state), self._rpc)
        self._ports = (self._web.server_port, self._rpc.add_insecure_port(f"127.0.0.1:{rpc}"))
        self._rpc.start()

    def stop(self) -> None:
        """Be away, with all rows kept."""
        self._rpc.stop(0).wait()
        self._web.shutdown()
        self._thread.join()
        self._web.server_close()

    def __enter__(self) -> "WeaviateDouble":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class DoubleOnItsOwnPorts(WeaviateDouble):
    """Nobody else is given them while it is away."""

    def start(self) -> None:
        """Listen; the first time on ports that stay its own."""
        if not any(self._ports):
            self._ports = own_port(), own_port()
        super().start()
