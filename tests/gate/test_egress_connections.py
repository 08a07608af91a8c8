"""Connections that stand open when a dream begins are listed, so that they can be warned about."""

import asyncio
import os
import posix
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.guard import connections, egress
from dreamgym_kit.guard.connections import (
    OpenConnection,
    claim_open,
    foreign_connections,
    of_the_kit,
    open_connections,
)
from dreamgym_kit.guard.egress import Allowance, Trip

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="the list of open files is Linux's"
)


def test_a_connected_socket_is_listed_with_the_far_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert OpenConnection(client.fileno(), "tcp", f"127.0.0.1:{port}") in open_connections()
            assert client.send(b"x") == 1  # looking has not disturbed it
        assert all(connection.remote != f"127.0.0.1:{port}" for connection in open_connections())


def test_a_person_reads_what_it_is_connected_to() -> None:
    assert str(OpenConnection(7, "tcp", "10.0.0.5:5432")) == "tcp connection to 10.0.0.5:5432 (descriptor 7)"


def test_listening_unconnected_and_paired_sockets_are_not_connections() -> None:
    left, right = socket.socketpair()
    listening, unconnected = socket.create_server(("127.0.0.1", 0)), socket.socket(type=socket.SOCK_DGRAM)
    with left, right, listening, unconnected:
        ours = {one.fileno() for one in (left, right, listening, unconnected)}
        assert ours.isdisjoint(connection.fd for connection in open_connections())


async def test_a_running_event_loop_is_not_a_connection() -> None:
    own = asyncio.get_running_loop()._csock.fileno()  # type: ignore[attr-defined]
    assert all(connection.fd != own for connection in open_connections())


def test_what_the_kit_opens_to_a_server_is_its_own_and_the_agents_to_the_same_server_is_not() -> None:
    claim_open()  # what other tests left
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address) as before, socket.create_server(("127.0.0.1", 0)) as other:
            with of_the_kit([address[1]]):
                ours = socket.create_connection(address)
                theirs = socket.create_connection(other.getsockname())
            listed = {one.fd for one in foreign_connections()}
            assert listed == {before.fileno(), theirs.fileno()}
            theirs.close()
        with ours, socket.create_connection(address) as after:
            assert [one.fd for one in foreign_connections()] == [after.fileno()]
        with socket.create_connection(address) as again:  # where ours was, another one
            assert [one.fd for one in foreign_connections()] == [again.fileno()]


def test_udp_and_unix_ends_are_told_apart(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "door"))
        server.listen()
        client.connect(str(tmp_path / "door"))
        with socket.socket(type=socket.SOCK_DGRAM) as caller:
            caller.connect(("127.0.0.1", 9))
            listed = open_connections()
        assert OpenConnection(client.fileno(), "unix", str(tmp_path / "door")) in listed
        assert ("udp", "127.0.0.1:9") in {(connection.kind, connection.remote) for connection in listed}


def test_a_system_that_keeps_no_list_has_nothing_to_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_DESCRIPTORS", tmp_path / "absent")
    assert open_connections() == []


class OpenEpisode:
    """A double of the session that code belongs to."""

    open = True

    def reached(self, host: str) -> None:
        """Told of nobody."""


@pytest.fixture(autouse=True)
def no_episode_is_left() -> Iterator[None]:
    yield
    egress.arm(Allowance(), lambda _: None)
    egress.disarm()


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection that stood before any dream."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        accepted, _ = server.accept()
        with accepted:
            yield client, accepted


def to_a_file(client: socket.socket) -> None:
    with client.makefile("w") as file:
        file.write("x")
        file.flush()


def by_descriptor(client: socket.socket) -> None:
    with os.fdopen(os.dup(client.fileno()), "wb", 0) as file:
        file.write(b"x")


def from_a_file(client: socket.socket) -> None:
    with Path(__file__).open("rb") as file:
        os.sendfile(client.fileno(), file.fileno(), 0, 1)


def from_a_named_file(client: socket.socket) -> None:
    with Path(__file__).open("rb") as file:
        os.sendfile(in_fd=file.fileno(), out_fd=client.fileno(), offset=0, count=1)


def from_a_pipe(client: socket.socket) -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b"x")
        os.splice(reading, client.fileno(), 1)
    finally:
        os.close(reading)
        os.close(writing)


SENDS: dict[str, Callable[[socket.socket], object]] = {
    "send": lambda client: client.send(b"x"),
    "sendall": lambda client: client.sendall(b"x"),
    "sendmsg": lambda client: client.sendmsg([b"x"]),
    "file": to_a_file,
    "os.write": lambda client: os.write(client.fileno(), b"x"),
    "os.fdopen": by_descriptor,
    "posix.write": lambda client: posix.write(client.fileno(), b"x"),
    "os.sendfile": from_a_file,
    "os.sendfile by name": from_a_named_file,
    "os.splice": from_a_pipe,
}


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_an_episode_sends_nothing_over_a_connection_that_stood_before(
    line: tuple[socket.socket, socket.socket], send: Callable[[socket.socket], object]
) -> None:
    client, far = line
    trips: list[Trip] = []
    egress.arm(Allowance(), trips.append, OpenEpisode)
    try:
        with pytest.raises(RealCallBlocked, match="send to 127"):
            send(client)
    finally:
        egress.disarm()
    far.setblocking(False)
    with pytest.raises(BlockingIOError):
        far.recv(1)
    assert trips


@pytest.mark.parametrize("who", ["an allowed host", "no episode", "a pair", "made since"])
def test_what_was_judged_or_is_nobodys_goes_on(line: tuple[socket.socket, socket.socket], who: str) -> None:
    client, far = line
    ours, theirs = socket.socketpair()
    port = client.getpeername()[1]
    hosts = frozenset({f"127.0.0.1:{port}"} if who in ("an allowed host", "made since") else ())
    with ours, theirs:
        egress.arm(Allowance(hosts), lambda _: None, (lambda: None) if who == "no episode" else OpenEpisode)
        try:
            sender = ours if who == "a pair" else client
            if who == "made since":
                with socket.create_connection(("127.0.0.1", port)) as fresh:
                    assert fresh.send(b"x") == 1
            else:
                assert sender.send(b"x") == 1
                assert (theirs if who == "a pair" else far).recv(1) == b"x"
        finally:
            egress.disarm()


def test_a_copy_of_the_connection_is_the_same(line: tuple[socket.socket, socket.socket]) -> None:
    client, _ = line
    egress.arm(Allowance(), lambda _: None, OpenEpisode)
    try:
        with client.dup() as copy, pytest.raises(RealCallBlocked, match="send to 127"):
            copy.send(b"x")
    finally:
        egress.disarm()


def test_what_an_episode_left_running_sends_nothing_after_the_dream(
    line: tuple[socket.socket, socket.socket],
) -> None:
    client, _ = line
    episode = OpenEpisode()
    egress.arm(Allowance(), lambda _: None, lambda: episode)
    egress.disarm()
    episode.open = False
    with pytest.raises(RealCallBlocked, match="send to 127"):
        client.send(b"x")
