"""The matchers, each on its workloads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from tests.bench.limits import Limits
from tests.bench.timing import best_of, best_of_threads, latency_us, rate_while, seconds

from lavant.broker.filters import Filter
from lavant.broker.matching import EncryptedMatcher, PlainMatcher, ScanMatcher
from lavant.broker.matching.plain.encoder import encode_filters
from lavant.core.publications.batch import PublicationBatch
from lavant.simulation.workloads.stock import StockWorkload
from lavant.simulation.workloads.synthetic import EncryptedWorkload, SyntheticWorkload
from lavant.simulation.workloads.text import TextWorkload

CORES = os.cpu_count() or 1
IDS_OF_A_BATCH_MAX = 8_000_000
ADDED_AT_ONCE = 1000


class Subject(NamedTuple):
    """A matcher with its workload, ready to measure."""

    workload: str
    matcher: str
    subscriptions: int
    build: Callable[[], Any]
    """Makes the matcher with all subscriptions."""
    batch: Callable[[int], Any]
    """So many publications."""
    part: Callable[[Any, int, int], Any]
    """A part of a batch: first, how many."""
    more: Callable[[Any, int], int]
    """Adds a lot of further subscriptions to the matcher, the n-th time with other ids; how many."""
    batch_size: int
    limit: Callable[[float, float, Limits], str]
    """From events/s, matches an event and the machine's limits: how near to the limit that is."""


class Row(NamedTuple):
    """A line of the table."""

    workload: str
    matcher: str
    matches: float
    events_per_s: float
    events_per_s_all: float
    single_us: tuple[float, float]
    build_s: float
    bytes_each: float
    additions_per_s: float
    share: str


