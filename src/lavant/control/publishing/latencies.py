"""The latest latencies, for percentiles."""

from __future__ import annotations

import math
from collections import deque

import msgspec

LATEST_MAX = 4096


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """In milliseconds, from being received to being published; all 0 if nothing was published yet."""

    mean_ms: float = 0.0
    p50_ms: int = 0
    p95_ms: int = 0
    p99_ms: int = 0
    max_ms: int = 0


class LatestLatencies:
    """Of the last publications.

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
