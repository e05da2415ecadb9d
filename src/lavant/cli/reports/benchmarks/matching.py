"""Benchmark of matching in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from lavant.cli.reports.benchmarks.results import BenchmarkResult, result

EVENTS = 256


def match(
    workload: str, *, seconds: float, subscriptions: int, batch: int, tick: Callable[[float], None]
) -> list[BenchmarkResult]:
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
    from lavant.simulation.workloads.encrypted import EncryptedWorkload  # noqa: PLC0415
    from lavant.simulation.workloads.stock import StockWorkload  # noqa: PLC0415
    from lavant.simulation.workloads.synthetic import SyntheticWorkload  # noqa: PLC0415

    kinds: dict[str, Any] = {"stock": StockWorkload, "synthetic": SyntheticWorkload, "encrypted": EncryptedWorkload}
    made = kinds[workload](subscriptions=subscriptions)
    matcher: Any = EncryptedMatcher() if workload == "encrypted" else PlainMatcher()
    matcher.add(np.arange(subscriptions), made.filters())
    return matcher, [made.publications(batch, stream=number) for number in range(max(1, EVENTS // batch))]
