"""The Spark pipeline against the same kernel outside Spark, in one run.

Throughput: a log full of publications, in batches as large as the stream makes them; the last half of the publications
counts. Latency: publications arrive at half of that rate, and their delay is the time until the batch that notifies
them is in the sink.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from tests.bench.timing import best_of

from lavant.broker.matching import EncryptedMatcher, PlainMatcher
from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.slices.layout import ACCESS, EXIT, MATCH
from lavant.broker.storage.log import LogReader, LogWriter
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.cluster.probes import ProbeBuffer
from lavant.pipeline.stream.driver import RunningStream, start
from lavant.pipeline.stream.latency import latencies_ms, notified_batches
from lavant.pipeline.stream.records import encrypted_records
from lavant.pipeline.stream.sinks import read_manifests
from lavant.simulation.workloads.stock import StockWorkload
from lavant.simulation.workloads.synthetic import EncryptedWorkload

PROMPT_MS = 100.0
COLUMNS = (
    "100,000 subscriptions, 16 slices",
    "publications a batch",
    "kernel alone, 2 threads",
    "through Spark, local[2]",
    "share",
    "a batch's ms: access + match + exit (CPU) / whole / planning",
    "delay at half rate p50, p75, p99 ms",
    f"highest rate with a p50 of at most {PROMPT_MS:.0f} ms",
    "open a slice ms",
)
SUBSCRIPTIONS = 100_000
SLICES = 16
HOSTS = 2
LATENCY_S = 25.0
SHARES = (1 / 2, 3 / 8, 1 / 4, 1 / 8, 1 / 16)
"""Of the rate through Spark, at which the delay is measured, until it is short."""
PUBLISH_EVERY_S = 0.01
"""About; in larger portions, publications would come together and wait less for each other."""


class Load(NamedTuple):
    """A workload for the pipeline, and its kernel without Spark."""

    name: str
    scheme: str
    filters: Any
    matcher: Any
    batch: Callable[[int, int], Any]
    """So many publications, of a stream's number."""
    records: Callable[[Any], pa.RecordBatch]
    part: Callable[[Any, int, int], Any]
    batch_size: int
    """Of the kernel, and of what is appended to the log at a time."""
    publications: int
    """In the log, for the throughput."""


class Result(NamedTuple):
    load: str
    batch_size: int
    kernel_per_s: float
    spark_per_s: float
    batch_ms: dict[str, float]
    latency_ms: dict[float, tuple[float, float, float]]
    """Quantiles by rate, the highest first."""
    open_ms: float

    def cells(self) -> list[str]:
        parts = self.batch_ms
        busy = " + ".join(f"{parts[operator]:.0f}" for operator in (ACCESS, MATCH, EXIT))
        return [
            self.load,
            f"{self.batch_size:,}",
            f"{self.kernel_per_s:,.0f}/s = {self.kernel_per_s / 10:,.0f} M operations/s",
            f"{self.spark_per_s:,.0f}/s = {self.spark_per_s / 10:,.0f} M operations/s",
            f"{self.spark_per_s / self.kernel_per_s:.1%}",
            f"{busy} / {parts['whole']:.0f} / {parts['planning']:.0f}",
            _delay(self.latency_ms, *list(self.latency_ms)[:1]),
            _delay(self.latency_ms, *[rate for rate, (p50, *_) in self.latency_ms.items() if p50 <= PROMPT_MS][:1]),
            f"{self.open_ms:.1f}",
        ]


def encrypted_load() -> Load:
    workload = EncryptedWorkload(subscriptions=SUBSCRIPTIONS)
    return Load(
        "encrypted, d = 4, 1 %",
        "encrypted",
        workload.filters(),
        EncryptedMatcher(),
        lambda count, stream: workload.publications(count, stream=stream),
        encrypted_records,
        workload.part,
        4000,
        480_000,
    )


def stock_load() -> Load:
    workload = StockWorkload(subscriptions=SUBSCRIPTIONS)
    return Load(
        "stock, 500 symbols",
        "plain",
        workload.filters(),
        PlainMatcher(),
        lambda count, stream: workload.publications(count, stream=stream),
        lambda batch: batch.records,
        PublicationBatch.slice,
        2000,
        240_000,
    )


def measure_pipeline(spark: Any, load: Load) -> Result:
    with tempfile.TemporaryDirectory(prefix="lavant-bench-") as directory:
        home = Path(directory)
        store = SliceStore.create(home / "subscriptions", scheme=load.scheme, slices=SLICES)
        store.add(np.arange(SUBSCRIPTIONS), load.filters)
        load.matcher.add(np.arange(SUBSCRIPTIONS), load.filters)
        kernel = kernel_rate(load)
        spark_rate, parts = throughput(spark, load, home)
        delays = falling_latency(spark, load, home, spark_rate)
        opened = opening_ms(home / "subscriptions")
    return Result(load.name, round(parts.pop("publications")), kernel, spark_rate, parts, delays, opened)


