"""Messages a second and the time of a cycle, with clients in processes of their own that start together."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tests.bench.queues.clients import CLIENTS

WARM_UP_CYCLES = 50

Cycles = NDArray[np.float64]
"""How long each took, in milliseconds."""


class Rate(NamedTuple):
    messages_per_s: float
    p50_ms: float
    p99_ms: float


def rate_of(slices: list[Cycles], *, batch: int, seconds: float) -> Rate:
    """The median of the slices' rates; percentiles over all of their cycles."""
    p50, p99 = np.quantile(np.concatenate(slices), (0.5, 0.99))
    per_s = np.median([len(cycles) * batch / seconds for cycles in slices])
    return Rate(float(per_s), float(p50), float(p99))


class Clients:
    """Connected and warm, they wait to be told to run."""

    def __init__(self, links: list[Connection]) -> None:
        self._links = links

    def run(self, seconds: float) -> Cycles:
        for link in self._links:
            link.send(seconds)
        return np.concatenate([link.recv() for link in self._links])


@contextmanager
def connected(client: str, port: int, *, clients: int, batch: int) -> Iterator[Clients]:
    context = multiprocessing.get_context("spawn")
    links, processes = [], []
    for _ in range(clients):
        ours, theirs = context.Pipe()
        process = context.Process(target=_repeat, args=(client, port, batch, theirs), daemon=True)
        process.start()
        theirs.close()
        links.append(ours)
        processes.append(process)
    for link in links:
        link.recv()
    try:
        yield Clients(links)
    finally:
        for link in links:
            link.close()
        for process in processes:
            process.join()


def _repeat(client: str, port: int, batch: int, link: Any) -> None:
    """In a client's process, until the other end of the link is closed."""
    cycle, close = CLIENTS[client](port, batch)
    for _ in range(WARM_UP_CYCLES):
        cycle()
    link.send(None)
    while (seconds := _next(link)) is not None:
        now, taken = time.perf_counter(), []
        end = now + seconds
        while now < end:
            cycle()
            last, now = now, time.perf_counter()
            taken.append((now - last) * 1000)
        link.send(np.array(taken))
    close()


def _next(link: Any) -> float | None:
    try:
        seconds: float = link.recv()
    except EOFError:
        return None
    return seconds
