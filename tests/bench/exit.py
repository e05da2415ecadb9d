"""The exit with more and more exit tasks: its rate, the bytes that cross the shuffle, and what the driver gets.

One batch of stock quotes is matched by two hosts and written by 1 to 32 exit tasks; more tasks than cores cannot be
quicker, but must not be much slower, and the driver must not notice how many ids there are.
"""

from __future__ import annotations

import resource
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.storage.log.blocks import LogBatch
from lavant.pipeline.cluster.assignment import ANYWHERE
from lavant.pipeline.internals.stages import PlacedTask, run_stages
from lavant.pipeline.operators.access import encode_range
from lavant.pipeline.operators.tasks import ExitReport, ExitTask, MatchTask, exit_bounds, match_blocks
from lavant.pipeline.operators.travel import SliceTravel
from lavant.pipeline.stream.batches import exit_function, match_function
from lavant.simulation.workloads.stock import StockWorkload

COLUMNS = (
    "exit tasks",
    "publications, ids",
    "match and exit, ms",
    "ids/s",
    "shuffle bytes",
    "bytes to the driver",
    "driver's memory (Python), MB",
)
SUBSCRIPTIONS, SLICES, HOSTS = 100_000, 16, 2
TASKS = (1, 2, 4, 8, 16, 32)
REPEATS, WARM = 7, 12


class ExitRow(NamedTuple):
    tasks: int
    publications: int
    ids: int
    ms: float
    shuffled: int
    returned: int
    memory_mb: float

    def cells(self) -> list[str]:
        return [
            str(self.tasks),
            f"{self.publications:,}, {self.ids:,}",
            f"{self.ms:,.0f}",
            f"{self.ids / self.ms * 1000:,.0f}",
            f"{self.shuffled:,}",
            f"{self.returned:,}",
            f"{self.memory_mb:,.0f}",
        ]


def measure_exit(spark: Any) -> list[ExitRow]:
    with tempfile.TemporaryDirectory(prefix="lavant-exit-") as directory:
        home = Path(directory)
        workload = StockWorkload(subscriptions=SUBSCRIPTIONS)
        SliceStore.create(home / "store", slices=SLICES).add(np.arange(SUBSCRIPTIONS), workload.filters())
        rows = [_row(spark, home, workload, tasks, 4000) for tasks in TASKS]
        return [*rows, _row(spark, home, workload, 2, 500), _row(spark, home, workload, 2, 8000)]


def _row(spark: Any, home: Path, workload: StockWorkload, tasks: int, publications: int) -> ExitRow:
    store = SliceReader(home / "store")
    version = store.version()
    place, luggage = SliceTravel(spark.sparkContext, shared=True).pack(store, version)
    block = encode_range("plain", "", 0, [LogBatch(0, workload.publications(publications).records)])
    bounds = exit_bounds(publications, [(number,) for number in range(tasks)])
    matching = [
        MatchTask(store=place, version=version, host=host, slices=tuple(range(host, SLICES, HOSTS)), exits=bounds)
        for host in range(HOSTS)
    ]
    exiting = [
        ExitTask(store=place, version=version, host=n, slices=(n,), output=str(home / "out"), part=f"{n}.parquet")
        for n in range(tasks)
    ]

    def run() -> list[bytes]:
        placed = [
            [PlacedTask(ANYWHERE, msgspec.msgpack.encode(each)) for each in group] for group in (matching, exiting)
        ]
        match = match_function(msgspec.msgpack.encode([block]), luggage)
        return list(
            run_stages(spark.sparkContext, placed[0], match, placed[1], exit_function(luggage), ("match", "exit"))
        )

    times = []
    for _ in range(WARM + REPEATS):
        began = perf_counter()
        results = run()
        times.append((perf_counter() - began) * 1000)
    reports = [msgspec.msgpack.decode(each, type=ExitReport) for each in results]
    shuffled = sum(len(part.to_bytes()) for task in matching for part in match_blocks(task, [block]))
    return ExitRow(
        tasks,
        publications,
        sum(report.part.matches for report in reports),
        median(times[WARM:]),
        shuffled,
        sum(map(len, results)),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )
