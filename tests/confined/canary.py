"""What stands outside of a sandbox and notes what gets out: listeners, files, and a process to be harmed."""

import ctypes
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType

from confined import escapes
from waiting import wait_until

_VICTIM = """
import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: open(sys.argv[1], "w"))
print(flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the tries."""

    tried: tuple[str, ...]
    escaped: tuple[str, ...]
    told: tuple[str, ...]  # of those that did not escape
    errors: str


@dataclass
class Canary:
    """Notes what arrives; a context manager."""

    folder: Path
    heard: set[str] = field(default_factory=set)
    _stack: ExitStack = field(default_factory=ExitStack)
    _open: list[socket.socket] = field(default_factory=list)

    def __enter__(self) -> "Canary":
        self.folder.mkdir(parents=True, exist_ok=True)
        self._victim = subprocess.Popen(
            [sys.executable, "-c", _VICTIM, str(self.folder / "signalled")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._victim.stdout is not None
        self._victim.stdout.readline()
        self.host = _address()
        self.port = self._listeners()
        for name in (f"\0dreamgym-canary-{self._victim.pid}", str(self.folder / "canary.sock")):
            self._open.append(self._stack.enter_context(socket.socket(socket.AF_UNIX)))
            self._open[-1].bind(name)
        self._open.append(self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)))
        self._open[-1].bind(str(self.folder / "canary.datagrams"))
        for name in ("canary.sock", "canary.datagrams"):
            (self.folder / name).chmod(0o777)
        self._closing, self._end = socket.socketpair()
        self._hearing = threading.Thread(target=self._hear)
        self._hearing.start()
        libc = ctypes.CDLL(None)
        memory = libc.shmget(0x44524D47, 4096, 0o1600)
        self._stack.callback(libc.shmctl, memory, 0, None)
        self.files = {attempt.__name__: self.folder / attempt.__name__ for attempt in escapes.TRIES}
        for file in self.files.values():
            file.write_text("v")
        self.before = self._state()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.close()
        self._hearing.join()
        self._closing.close()
        self._stack.close()
        self._victim.kill()
        self._victim.communicate()

    def run(self, wrapper: Sequence[str], cwd: Path, *, only: Sequence[str] = ()) -> Outcome:
        """Try everything, or only these, below `wrapper`, a command line."""
        script = [sys.executable, str(Path(escapes.__file__)), self.host, str(self.port), str(self.folder)]
        done = subprocess.run(
            [*wrapper, *script, str(self._victim.pid), *only], cwd=cwd, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        self._settle()
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        after = self._state()
        believed = {row["try"] for row in rows if row["believes"] and row["try"] in escapes.BELIEVED}
        changed = {name for name in self.files if after.get(name) != self.before[name]}
        new = {name.removesuffix(".new") for name in after.keys() - self.before.keys()}
        others = {"signal_victim"} if "signalled" in new else set()
        if (shared := Path("/dev/shm", f"dreamgym-{self._victim.pid}")).exists():
            shared.unlink()
            others.add("shared_memory")
        escaped = {row["try"] for row in rows} & (believed | changed | new | others | self.heard)
        lines = [line for line in done.stderr.splitlines() if line.startswith("sandbox: ")]
        told = {
            row["try"] for row in rows if any(text in f"{line} " for line in lines for text in row["told"])
        } - escaped
        return Outcome(
            tuple(row["try"] for row in rows), tuple(sorted(escaped)), tuple(sorted(told)), done.stderr
        )

    def _settle(self) -> None:
        """Wait until all that arrived is heard: a second marker is read after what came before the first."""
        for marker in ("first marker", "second marker"):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
                line.sendto(marker.encode(), ("127.0.0.1", self.port))
            wait_until(partial(self.heard.__contains__, marker), marker)

    def _state(self) -> dict[str, object]:
        state: dict[str, object] = {}
        for file in self.folder.iterdir():
            facts = file.lstat()
            content = file.read_bytes() if file.is_file() and not file.is_symlink() else b""
            attributes = tuple(os.listxattr(file, follow_symlinks=False))
            owner = facts.st_mode, facts.st_uid, facts.st_nlink, facts.st_mtime_ns
            state[file.name] = content, attributes, owner
        return state

    def _listeners(self) -> int:
        """Listen by TCP and UDP on as many ports in a row as there are tries; gives the first one."""
        for first in range(21_000, 30_000, 100):
            with ExitStack() as made:
                opened = []
                try:
                    for port in range(first, first + len(escapes.TRIES)):
                        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                            opened.append(made.enter_context(socket.socket(socket.AF_INET, kind)))
                            opened[-1].bind(("0.0.0.0", port))
                except OSError:
                    continue
                self._stack.push(made.pop_all())
                self._open += opened
                return first
        raise RuntimeError("no ports in a row are free")

    def _hear(self) -> None:
        """Note what arrives, until the canary is closed."""
        with selectors.DefaultSelector() as waiting:
            for listening in self._open:
                if listening.type == socket.SOCK_STREAM:
                    listening.listen()
                waiting.register(listening, selectors.EVENT_READ)
            waiting.register(self._closing, selectors.EVENT_READ)
            while True:
                for key, _ in waiting.select():
                    listening = key.fileobj
                    if listening is self._closing:
                        return
                    assert isinstance(listening, socket.socket)
                    if listening.type == socket.SOCK_DGRAM:
                        self.heard.add(listening.recv(500).decode())
                        continue
                    line, _ = listening.accept()
                    with line, suppress(OSError):
                        line.settimeout(60)
                        self.heard.add(line.recv(500).decode().strip())


def _address() -> str:
    """An address of this machine beside loopback, where it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        try:
            line.connect(("192.0.2.1", 9))
            return str(line.getsockname()[0])
        except OSError:
            return "127.0.0.1"