def measure(subject: Subject, limits: Limits) -> Row:
    subject.build()  # the first time compiles
    matcher: Any = None

    def build() -> None:
        nonlocal matcher
        matcher = subject.build()

    build_s = seconds(build)
    probe = subject.batch(min(16, subject.batch_size))
    matches = len(matcher.match(probe).ids) / min(16, subject.batch_size)
    size = int(max(16, min(subject.batch_size, IDS_OF_A_BATCH_MAX / max(matches, 1))))
    batch = subject.batch(size)
    half = -(-size // CORES)
    parts = [subject.part(batch, start, min(half, size - start)) for start in range(0, size, half)]
    one = best_of(lambda: matcher.match(batch), 5)
    both = best_of_threads(lambda number: matcher.match(parts[number]), len(parts), 5)
    singles = [subject.part(batch, number % size, 1) for number in range(200)]
    matcher.match(singles[0])
    single = latency_us(lambda number: matcher.match(singles[number]), len(singles))
    memory = matcher.statistics().memory_bytes
    # A second of additions, and a slow matcher's background work, must not take minutes.
    additions = rate_while(lambda: matcher.match(singles[0]), lambda number: subject.more(matcher, number), 1.0)
    return Row(
        subject.workload,
        subject.matcher,
        matches,
        size / one,
        size / both,
        single,
        build_s,
        memory / subject.subscriptions,
        additions,
        subject.limit(size / one, matches, limits),
    )


def subjects() -> Iterator[Subject]:
    """The rows of the table, in its order."""
    for subscriptions in (10_000, 100_000, 1_000_000):
        for symbols in (40, 500, 5000):
            yield stock(symbols, subscriptions)
    for attributes in (20, 50, 100):
        for probability in (0.01, 0.001, 0.0001):
            yield synthetic(attributes, probability)
    yield text()
    for subscriptions in (10_000, 100_000, 1_000_000):
        yield encrypted(subscriptions)
    yield scanned()


def stock(symbols: int, subscriptions: int) -> Subject:
    workload = StockWorkload(symbols=symbols, subscriptions=subscriptions)
    return plain(f"stock, {symbols:,} symbols, {subscriptions:,}", workload, share_of_copy)


def synthetic(attributes: int, probability: float) -> Subject:
    workload = SyntheticWorkload(attributes=attributes, match_probability=probability)
    return plain(f"synthetic, {attributes} attributes, 100,000, {100 * probability:g} %", workload, share_of_scan)


def text() -> Subject:
    workload = TextWorkload()
    return plain("text, half with like, 100,000", workload, share_of_copy)


def plain(
    name: str,
    workload: StockWorkload | SyntheticWorkload | TextWorkload,
    limit: Callable[[float, float, Limits], str],
) -> Subject:
    filters = encode_filters(workload.filters()) if isinstance(workload, TextWorkload) else workload.filters()
    count = len(filters)

    def build() -> PlainMatcher:
        matcher = PlainMatcher()
        matcher.add(np.arange(count, dtype=np.uint32), filters)
        return matcher

    def more(matcher: PlainMatcher, number: int) -> int:
        chosen = (np.arange(ADDED_AT_ONCE) + number * ADDED_AT_ONCE) % count
        ids = count + number * ADDED_AT_ONCE + np.arange(ADDED_AT_ONCE)
        matcher.add(ids, filters.take(chosen))
        return ADDED_AT_ONCE

    return Subject(name, "plain", count, build, workload.publications, PublicationBatch.slice, more, 1000, limit)


def encrypted(subscriptions: int) -> Subject:
    workload = EncryptedWorkload(subscriptions=subscriptions)
    filters = workload.filters()

    def build() -> EncryptedMatcher:
        matcher = EncryptedMatcher()
        matcher.add(np.arange(subscriptions), filters)
        return matcher

    def more(matcher: EncryptedMatcher, number: int) -> int:
        chosen = (np.arange(ADDED_AT_ONCE) + number * ADDED_AT_ONCE) % subscriptions
        matcher.add(subscriptions + number * ADDED_AT_ONCE + np.arange(ADDED_AT_ONCE), filters.take(chosen))
        return ADDED_AT_ONCE

    def limit(events_per_s: float, matches: float, limits: Limits) -> str:
        operations = events_per_s * subscriptions
        tests, dimensions = filters.tests.shape[1:]
        gflop = operations * tests * dimensions * 2 / 1e9
        return f"{operations / 1e6:,.0f} M operations/s; {gflop:.0f} GFLOP/s = {gflop / limits.gflop_per_s:.0%} of peak"

    name = f"encrypted, d = {workload.attributes}, {subscriptions:,}, 1 %"
    return Subject(
        name, "encrypted", subscriptions, build, workload.publications, type(workload).part, more, 480, limit
    )


def scanned() -> Subject:
    """The oracle, as a reference for what the others save."""
    texts = [Filter.parse(f"class = 'STOCK' and symbol = 'AA{chr(65 + i % 26)}' and volume > {i}") for i in range(1000)]
    workload = StockWorkload(symbols=40)

    def build() -> ScanMatcher:
        matcher = ScanMatcher()
        matcher.add(range(1000), texts)
        return matcher

    def more(matcher: ScanMatcher, number: int) -> int:
        matcher.add([1000 + number], texts[:1])
        return 1

    return Subject(
        "stock, 40 symbols, 1,000",
        "scan",
        1000,
        build,
        workload.publications,
        PublicationBatch.slice,
        more,
        100,
        lambda events, matches, limits: "",
    )


def share_of_copy(events_per_s: float, matches: float, limits: Limits) -> str:
    """Ids are copied out, four bytes each; copying is what the memory limits."""
    gigabytes = events_per_s * matches * 4 / 1e9
    return f"{gigabytes:.1f} GB/s of ids = {gigabytes / limits.copy_gb_per_s:.0%} of copying"


def share_of_scan(events_per_s: float, matches: float, limits: Limits) -> str:
    """What trying each of 100,000 filters of 6 ranges (16 bytes each) for each event would have to read."""
    gigabytes = events_per_s * 100_000 * 6 * 16 / 1e9
    return f"a scan would read {gigabytes:,.0f} GB/s = {gigabytes / limits.read_gb_per_s:.1f} × memory"
