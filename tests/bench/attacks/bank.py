"""A bank in a process of its own: what it wrote into its log happened, whoever says otherwise.

The other end is `bank_server.py`.
"""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from waiting import wait_until


@dataclass(frozen=True, slots=True)
class Bank:
    """Where the bank is, and what it did."""

    port: int
    log: Path

    def refunds(self, tag: str) -> int:
        """How many refunds came from the trial of that tag."""
        return self.log.read_text("utf-8").splitlines().count(tag)


@contextmanager
def opened_bank(folder: Path) -> Iterator[Bank]:
    """A bank that keeps its log in a folder."""
    log = folder / "bank.log"
    log.touch()
    with _server([str(log)]) as port:
        yield Bank(port, log)


@contextmanager
def opened_mcp(bank: Bank) -> Iterator[int]:
    """The MCP server; what its tools are asked to do goes into the bank's log. Gives its port."""
    with _server([str(bank.log), "mcp"]) as port:
        wait_until(lambda: _answers(port), "the MCP server to listen")
        yield port


@contextmanager
def _server(arguments: list[str]) -> Iterator[int]:
    command = [sys.executable, str(Path(__file__).with_name("bank_server.py")), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline())
        finally:
            server.kill()


def _answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0
