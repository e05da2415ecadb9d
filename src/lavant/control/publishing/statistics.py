"""Statistics of a publisher, and percentiles of its latest latencies."""

from __future__ import annotations

import math
from collections import deque

import msgspec

LATEST_MAX = 4096


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """In milliseconds, from received to published; all 0 if nothing was published yet."""

    mean_ms: float = 0.0
    p50_ms: int = 0
    p95_ms: int = 0
    p99_ms: int = 0
    max_ms: int = 0


class LatestLatencies:
    """Latencies of the last publications.

    >>> latest = LatestLatencies()
    >>> for latency_ms in range(1, 101):
    ...     latest.add(latency_ms)
    >>> latest.summary()
    Latencies(mean_ms=50.5, p50_ms=50, p95_ms=95, p99_ms=99, max_ms=100)
    """

    def __init__(self) -> None:
        self._latest: deque[int] = deque(maxlen=LATEST_MAX)

    def add(self, latency_ms: int) -> None:
        self._latest.append(latency_ms)

    def summary(self) -> Latencies:
        ordered = sorted(self._latest)
        if not ordered:
            return Latencies()

        def percentile(share: float) -> int:
            return ordered[math.ceil(share * len(ordered)) - 1]

        return Latencies(
            mean_ms=sum(ordered) / len(ordered),
            p50_ms=percentile(0.50),
            p95_ms=percentile(0.95),
            p99_ms=percentile(0.99),
            max_ms=ordered[-1],
        )


class PublisherStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Publications since the start, where they are, and the controller's estimates and settings."""

    controller: str
    received: int
    dropped: int
    """Dropped because the buffer was full; not among `received`."""
    recovered: int
    """In the store when the publisher started."""
    stored: int
    """Made durable since the start."""
    published: int
    """Taken by the broker, including those it refused for good."""
    refused: int
    retries: int
    """Sent again after a failure, counted each time."""
    failures: int
    """Transfers that failed."""
    buffered: int
    """Received and not stored yet."""
    waiting: int
    """Stored and not published yet."""
    held_bytes: int
    """Of everything received or recovered and not published yet."""
    in_flight: int
    """Of these, in transfers in flight."""
    transfers: int
    """Transfers in flight."""
    batch_size: int
    """N."""
    poll_ms: int
    """T_poll."""
    transfers_max: int
    load_per_s: float
    """λ_est."""
    capacity_per_s: float | None
    """η_est."""
    latencies: Latencies
    """Of the last 4096 publications."""
