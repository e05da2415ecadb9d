"""The quick benchmarks of `lavant bench`: publishing, queues and matching."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lavant import connect_async
from lavant.client.async_client import AsyncClient
from lavant.client.subscriptions.notification import Notification

AT_ONCE = 20
UNDER_WAY = 16
AHEAD = 5000
"""Notifications that may be in transit."""
LATE_S_MAX = 10.0

Tick = Callable[[float], None]
"""Called with the seconds that have passed."""
WAIT_S = 5.0
EVENTS = 256


class BenchmarkResult(msgspec.Struct, frozen=True):
    what: str
    seconds: float
    count: int
    per_s: float
    p50_ms: float
    p99_ms: float


def result(what: str, *, seconds: float, count: int, delays_s: Sequence[float]) -> BenchmarkResult:
    """
    >>> result("tea", seconds=2.0, count=10, delays_s=[0.001, 0.003])
    BenchmarkResult(what='tea', seconds=2.0, count=10, per_s=5.0, p50_ms=2.0, p99_ms=2.98)
    """
    p50, p99 = np.quantile(delays_s, (0.5, 0.99)) if delays_s else (float("nan"), float("nan"))
    return BenchmarkResult(
        what, seconds, count, count / seconds, round(1e3 * float(p50), 3), round(1e3 * float(p99), 3)
    )


async def publish(
    url: str, key: str, ca_file: Path | None, *, seconds: float, rate: float | None, subscribers: int, tick: Tick
) -> list[BenchmarkResult]:
    """Publish; every subscriber matches exactly the publications of this run."""
    mark = f"bench-{time.time_ns()}"
    arrived = _Arrivals()
    async with await connect_async(url, key=key, ca_file=ca_file) as client:
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


async def cycle(
    url: str, key: str, ca_file: Path | None, *, seconds: float, clients: int, batch: int, size_bytes: int, tick: Tick
) -> list[BenchmarkResult]:
    """Run the clients, each with its own connection and queue."""
    delays_s: list[float] = []
    began = time.monotonic()
    counts = await asyncio.gather(
        *(
            _work(url, key, ca_file, number, began + seconds, batch, size_bytes, delays_s, tick)
            for number in range(clients)
        )
    )
    took_s = time.monotonic() - began
    what = f"send, receive, acknowledge: {clients} clients, batches of {batch}"
    return [result(what, seconds=took_s, count=sum(counts), delays_s=delays_s)]


async def _work(
    url: str,
    key: str,
    ca_file: Path | None,
    number: int,
    until_s: float,
    batch: int,
    size_bytes: int,
    delays_s: list[float],
    tick: Tick,
) -> int:
    began, done = time.monotonic(), 0
    bodies = [bytes(size_bytes)] * batch
    async with await connect_async(url, key=key, ca_file=ca_file) as client:
        queue = await client.create_queue(f"bench-{time.time_ns()}-{number}")
        try:
            while (started := time.monotonic()) < until_s:
                tick(started - began)
                await queue.send_many(bodies)
                left = batch
                while left:
                    received = await queue.receive(left, wait_s=WAIT_S)
                    await queue.acknowledge(*received)
                    left -= len(received)
                done += batch
                delays_s.append(time.monotonic() - started)
        finally:
            await queue.delete()
    return done


def match(workload: str, *, seconds: float, subscriptions: int, batch: int, tick: Tick) -> list[BenchmarkResult]:
    """Measure the publications per second that one thread matches, in batches."""
    matcher, batches = _subject(workload, subscriptions, batch)
    matcher.match(batches[0])
    delays_s: list[float] = []
    events = matches = 0
    began = time.monotonic()
    while (passed_s := time.monotonic() - began) < seconds:
        tick(passed_s)
        started = time.perf_counter()
        found = matcher.match(batches[len(delays_s) % len(batches)])
        delays_s.append(time.perf_counter() - started)
        events += len(found.offsets) - 1
        matches += len(found.ids)
    took_s = time.monotonic() - began
    what = f"{workload}: {subscriptions:,} subscriptions, {matches / events:,.1f} matches each"
    return [result(what, seconds=took_s, count=events, delays_s=delays_s)]


def _subject(workload: str, subscriptions: int, batch: int) -> tuple[Any, list[Any]]:
    from lavant.broker.matching import EncryptedMatcher, PlainMatcher  # noqa: PLC0415
    from lavant.simulation.workloads.stock import StockWorkload  # noqa: PLC0415
    from lavant.simulation.workloads.synthetic import EncryptedWorkload, SyntheticWorkload  # noqa: PLC0415

    kinds: dict[str, Any] = {"stock": StockWorkload, "synthetic": SyntheticWorkload, "encrypted": EncryptedWorkload}
    made = kinds[workload](subscriptions=subscriptions)
    matcher: Any = EncryptedMatcher() if workload == "encrypted" else PlainMatcher()
    matcher.add(np.arange(subscriptions), made.filters())
    return matcher, [made.publications(batch, stream=number) for number in range(max(1, EVENTS // batch))]
