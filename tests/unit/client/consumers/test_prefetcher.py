"""What comes in for a subscription, from a server that says what it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.queues import (
    Acknowledge,
    Acknowledged,
    ChangeVisibility,
    Delivery,
    Done,
    EndLongPolls,
    Receipt,
    Receive,
    Received,
    Refused,
    VisibilityChanged,
)
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.calls import Call
from lavant.client.consumers.prefetcher import HeldMessage, Prefetcher
from lavant.core.errors import StorageFull, TooManyInFlight, UnknownQueue


class Server:
    """Has so many messages; notes what it is asked."""

    def __init__(self, messages: int) -> None:
        self.left = messages
        self.asked: list[Request] = []
        self.lost: set[int] = set()
        """Messages whose leases have run out."""
        self.failures: list[Refused] = []
        self.changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._given = 0

    async def run(self, call: Call[Any]) -> Any:
        request = call.request
        self.asked.append(request)
        self.changed.set()
        await asyncio.sleep(0)
        if self.failures:
            return call.read(self.failures.pop())
        match request:
            case Receive():
                return call.read(await self._received(request))
            case Acknowledge():
                refused = [i for i, receipt in enumerate(request.receipts) if receipt.number in self.lost]
                return call.read(Acknowledged({i: Refused("StaleReceipt", "lost") for i in refused}))
            case ChangeVisibility():
                lost = [i for i, change in enumerate(request.changes) if change.receipt.number in self.lost]
                return call.read(VisibilityChanged({i: Refused("NotInFlight", "lost") for i in lost}))
            case EndLongPolls():
                self._ended.set()
                return call.read(Done())
        raise AssertionError(request)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_so():
                self.changed.clear()
                await self.changed.wait()

    def of_kind(self, kind: type) -> list[Any]:
        return [request for request in self.asked if isinstance(request, kind)]

    async def _received(self, request: Receive) -> Received:
        if not self.left:
            await self._ended.wait()
        count = min(request.count, self.left)
        self.left -= count
        numbers = range(self._given + 1, self._given + count + 1)
        self._given += count
        return Received([Delivery(Receipt(n, n), b"%d" % n, b"", 0, 0, 1, "", "") for n in numbers])


def intake_of(server: Server, *, prefetch: int = 10, visibility_ms: int = 30_000) -> Prefetcher:
    connection = cast(AsyncConnection, server)
    return Prefetcher(connection, "q", visibility_ms=visibility_ms, prefetch=prefetch, wake=asyncio.Event.set)


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


async def taken(intake: Prefetcher, count: int) -> list[HeldMessage]:
    found = [await intake.next(10) for _ in range(count)]
    assert None not in found
    return cast(list[HeldMessage], found)


def numbers(held: list[HeldMessage]) -> list[int]:
    return [each.delivery.receipt.number for each in held]


@in_loop
async def test_no_more_than_wanted_is_received_ahead() -> None:
    server = Server(100)
    intake = intake_of(server, prefetch=10)
    await server.until(lambda: bool(server.of_kind(Receive)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert server.left == 90
    first = await taken(intake, 4)
    assert server.left == 90, "more is received when half of it is gone"
    rest = await taken(intake, 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert server.left == 85, "and no more than was wanted ahead"
    rest += await taken(intake, 95)
    assert numbers(first + rest) == list(range(1, 101))
    assert max(request.count for request in server.of_kind(Receive)) == 10
    await intake.close()


@in_loop
async def test_what_is_settled_meanwhile_is_told_together() -> None:
    server = Server(10)
    intake = intake_of(server)
    held = await taken(intake, 10)
    for each in held:
        intake.settle(each, 0 if each.delivery.receipt.number == 3 else None)
    await intake.flush()
    [acknowledged] = server.of_kind(Acknowledge)
    assert [receipt.number for receipt in acknowledged.receipts] == [1, 2, 4, 5, 6, 7, 8, 9, 10]
    [again] = server.of_kind(ChangeVisibility)
    assert [(change.receipt.number, change.visibility_ms) for change in again.changes] == [(3, 0)]
    await intake.close()


@in_loop
async def test_at_the_end_what_nobody_took_is_given_back_and_what_is_settled_is_told() -> None:
    server = Server(4)
    intake = intake_of(server)
    first, second = await taken(intake, 2)
    intake.settle(first, None)
    await intake.close()
    assert [request.receipts for request in server.of_kind(Acknowledge)] == [[first.delivery.receipt]]
    [back] = server.of_kind(ChangeVisibility)
    assert [(change.receipt.number, change.visibility_ms) for change in back.changes] == [(3, 0), (4, 0)]
    assert not second.is_settled, "whoever has it may still say what became of it"
    assert await intake.next(10) is None


@in_loop
async def test_a_receive_that_waits_is_ended_and_what_it_still_brings_is_given_back() -> None:
    server = Server(0)
    intake = intake_of(server)
    await server.until(lambda: bool(server.of_kind(Receive)))
    server.left = 3  # leased before the server learned that nobody wants them
    await intake.close()
    assert [request.queue for request in server.of_kind(EndLongPolls)] == ["q"]
    [back] = server.of_kind(ChangeVisibility)
    assert [(change.receipt.number, change.visibility_ms) for change in back.changes] == [(1, 0), (2, 0), (3, 0)]
    assert len(server.of_kind(Receive)) == 1


@in_loop
async def test_leases_of_all_that_is_held_are_extended_until_it_is_settled() -> None:
    server = Server(4)
    intake = intake_of(server, visibility_ms=60)
    first, second = await taken(intake, 2)
    intake.settle(first, None)
    await server.until(lambda: len(server.of_kind(ChangeVisibility)) >= 3)
    for request in server.of_kind(ChangeVisibility):
        assert [change.receipt.number for change in request.changes] == [2, 3, 4]
        assert {change.visibility_ms for change in request.changes} == {60}
    intake.settle(second, None)
    await intake.close()


@in_loop
async def test_a_message_whose_lease_was_lost_is_not_given_out() -> None:
    server = Server(3)
    server.lost = {2}
    intake = intake_of(server, visibility_ms=60)
    assert numbers(await taken(intake, 1)) == [1]
    await server.until(lambda: len(server.of_kind(ChangeVisibility)) >= 2)
    assert numbers(await taken(intake, 1)) == [3]
    await intake.close()


@in_loop
async def test_an_acknowledgement_that_comes_too_late_is_no_failure() -> None:
    server = Server(2)
    server.lost = {1}
    intake = intake_of(server)
    for each in await taken(intake, 2):
        intake.settle(each, None)
    await intake.flush()
    assert await intake.next(0.01) is None
    await intake.close()


@in_loop
async def test_what_cannot_go_on_is_told_to_whoever_asks() -> None:
    server = Server(1)
    server.failures = [Refused(StorageFull.__name__, "no room")]
    intake = intake_of(server)
    for _ in range(2):
        with pytest.raises(StorageFull, match="no room"):
            await intake.next(10)
    await intake.close()


@in_loop
async def test_a_queue_that_is_busy_is_asked_again() -> None:
    server = Server(1)
    server.failures = [Refused(TooManyInFlight.__name__, "too many")]
    intake = intake_of(server)
    assert numbers(await taken(intake, 1)) == [1]
    await intake.close()


@in_loop
async def test_a_queue_that_ended_with_its_lease_is_brought_back() -> None:
    """What was taken before is still handed out; acknowledging it is of no use, and no failure."""
    server = Server(2)
    revived = 0

    async def revive() -> None:
        nonlocal revived
        revived += 1
        server.left += 1

    connection = cast(AsyncConnection, server)
    intake = Prefetcher(connection, "q", visibility_ms=30_000, prefetch=2, wake=asyncio.Event.set, revive=revive)
    first, second = await taken(intake, 2)
    server.failures = [Refused(UnknownQueue.__name__, "there is no queue 'q'")]
    server.lost = {1, 2}
    intake.settle(first, None)
    await intake.flush()
    assert revived == 1
    assert numbers(await taken(intake, 1)) == [3]
    intake.settle(second, None)
    await intake.flush()
    await intake.close(is_queue_gone=True)


@in_loop
async def test_a_queue_that_is_gone_for_good_is_told() -> None:
    server = Server(0)
    server.failures = [Refused(UnknownQueue.__name__, "there is no queue 'q'")]
    intake = intake_of(server)
    with pytest.raises(UnknownQueue):
        await intake.next(10)
    await intake.close(is_queue_gone=True)


@in_loop
async def test_those_who_wait_when_it_stops_get_nothing() -> None:
    intake = intake_of(Server(0))
    waiting = [asyncio.ensure_future(intake.next(None)) for _ in range(3)]
    await asyncio.sleep(0)
    intake.stop()
    assert await asyncio.gather(*waiting) == [None, None, None]
    await intake.close()
