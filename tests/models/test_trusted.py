"""A replica that was lost, or may have been started anew, says what it serves before it is believed."""

import asyncio

import pytest

from dreamgym_kit.adapters.models.addresses import EndpointAddress, read_address
from dreamgym_kit.adapters.models.endpoint import ReplicaVerifier
from dreamgym_kit.errors import EndpointError

SERVER = read_address("http://127.0.0.1:8000/v1", source="test")


class HostDouble:
    """A server that may be started anew, and who knows what it has to serve."""

    def __init__(self) -> None:
        self.opened = self.proven = self.recognised = self.times_brought = 0
        self.others = self.gone = False  # it serves other weights than it should; it is not there
        self.said, self.mended = asyncio.Event(), asyncio.Event()
        self.said.set()
        self.mended.set()
        self.trusted = ReplicaVerifier(lambda: self.opened)
        self.trusted.verify_by(self)

    async def prove(self, _: EndpointAddress) -> None:
        self.proven += 1
        self.times_brought += self.others
        await self.mended.wait()
        if self.gone:
            raise EndpointError("connection", "not there", retryable=True)
        self.others = False

    async def recognise(self, _: EndpointAddress) -> None:
        self.recognised += 1
        await self.said.wait()
        if self.others:
            raise EndpointError("stale_weights", "others", retryable=True)

    def brought(self, _: EndpointAddress) -> int:
        return self.times_brought

    def brings(self, _: EndpointAddress) -> bool:
        return True

    async def asked(self, *, opens: bool = False, by: int | None = None) -> None:
        """One request; it comes over a connection of its own if it opens one, else over the last."""
        seen = await self.trusted.before(SERVER)
        self.opened += opens
        await self.trusted.after(SERVER, by or self.opened, seen)


async def test_it_is_asked_once_for_all_connections_that_were_opened() -> None:
    host = HostDouble()
    for _ in range(3):
        await host.asked(opens=True)
    assert host.recognised == 3
    for number in range(9):
        await host.asked(by=1 + number % 3)
    assert (host.recognised, host.proven) == (3, 0)


async def test_answers_that_come_together_are_believed_for_one_question() -> None:
    host = HostDouble()
    seen = await host.trusted.before(SERVER)
    host.opened = 32
    await asyncio.gather(*[host.trusted.after(SERVER, 1 + number, seen) for number in range(32)])
    assert host.recognised == 1


async def test_an_answer_over_a_connection_that_another_opened_counts_when_the_server_was_asked() -> None:
    host = HostDouble()
    await host.asked(opens=True)
    host.others = True  # started anew
    host.said.clear()
    first = asyncio.create_task(host.asked(opens=True))
    await asyncio.sleep(0)
    second = asyncio.create_task(host.asked())  # over the connection of the first, which is not known yet
    await asyncio.sleep(0)
    host.said.set()
    for one in (first, second):
        with pytest.raises(EndpointError, match="others"):
            await one
    await host.asked()
    assert (host.proven, host.others) == (1, False)


async def test_what_answered_before_it_was_put_right_does_not_count() -> None:
    host = HostDouble()
    await host.asked(opens=True)
    seen = await host.trusted.before(SERVER)
    host.opened, host.others = 2, True  # the answer of a server that was started anew
    host.trusted.doubt(SERVER)  # which another request noticed
    await host.asked()
    assert (host.proven, host.others) == (1, False)
    with pytest.raises(EndpointError, match="was given its weights while it was asked") as refused:
        await host.trusted.after(SERVER, 2, seen)
    assert refused.value.retryable


async def test_one_lost_connection_costs_no_other_answer() -> None:
    """Known ones count whatever happened to others; new ones, too, where nothing had to be put right."""
    host = HostDouble()
    await host.asked(opens=True)
    seen = await host.trusted.before(SERVER)
    host.trusted.doubt(SERVER)
    await host.trusted.after(SERVER, 1, seen)
    assert host.recognised == 1
    await host.asked(opens=True)
    host.opened += 1
    await host.trusted.after(SERVER, host.opened, seen)
    assert (host.proven, host.times_brought) == (1, 0)


async def test_who_waited_while_it_could_not_prove_itself_does_not_have_it_try_again() -> None:
    host = HostDouble()
    host.gone = True
    host.trusted.doubt(SERVER)
    host.mended.clear()
    waiting = [asyncio.create_task(host.asked()) for _ in range(8)]
    await asyncio.sleep(0)
    host.mended.set()
    failed = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(error) for error in failed] == ["not there"] * 8
    assert host.proven == 1
    host.gone = False
    await host.asked()
    assert host.proven == 2


async def test_what_is_lost_while_it_proves_itself_stays_in_doubt() -> None:
    host = HostDouble()
    host.trusted.doubt(SERVER)
    host.mended.clear()
    first = asyncio.create_task(host.asked())
    await asyncio.sleep(0)
    host.trusted.doubt(SERVER)
    host.mended.set()
    await first
    await host.asked()
    assert host.proven == 2


async def test_without_a_way_to_ask_all_are_believed() -> None:
    trusted = ReplicaVerifier(lambda: 7)
    trusted.doubt(SERVER)
    await trusted.after(SERVER, 7, await trusted.before(SERVER))
    assert not trusted.forgot(SERVER, EndpointError("not_found", "gone", status=404))
