"""Lavant as a system to be measured: durable queues, every notification acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.request import urlopen

from tests.bench.publishing.measuring import System
from tests.bench.publishing.workload import TOPICS, quotes, stock_filters, topic_message

from lavant import connect_async
from lavant.broker.protocol.subscriptions import Subscribe
from lavant.client.async_client import AsyncClient
from lavant.client.subscriptions import calls
from lavant.client.subscriptions.async_subscription import AsyncSubscription

PIPELINED = 1000
COMMITS = "lavant_commit_seconds"
STALL_S = 0.01


class LavantPublisher:
    def __init__(self, client: AsyncClient, content: Callable[[int], dict[str, Any]]) -> None:
        self._client = client
        self._content = content

    async def publish(self, start: int, times_s: list[float]) -> None:
        await self._client.publish_many(
            [{**self._content(start + place), "sent_s": sent_s} for place, sent_s in enumerate(times_s)]
        )

    async def close(self) -> None:
        await self._client.close()


class LavantSubscribers:
    def __init__(self, subscriptions: list[AsyncSubscription]) -> None:
        self._subscriptions = subscriptions

    async def listen(self, notify: Callable[[float], None]) -> None:
        async def one(subscription: AsyncSubscription) -> None:
            async for notification in subscription:
                notify(float(notification.attributes["sent_s"]))

        await asyncio.gather(*map(one, self._subscriptions))


async def subscribe_stock(url: str, *, subscriptions: int, queues: int) -> None:
    """So many filters into so many queues, in turn."""
    async with await connect_async(url) as client:
        for number in range(queues):
            await client.create_queue(f"stock-{number}")
        filters = list(stock_filters(subscriptions))
        for start in range(0, subscriptions, PIPELINED):
            await asyncio.gather(
                *(
                    client.run(
                        calls.subscribe(Subscribe(filters[number], f"stock-{number}", f"stock-{number % queues}"))
                    )
                    for number in range(start, min(start + PIPELINED, subscriptions))
                )
            )


def by_content(url: str, *, queues: int) -> System:
    subscribers = partial(_stock_subscribers, url, queues)
    return System("Lavant", partial(_publisher, url, is_stock=True), subscribers, partial(_stalls, url))


def by_topic(url: str, *, each: int, subscribers_at: str | None = None, processes: tuple[int, ...] = ()) -> System:
    """Subscribers may be at another broker of a federation."""
    at = url if subscribers_at is None else subscribers_at
    publisher, subscribers = partial(_publisher, url, is_stock=False), partial(_topic_subscribers, at, each)
    return System("Lavant", publisher, subscribers, partial(_stalls_of_all, [url, at]), processes)


def _stalls_of_all(urls: list[str]) -> int:
    return sum(map(_stalls, urls))


def _stalls(url: str) -> int:
    """Commits that took longer than is believable of a disk that works."""
    with urlopen(url.replace("lavant://", "http://") + "/metrics") as answer:
        counts = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line.startswith(COMMITS))
    return int(counts[f"{COMMITS}_count"]) - int(counts[f'{COMMITS}_bucket{{le="{STALL_S}"}}'])


async def _publisher(url: str, *, is_stock: bool) -> LavantPublisher:
    rows = quotes() if is_stock else []
    content = (lambda number: rows[number % len(rows)]) if is_stock else topic_message
    return LavantPublisher(await connect_async(url), content)


async def _stock_subscribers(url: str, queues: int) -> LavantSubscribers:
    """One subscriber for each queue, by the first subscription that goes there."""
    client = await connect_async(url)
    return LavantSubscribers([await client.subscription(f"stock-{number}") for number in range(queues)])


async def _topic_subscribers(url: str, each: int) -> LavantSubscribers:
    client = await connect_async(url)
    return LavantSubscribers(
        [
            await client.subscribe(f"topic = 'T{topic}'", name=f"topic-{topic}-{number}")
            for topic in range(TOPICS)
            for number in range(each)
        ]
    )
