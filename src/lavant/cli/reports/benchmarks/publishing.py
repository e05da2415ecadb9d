"""Benchmark of publishing: throughput, and latency until subscribers have the notifications."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from lavant import connect_async
from lavant.cli.reports.benchmarks.results import BenchmarkResult, result
from lavant.client.async_client import AsyncClient
from lavant.client.subscriptions.notification import Notification

AT_ONCE = 20
UNDER_WAY = 16
AHEAD = 5000
"""Notifications that may be in transit."""
LATE_S_MAX = 10.0

Tick = Callable[[float], None]
"""Called with the seconds that have passed."""


async def publish(
    url: str, key: str, *, seconds: float, rate: float | None, subscribers: int, tick: Tick
) -> list[BenchmarkResult]:
    """Publish; every subscriber matches exactly the publications of this run."""
    mark = f"bench-{time.time_ns()}"
    arrived = _Arrivals()
    async with await connect_async(url, key=key) as client:
        subscriptions = [await client.subscribe(f"mark = '{mark}'", handler=arrived.note) for _ in range(subscribers)]
        try:
            answers_s: list[float] = []
            began = time.monotonic()
            sent = await _publish(client, mark, seconds, rate, subscribers, arrived, answers_s, tick)
            took_s = time.monotonic() - began
            await _until(lambda: len(arrived.delays_s) >= sent * subscribers)
            all_s = time.monotonic() - began
        finally:
            for subscription in subscriptions:
                await subscription.close()
    return [
        result("published, until answered", seconds=took_s, count=sent, delays_s=answers_s),
        result(
            f"delivered to {subscribers} subscribers",
            seconds=all_s,
            count=len(arrived.delays_s),
            delays_s=arrived.delays_s,
        ),
    ]


class _Arrivals:
    def __init__(self) -> None:
        self.delays_s: list[float] = []

    async def note(self, notification: Notification) -> None:
        self.delays_s.append(time.time() - float(notification.attributes["sent_s"]))


async def _publish(
    client: AsyncClient,
    mark: str,
    seconds: float,
    rate: float | None,
    subscribers: int,
    arrived: _Arrivals,
    answers_s: list[float],
    tick: Tick,
) -> int:
    began, sent = time.monotonic(), 0
    under_way: set[asyncio.Task[None]] = set()

    async def some(count: int) -> None:
        started = time.time()
        await client.publish_many([{"mark": mark, "sent_s": started} for _ in range(count)])
        answers_s.append(time.time() - started)

    while (passed_s := time.monotonic() - began) < seconds:
        tick(passed_s)
        count = AT_ONCE if rate is None else min(AT_ONCE, int(rate * passed_s) - sent)
        is_ahead = sent * subscribers - len(arrived.delays_s) > AHEAD and rate is None
        if count <= 0 or is_ahead:
            await asyncio.sleep(0.001)
            continue
        sent += count
        task = asyncio.ensure_future(some(count))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        if len(under_way) >= UNDER_WAY:
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
    if under_way:
        await asyncio.gather(*under_way)
    return sent


async def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LATE_S_MAX
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.005)
