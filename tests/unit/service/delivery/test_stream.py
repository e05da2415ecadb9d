"""Consumers inside of the server that leave at the wrong moment keep nothing to themselves."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.unit.service.wiring import Wiring, in_loop, turn

from lavant.broker.protocol.queues import Receipt, Receive, Received, Send, SendEntry
from lavant.service.auth.keys import ANYBODY
from lavant.service.delivery.queue import acknowledge
from lavant.service.delivery.stream import PrefetchWindow
from lavant.service.observability.metrics import figures_of


async def cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def held(wiring: Wiring) -> tuple[int, int]:
    figures = figures_of(wiring.queues, "q")
    return figures.visible, figures.in_flight


@in_loop
async def test_who_leaves_while_waiting_gets_nothing() -> None:
    wiring = Wiring()
    await wiring.create()
    waiting: asyncio.Task[object] = asyncio.create_task(wiring.service.execute(Receive("q", wait_ms=20_000)))
    await turn()
    assert wiring.service.waiting_total == 1
    await cancelled(waiting)
    assert wiring.service.waiting_total == 0
    wiring.service.ask(Send("q", [SendEntry(b"one")]))
    assert held(wiring) == (1, 0)


@in_loop
async def test_who_leaves_before_the_disk_has_what_it_gets_gives_it_back() -> None:
    wiring = Wiring()
    await wiring.create()
    wiring.service.ask(Send("q", [SendEntry(b"one"), SendEntry(b"two")]))
    receiving: asyncio.Task[object] = asyncio.create_task(wiring.service.execute(Receive("q", 2)))
    await turn()
    assert held(wiring) == (0, 2)
    await cancelled(receiving)
    wiring.store.commit()
    await turn()
    assert held(wiring) == (2, 0)


@in_loop
async def test_a_window_that_is_closed_gives_everything_back_but_what_was_acknowledged() -> None:
    wiring = Wiring()
    await wiring.create()
    wiring.service.ask(Send("q", [SendEntry(b"%d" % n) for n in range(5)]))
    wiring.store.commit()
    window = PrefetchWindow(wiring.service, "q", ANYBODY, size=3, visibility_ms=60_000)
    deliveries = await window.lease()
    assert len(deliveries) == 3
    acknowledging = asyncio.create_task(window.acknowledge([deliveries[0].receipt.number, 10**9]))
    await turn()
    wiring.store.commit()
    assert [refused.code for refused in (await acknowledging).values()] == ["NotInFlight"]
    closing = asyncio.create_task(window.close())
    await turn()
    wiring.store.commit()
    await closing
    assert held(wiring) == (4, 0)


@in_loop
async def test_a_full_window_leases_nothing_until_there_is_room() -> None:
    wiring = Wiring()
    await wiring.create()
    wiring.service.ask(Send("q", [SendEntry(b"%d" % n) for n in range(3)]))
    wiring.store.commit()
    window = PrefetchWindow(wiring.service, "q", ANYBODY, size=1, visibility_ms=60_000)
    [first] = await window.lease()
    leasing = asyncio.create_task(window.lease())
    await turn()
    assert held(wiring) == (2, 1)
    returning = asyncio.create_task(window.give_back([first.receipt.number]))
    await turn()
    wiring.store.commit()
    await returning
    assert len(await leasing) == 1
    assert list(window.unacknowledged) != [first.receipt.number]


@in_loop
async def test_more_receipts_than_a_batch_holds_are_acknowledged_in_several() -> None:
    wiring = Wiring()
    await wiring.create()
    wiring.service.ask(Send("q", [SendEntry(b"x")]))
    wiring.store.commit()
    answer = await wiring.service.execute(Receive("q"))
    assert isinstance(answer, Received)
    receipts = [Receipt(10**6 + n, 1) for n in range(2500)]
    receipts[1700] = answer.deliveries[0].receipt
    acknowledging = asyncio.create_task(acknowledge(wiring.service, "q", receipts))
    for _ in range(3):
        await turn()
        wiring.store.commit()
    assert await acknowledging == {}
    assert held(wiring) == (0, 0)
