"""What an endpoint answers, read with a bound in size and time.

A server that drips, sends without end or unpacks to gigabytes costs no more than one that says "ok", and
its words are taken for UTF-8: a guessed encoding would spell a key that it repeats so that no one knows it.
"""

import io
import time

import requests

MOST = 65_536  # bytes of an answer that are read; a refusal of spans is a few hundred


def read_answer(response: requests.Response, seconds: float) -> requests.Response:
    """Give a streamed answer as one that is read, cut where it is too long.

    Raises:
        requests.ReadTimeout: it has not ended within `seconds`.
    """
    until, body = time.monotonic() + seconds, bytearray()
    try:
        for part in response.iter_content(1):  # more would wait for more
            body += part
            if len(body) >= MOST:
                break
            if time.monotonic() > until:
                raise requests.ReadTimeout("the answer did not end in time")
    finally:
        response.close()
    read = requests.Response()
    read.status_code, read.reason, read.url = response.status_code, response.reason, response.url
    read.headers = response.headers
    read.encoding = "utf-8"
    read.raw = io.BytesIO(bytes(body[:MOST]))
    return read
