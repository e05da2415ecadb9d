"""What every delivery kind promises: messages leave at least once, and none is lost or kept when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import pytest
from tests.unit.service.wiring import FakeStore, Wiring, turn, until

from lavant.broker.protocol.queues import DeleteQueue, Receive, Received, Send, SendEntry
from lavant.broker.protocol.subscriptions import Subscribe, SubscriptionState, Webhook
from lavant.broker.subscriptions.registry import Added, Removed
from lavant.core.errors import LavantError
from lavant.service.auth.keys import ANYBODY
from lavant.service.delivery.interface import DeliveryKind
from lavant.service.delivery.queue import QueueDelivery, acknowledge, give_back
from lavant.service.delivery.registry import KINDS, Deliveries
from lavant.service.delivery.stream import StreamDelivery
from lavant.service.delivery.webhooks import WebhookDelivery
from lavant.service.observability.metrics import figures_of
from lavant.service.runtime.limits import ServiceLimits

LIMITS = ServiceLimits(stop_s_max=0.05)


class EagerStore(FakeStore):
    """Commits as soon as it can."""

    def stage(self, record: bytes, *, hurry: bool = True) -> int:
        asyncio.get_running_loop().call_soon(self.commit)
        return super().stage(record, hurry=hurry)


class Bench:
    """A service with a queue `q`, all delivery kinds, and a consumer that takes messages and is slow to say so."""

    def __init__(self) -> None:
        self.wiring = Wiring(LIMITS, store=EagerStore())
        self.service = self.wiring.service
        self.deliveries = Deliveries(self.service, to_private=True)
        self.taken: list[bytes] = []
        self.may_finish = asyncio.Event()

    async def send(self, *bodies: bytes) -> None:
        await self.service.execute(Send("q", [SendEntry(body) for body in bodies]))

    def held(self) -> tuple[int, int]:
        figures = figures_of(self.wiring.queues, "q")
        return figures.visible, figures.in_flight

    async def take(self, body: bytes) -> None:
        self.taken.append(body)
        await self.may_finish.wait()


Consume = Callable[[Bench], Awaitable[None]]


async def by_queue(bench: Bench) -> None:
    while True:
        answer = await bench.service.execute(Receive("q", 10, 60_000, 1_000))
        if not isinstance(answer, Received):
            return
        receipts = [delivery.receipt for delivery in answer.deliveries]
        try:
            for delivery in answer.deliveries:
                await bench.take(delivery.body)
        except asyncio.CancelledError:
            await give_back(bench.service, "q", receipts)
            raise
        assert await acknowledge(bench.service, "q", receipts) == {}


async def by_stream(bench: Bench) -> None:
    window = bench.deliveries[StreamDelivery].window("q", ANYBODY, size=10, visibility_ms=60_000)
    try:
        while True:
            for delivery in await window.lease():
                window.sent([delivery.receipt.number])
                await bench.take(delivery.body)
                assert await window.acknowledge([delivery.receipt.number]) == {}
    finally:
        await window.close()


async def by_webhook(bench: Bench) -> None:
    async with receiver(bench) as url:
        kind = bench.deliveries[WebhookDelivery]
        await kind.deliver(subscription(webhook=Webhook(url)))


class Case(NamedTuple):
    consume: Consume
    asks: Subscribe
    """A subscription that this kind delivers."""
    wrong: Subscribe | None = None
    """One that it cannot deliver, if there is such."""


PLAIN = Subscribe("a = 1", "s", "q")
CASES: dict[type[DeliveryKind], Case] = {
    QueueDelivery: Case(by_queue, PLAIN),
    StreamDelivery: Case(by_stream, PLAIN),
    WebhookDelivery: Case(
        by_webhook,
        Subscribe("a = 1", "s", "q", webhook=Webhook("http://127.0.0.1:1/")),
        Subscribe("a = 1", "s", "q", webhook=Webhook("http://nowhere:99999/")),
    ),
}


def subscription(webhook: Webhook | None = None) -> SubscriptionState:
    return SubscriptionState(1, "s", "", "a = 1", "q", False, webhook, 0)


@asynccontextmanager
async def receiver(bench: Bench) -> AsyncIterator[str]:
    """Accepts what is posted, as soon as the bench lets it."""

    answering: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
            await bench.take(await reader.readexactly(length))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            writer.close()
            await writer.wait_closed()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.ensure_future(answer(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        bench.may_finish.set()
        server.close()
        await asyncio.gather(*answering)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> type[DeliveryKind]:
    assert request.param in CASES, "a new kind needs a case here"
    return request.param  # type: ignore[no-any-return]


def test_kinds_are_told_apart_by_name_and_way() -> None:
    names, ways = [kind.name for kind in KINDS], [way for kind in KINDS for way in kind.ways]
    assert len(set(names)) == len(names)
    assert len(set(ways)) == len(ways)
    assert all([*names, *ways])


def test_messages_leave_once_and_are_acknowledged(kind: type[DeliveryKind]) -> None:
    async def work() -> None:
        bench = Bench()
        await bench.wiring.create()
        bench.may_finish.set()
        consuming = asyncio.ensure_future(CASES[kind].consume(bench))
        await bench.send(b"1", b"2", b"3")
        await until(lambda: bench.held() == (0, 0))
        assert sorted(bench.taken) == [b"1", b"2", b"3"]
        await cancelled(consuming)

    asyncio.run(work())


def test_what_is_not_acknowledged_when_it_stops_is_visible_again(kind: type[DeliveryKind]) -> None:
    async def work() -> None:
        bench = Bench()
        await bench.wiring.create()
        consuming = asyncio.ensure_future(CASES[kind].consume(bench))
        await bench.send(b"1", b"2")
        await until(lambda: bool(bench.taken))
        assert sum(bench.held()) == 2
        await cancelled(consuming)
        await until(lambda: bench.held() == (2, 0))

    asyncio.run(work())


def test_it_ends_with_its_queue(kind: type[DeliveryKind]) -> None:
    async def work() -> None:
        bench = Bench()
        await bench.wiring.create()
        consuming = asyncio.ensure_future(CASES[kind].consume(bench))
        await turn()
        await bench.service.execute(DeleteQueue("q"))
        async with asyncio.timeout(20):
            with suppress(LavantError):
                await consuming

    asyncio.run(work())


def test_only_what_it_cannot_deliver_is_refused(kind: type[DeliveryKind]) -> None:
    async def work() -> None:
        deliveries = Bench().deliveries
        for case in CASES.values():
            deliveries.check(case.asks)
        wrong = CASES[kind].wrong
        if wrong is not None:
            with pytest.raises(LavantError):
                deliveries[kind].check(wrong)

    asyncio.run(work())


def test_tasks_follow_the_subscriptions_that_it_serves(kind: type[DeliveryKind]) -> None:
    async def work() -> None:
        bench = Bench()
        await bench.wiring.create()
        state = subscription(CASES[kind].asks.webhook)
        serves = bench.deliveries[kind].serves(state)
        bench.deliveries.start([])
        before = len(asyncio.all_tasks())
        bench.service.ingest.on_changes([Added(state, 1)])
        assert len(asyncio.all_tasks()) - before == serves
        await turn()
        bench.service.ingest.on_changes([Removed(state)])
        await until(lambda: len(asyncio.all_tasks()) == before)
        bench.service.ingest.on_changes([Added(state, 1)])
        await bench.deliveries.stop()
        assert len(asyncio.all_tasks()) == before

    asyncio.run(work())


def test_metrics_of_all_kinds_have_names_of_their_own(kind: type[DeliveryKind]) -> None:
    async def work() -> None:
        deliveries = Bench().deliveries
        deliveries[kind].delivered[kind.ways[0]] += 3
        first, *others = deliveries.families()
        assert first.name == "lavant_notifications"
        assert ({"way": kind.ways[0]}, 3) in first.samples
        assert len({family.name for family in others}) == len(others)

    asyncio.run(work())


async def cancelled(task: asyncio.Future[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
