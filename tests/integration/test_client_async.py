"""The asynchronous client against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from tests.integration.serving import Served

from lavant import AsyncClient, connect_async
from lavant.client.subscriptions.notification import Notification
from lavant.core.errors import FilterSyntaxError, InvalidValue, PartlyRefused, UnknownQueue

WAIT_S = 20.0


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(None) as server:
        yield server


def with_client(test: Callable[[AsyncClient], Awaitable[None]]) -> Callable[[Served], None]:
    """Runs a test with a client; all subscriptions and queues are gone afterwards."""

    async def work(url: str) -> None:
        async with asyncio.timeout(60), await connect_async(url) as client:
            await test(client)
            for state in [each async for each in client.subscriptions()]:
                await client.unsubscribe(state.name)
            for name in [each async for each in client.queues()]:
                await client.queue(name).delete()

    def run(served: Served) -> None:
        asyncio.run(work(served.url))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def nothing(notification: Notification) -> None:
    pass


@with_client
async def test_tasks_publish_together_and_everything_comes(client: AsyncClient) -> None:
    async with await client.subscribe("n >= 0") as everything:
        ids = await asyncio.gather(*(client.publish({"n": n}, payload=b"%d" % n) for n in range(500)))
        found = [each async for each in everything.notifications(count=500, timeout_s=WAIT_S)]
        assert sorted(each.id for each in found) == sorted(ids)
        assert {(each.attributes["n"], each.payload) for each in found} == {(n, b"%d" % n) for n in range(500)}
        await client.publish_many([{"n": n} for n in range(1500)])
        again = [each.attributes["n"] async for each in everything.notifications(count=1500, timeout_s=WAIT_S)]
        assert again == list(range(1500))
    assert [state async for state in client.subscriptions()] == []


@with_client
async def test_refusals_are_errors(client: AsyncClient) -> None:
    with pytest.raises(FilterSyntaxError):
        await client.subscribe("price >> 5")
    with pytest.raises(PartlyRefused) as raised:
        await client.publish_many([{"n": 1}, {"@n": 2}])
    assert list(raised.value.refused) == [1]
    with pytest.raises(InvalidValue):
        await client.publish({"@n": 2})


@with_client
async def test_handlers_work_beside_each_other_and_failures_come_again(client: AsyncClient) -> None:
    together = asyncio.Barrier(4)
    attempts: list[int] = []

    async def handle(notification: Notification) -> None:
        await together.wait()
        attempts.append(notification.attempt)
        if notification.attributes["n"] == 0 and notification.attempt == 1:
            raise RuntimeError("no luck")

    async with await client.subscribe("n >= 0", name="s") as subscription:
        await client.publish_many([{"n": n} for n in range(8)])
        assert await subscription.run(handle, workers=4, count=8) == 8
        assert attempts == [1] * 8
        [again] = [each async for each in subscription.notifications(count=1, timeout_s=WAIT_S)]
        assert (again.attributes["n"], again.attempt) == (0, 2)
    figures = (await client.queue("s").describe()).figures
    assert (figures.visible, figures.in_flight, figures.acknowledged) == (0, 0, 8)


@with_client
async def test_a_handler_that_is_cancelled_gives_back_what_it_had(client: AsyncClient) -> None:
    begun = asyncio.Event()

    async def handle(notification: Notification) -> None:
        begun.set()
        await asyncio.sleep(WAIT_S)

    subscription = await client.subscribe("n > 0", name="s")
    running = asyncio.ensure_future(subscription.run(handle))
    await client.publish({"n": 1})
    await begun.wait()
    running.cancel()
    await asyncio.wait([running])
    [again] = [each async for each in subscription.notifications(count=1, timeout_s=WAIT_S)]
    assert again.attempt == 2
    await subscription.close()


@with_client
async def test_a_handler_in_the_background_may_close_its_own_subscription(client: AsyncClient) -> None:
    seen = []

    async def handle(notification: Notification) -> None:
        seen.append(notification.attributes["n"])
        if len(seen) == 2:
            await subscription.close()

    subscription = await client.subscribe("n > 0", handler=handle)
    await client.publish_many([{"n": n} for n in range(1, 10)])
    async with asyncio.timeout(WAIT_S):
        await subscription.join()
    assert seen == [1, 2]


@with_client
async def test_whoever_waits_is_told_of_the_end(client: AsyncClient) -> None:
    removed = await client.subscribe("n > 0", name="removed")
    waiting = asyncio.ensure_future(removed.run(nothing))
    while not removed._prefetcher:
        await asyncio.sleep(0.001)
    await client.unsubscribe("removed")
    with pytest.raises(UnknownQueue):
        await waiting
    await removed.close()
    closed = await client.subscribe("n > 0")
    waiting = asyncio.ensure_future(closed.run(nothing))
    while not closed._prefetcher:
        await asyncio.sleep(0.001)
    await closed.close()
    assert await waiting == 0


@with_client
async def test_advertisements_come_and_go(client: AsyncClient) -> None:
    await client.advertise("price > 0", name="quotes")
    assert [each.filter async for each in client.advertisements()] == ["price > 0"]
    await client.unadvertise("quotes")
    assert [each async for each in client.advertisements()] == []
