"""One bounded look at a server that this process watches: a status and a body, or that nobody answered.

No proxies, no redirects, a few seconds: what is watched is near, and a look that hangs tells as much as none.
"""

import http.client
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from dreamgym_kit.gate.egress import exempt

_MOST_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look brought; status 0: nobody answered."""

    status: int
    body: bytes = b""

    @property
    def text(self) -> str:
        """The body, whatever its bytes are."""
        return self.body.decode("utf-8", "replace")


def listens(url: str, *, timeout_s: float = 2.0) -> bool:
    """Whether somebody takes connections at `url`, also one too busy to answer them."""
    parts = urlsplit(url)
    with exempt():  # as in `look`
        try:
            with socket.create_connection(
                (parts.hostname or "", parts.port or 0), timeout=timeout_s
            ) as found:
                itself = bool(found.getsockname() == found.getpeername())  # as happens where nobody listens
                return not itself
        except OSError:
            return False


def look(
    url: str,
    path: str,
    *,
    key: str = "",
    method: str = "GET",
    body: bytes | None = None,
    timeout_s: float = 5.0,
) -> Seen:
    """Ask `url` (http://host:port) for `path`."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    with exempt():  # a person named this server, or this process started it
        connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return Seen(answer.status, answer.read(_MOST_BYTES))
        except (OSError, http.client.HTTPException):
            return Seen(0)
        finally:
            connection.close()
