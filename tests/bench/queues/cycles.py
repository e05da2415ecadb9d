"""Messages a second and the time of a cycle, with clients in processes of their own that start together."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any, NamedTuple

import numpy as np
from tests.bench.queues.clients import CLIENTS

WARM_UP_S = 1.5
MEASURED_S = 5.0


class Rate(NamedTuple):
    messages_per_s: float
    p50_ms: float
    p99_ms: float


def measure(client: str, port: int, *, clients: int, batch: int) -> Rate:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(clients), context.SimpleQueue()
    arguments = (client, port, batch, barrier, results)
    processes = [context.Process(target=_repeat, args=arguments, daemon=True) for _ in range(clients)]
    for process in processes:
        process.start()
    taken = [results.get() for _ in processes]
    for process in processes:
        process.join()
    cycles_ms = np.concatenate(taken)
    p50, p99 = np.quantile(cycles_ms, (0.5, 0.99))
    return Rate(len(cycles_ms) * batch / MEASURED_S, float(p50), float(p99))


def _repeat(client: str, port: int, batch: int, barrier: Any, results: Any) -> None:
    """In a client's process."""
    cycle, close = CLIENTS[client](port, batch)
    barrier.wait()
    began = time.perf_counter()
    now, taken = began, []
    while now < began + WARM_UP_S + MEASURED_S:
        cycle()
        last, now = now, time.perf_counter()
        if last > began + WARM_UP_S:
            taken.append((now - last) * 1000)
    close()
    results.put(np.array(taken))
