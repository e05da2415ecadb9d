"""The Spark part of `lavant demo`: publishes quotes at a steady rate, and shows throughput and delays."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from lavant.broker.slices import SliceStore
from lavant.broker.storage.log import LogWriter
from lavant.pipeline.session import spark_session
from lavant.pipeline.stream.driver import RunningStream, start
from lavant.pipeline.stream.latency import NotifiedBatch, latencies_ms, notified_batches
from lavant.simulation.workloads.stock import StockWorkload

SYMBOLS = 500
SLICES = 16
PUBLISH_EVERY_S = 0.05
ROW_EVERY_S = 2.0
WARM_UP_S = 12.0
"""Quotes flow this long before measuring: the first batches wait for Java's compiler."""


class LogPublisher(threading.Thread):
    """Appends quotes to the log in small batches and records the times."""

    def __init__(self, workload: StockWorkload, log: LogWriter, *, rate: int, seconds: float) -> None:
        super().__init__(daemon=True)
        self._workload, self._log = workload, log
        self.first_offset = log.end
        self._each = max(1, int(rate * PUBLISH_EVERY_S))
        self._rounds = max(1, round(seconds * rate / self._each))
        self._every_s = self._each / rate
        self.published_s: list[NDArray[np.float64]] = []

    def run(self) -> None:
        began = time.time()
        for number in range(self._rounds):
            quotes = self._workload.publications(self._each, stream=number)
            time.sleep(max(0.0, began + number * self._every_s - time.time()))
            self.published_s.append(np.full(self._each, time.time()))
            self._log.append(quotes.records)

    @property
    def count(self) -> int:
        return self._each * len(self.published_s)

    def times(self) -> NDArray[np.float64]:
        """Publication time of each offset; NaN for offsets from before."""
        return np.concatenate([np.full(self.first_offset, np.nan), *self.published_s])


def run_pipeline(console: Console, *, subscriptions: int, seconds: float, rate: int) -> dict[str, float]:
    """Figures of the stream; none if there were too few notifications."""
    workload = StockWorkload(symbols=SYMBOLS, subscriptions=subscriptions)
    console.print("stock quotes through access → match → exit\n")
    with tempfile.TemporaryDirectory(prefix="lavant-demo-") as directory:
        home = Path(directory)
        with console.status(f"{subscriptions:,} subscriptions into {SLICES} slices"):
            store = SliceStore.create(home / "subscriptions", slices=SLICES)
            began = time.monotonic()
            store.add(np.arange(subscriptions), workload.filters())
            took = time.monotonic() - began
        console.print(f"{subscriptions:,} subscriptions stored in {SLICES} slices in {took:.1f} s")
        with _spark(console) as spark, LogWriter(home / "log") as log:
            stream = start(spark, log=home / "log", subscriptions=home / "subscriptions", output=home)
            _warm_up(console, workload, log, stream)
            publisher = LogPublisher(workload, log, rate=rate, seconds=seconds)
            publisher.start()
            batches = list(_follow(console, home / "notifications", publisher, stream))
            stream.stop()
            return _summary(console, publisher, batches)


def _warm_up(console: Console, workload: StockWorkload, log: LogWriter, stream: RunningStream) -> None:
    """Publish some quotes until Java has compiled its code and all of them are delivered."""
    with console.status(f"warming up ({WARM_UP_S:.0f} s)"):
        deadline = time.monotonic() + WARM_UP_S
        number = 0
        while time.monotonic() < deadline:
            log.append(workload.publications(20, stream=1_000_000 + number).records)
            number += 1
            time.sleep(0.1)
        while stream.is_active and stream.position < log.end:
            time.sleep(0.1)


@contextlib.contextmanager
def _spark(console: Console) -> Iterator[Any]:
    with console.status("starting Spark (about 10 s)"):
        spark = spark_session("local[*]")
    try:
        yield spark
    finally:
        spark.stop()


def _follow(
    console: Console, notifications: Path, publisher: LogPublisher, stream: RunningStream
) -> Iterator[NotifiedBatch]:
    """Yield batches as they arrive, and print a line now and then."""
    table = "{:>6} {:>12} {:>12} {:>15} {:>9} {:>14}"
    console.print(table.format("time", "published", "matched", "notifications", "batches", "median delay"))
    matched = sent = batches = 0
    last, printed_s = max(_last_batch(notifications), -1), time.monotonic()
    began = printed_s
    recent: list[NotifiedBatch] = []
    while stream.is_active and (publisher.is_alive() or stream.position < publisher.first_offset + publisher.count):
        time.sleep(0.05)
        for batch in notified_batches(notifications, after=last):
            last, batches = batch.batch, batches + 1
            matched += len(batch.offsets)
            sent += batch.notifications
            recent.append(batch)
            yield batch
        if time.monotonic() - printed_s >= ROW_EVERY_S and recent:
            delays = latencies_ms(recent, publisher.times())
            line = (f"{time.monotonic() - began:.0f} s", f"{publisher.count:,}", f"{matched:,}", f"{sent:,}", batches)
            console.print(table.format(*line, f"{np.median(delays):.0f} ms"))
            printed_s, recent = time.monotonic(), []


def _last_batch(notifications: Path) -> int:
    batches = notified_batches(notifications)
    return batches[-1].batch if batches else -1


def _summary(console: Console, publisher: LogPublisher, batches: list[NotifiedBatch]) -> dict[str, float]:
    delays = latencies_ms(batches, publisher.times())
    if len(batches) < 2:
        console.print("too few notifications for figures; try more subscriptions")
        return {}
    span = max(batches[-1].time_s - batches[0].time_s, 1e-9)
    count = sum(len(batch.offsets) for batch in batches[1:])
    sent = sum(batch.notifications for batch in batches[1:])
    p50, p95, p99 = np.quantile(delays, (0.5, 0.95, 0.99))
    figures = {
        "publications/s": count / span,
        "notifications/s": sent / span,
        "publications per batch": count / (len(batches) - 1),
        "delay p50, ms": float(p50),
        "p95, ms": float(p95),
        "p99, ms": float(p99),
    }
    table = Table(title="total", title_justify="left")
    for column in ("publications/s", "notifications/s", "per batch", "delay p50", "p95", "p99"):
        table.add_column(column, justify="right")
    *rates, p50, p95, p99 = (f"{figure:,.0f}" for figure in figures.values())
    table.add_row(*rates, *(f"{delay} ms" for delay in (p50, p95, p99)))
    console.print()
    console.print(table)
    return figures
