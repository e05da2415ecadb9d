"""What a quick benchmark found."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np


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