def _delay(quantiles: dict[float, tuple[float, float, float]], rate: float | None = None) -> str:
    if rate is None:
        return "none"
    return f"{', '.join(f'{delay:,.0f}' for delay in quantiles[rate])} at {rate:,.0f}/s"


def falling_latency(spark: Any, load: Load, home: Path, full_rate: float) -> dict[float, tuple[float, float, float]]:
    """Quantiles of the delay at shares of a rate, down to the first with a short one."""
    found: dict[float, tuple[float, float, float]] = {}
    for rate in (full_rate * share for share in SHARES):
        p50, p75, p99 = (float(q) for q in np.quantile(latency(spark, load, home, rate), (0.5, 0.75, 0.99)))
        found[rate] = p50, p75, p99
        if p50 <= PROMPT_MS:
            break
    return found


def kernel_rate(load: Load) -> float:
    """Publications a second of the matcher alone, on as many threads as there are hosts."""
    batch = load.batch(load.batch_size, 0)
    each = load.batch_size // HOSTS
    parts = [load.part(batch, number * each, each) for number in range(HOSTS)]
    with ThreadPoolExecutor(HOSTS) as executor:
        return load.batch_size / best_of(lambda: list(executor.map(load.matcher.match, parts)), 5)


def throughput(spark: Any, load: Load, home: Path) -> tuple[float, dict[str, float]]:
    """Publications a second through Spark once warm, and where a batch's time goes."""
    with LogWriter(home / "log", durable=False) as log:
        for number in range(load.publications // load.batch_size):
            log.append(load.records(load.batch(load.batch_size, number % 4)))
    probes = ProbeBuffer()
    stream = start(
        spark, log=home / "log", subscriptions=home / "subscriptions", output=home, hosts=HOSTS, probes=probes
    )
    _wait_for_offset(stream, load.publications)
    planning = [p["durationMs"] for p in stream.query.recentProgress if p["durationMs"].get("addBatch")]
    stream.stop()
    manifests = read_manifests(home / "notifications")
    last = [each for each in manifests if each.end >= load.publications // 2]
    count, span_ms = last[-1].end - last[0].end, last[-1].time_ms - last[0].time_ms
    busy = dict.fromkeys((ACCESS, MATCH, EXIT), 0.0)
    for probe in probes.take():
        busy[probe.operator] += probe.cpu_s * 1000 / len(manifests)
    outside = float(np.median([p["triggerExecution"] - p["addBatch"] for p in planning]))
    batches = len(last) - 1
    parts = {"publications": count / batches, "whole": span_ms / batches, **busy, "planning": outside}
    return count / span_ms * 1000, parts


def latency(spark: Any, load: Load, home: Path, rate: float) -> np.ndarray:
    """Delays at a steady rate, from publishing to the batch's manifest; the first third is for warming up."""
    stream = start(spark, log=home / "log", subscriptions=home / "subscriptions", output=home, hosts=HOSTS)
    with LogWriter(home / "log", durable=False) as log:
        log.append(load.records(load.batch(1, 0)))
    first = LogReader(home / "log").end()
    _wait_for_offset(stream, first)  # until Spark has started, publications would pile up
    each = max(1, round(rate * PUBLISH_EVERY_S))
    rounds = int(LATENCY_S * rate / each)
    records = [load.records(load.batch(each, number)) for number in range(8)]
    published = np.zeros(first + rounds * each)
    with LogWriter(home / "log", durable=False) as log:
        began = time.time()
        for number in range(rounds):
            time.sleep(max(0.0, began + number * each / rate - time.time()))
            start_offset = first + number * each
            published[start_offset : start_offset + each] = time.time()
            log.append(records[number % 8])
    _wait_for_offset(stream, len(published))
    stream.stop()
    warm = first + rounds * each // 3
    batches = [b._replace(offsets=b.offsets[b.offsets >= warm]) for b in notified_batches(home / "notifications")]
    return latencies_ms(batches, published)


def opening_ms(store: Path) -> float:
    """The slowest of all slices to open."""
    reader = SliceReader(store)
    version = reader.version()
    return max(best_of(lambda n=n: reader.matcher(n, version), 1) for n in range(SLICES)) * 1000  # type: ignore[misc]


def _wait_for_offset(stream: RunningStream, end: int) -> None:
    while stream.position < end:
        time.sleep(0.02)
