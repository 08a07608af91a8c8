"""Work in a thread of its own that the caller waits for: its own event loop must not be used."""

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def apart(work: Callable[[], T], *, name: str) -> T:
    """Run `work` in a new thread called `name`, wait, and give what it gave or raise what it raised."""
    box: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            box.append(work())
        except BaseException as error:  # noqa: BLE001  carried to the caller's thread below
            failure.append(error)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return box[0]
