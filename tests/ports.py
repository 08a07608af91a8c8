"""Ports of this machine that are ours also while nobody listens on them.

A port that was found free and let go may be any other process's a moment later: of a server, or of a client
that the kernel gave it. Kept, it is bound and not listened on: who connects is refused, nobody else is given
it, and a server that sets SO_REUSEADDR, as servers do, listens there all the same.
"""

import socket


def kept(port: int = 0) -> socket.socket:
    """A port that is ours until this is closed: that one, where nobody listens on it now, or any."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", port))
    return held


def own_port() -> int:
    """A port that is ours until this process ends."""
    held = kept()
    port = int(held.getsockname()[1])
    held.detach()  # stays bound, and nobody is warned of it
    return port
