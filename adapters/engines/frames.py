"""Messages over a stream socket between a driver and its worker: a kind, a number, and so many bytes.

c  the driver's request       r  the worker's answer to it, with its number
a  the worker's question      b  the driver's answer to it, with its number
"""

import struct

REQUEST, RESULT, ASK, ANSWER = b"c", b"r", b"a", b"b"
HEAD = struct.Struct(">cQQ")  # kind, number, length
MOST = 1 << 31  # bytes of a message: an episode's record is at most 128 MiB


def framed(kind: bytes, number: int, message: bytes) -> bytes:
    """One frame."""
    return HEAD.pack(kind, number, len(message)) + message
