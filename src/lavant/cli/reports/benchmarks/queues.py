"""Benchmark of queues: send, receive, acknowledge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from lavant import connect_async
from lavant.cli.reports.benchmarks.results import BenchmarkResult, result

WAIT_MS = 5000


async def cycle(
    url: str, key: str, *, seconds: float, clients: int, batch: int, size_bytes: int, tick: Callable[[float], None]
) -> list[BenchmarkResult]:
    """Run the clients, each with its own connection and queue."""
    delays_s: list[float] = []
    began = time.monotonic()
    counts = await asyncio.gather(
        *(_work(url, key, number, began + seconds, batch, size_bytes, delays_s, tick) for number in range(clients))
    )
    took_s = time.monotonic() - began
    what = f"send, receive, acknowledge: {clients} clients, batches of {batch}"
    return [result(what, seconds=took_s, count=sum(counts), delays_s=delays_s)]


async def _work(
    url: str,
    key: str,
    number: int,
    until_s: float,
    batch: int,
    size_bytes: int,
    delays_s: list[float],
    tick: Callable[[float], None],
) -> int:
    began, done = time.monotonic(), 0
    bodies = [bytes(size_bytes)] * batch
    async with await connect_async(url, key=key) as client:
        queue = await client.create_queue(f"bench-{time.time_ns()}-{number}")
        try:
            while (started := time.monotonic()) < until_s:
                tick(started - began)
                await queue.send_many(bodies)
                left = batch
                while left:
                    received = await queue.receive(left, wait_ms=WAIT_MS)
                    await queue.acknowledge(*received)
                    left -= len(received)
                done += batch
                delays_s.append(time.monotonic() - started)
        finally:
            await queue.delete()
    return done
