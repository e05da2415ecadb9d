"""The exit with more and more exit tasks: its rate, the bytes that cross the shuffle, and what the driver gets.

One batch of stock quotes is matched by two hosts and written by 1 to 32 exit tasks; more tasks than cores cannot be
quicker, but must not be much slower, and the driver must not notice how many ids there are. A single disk is soon the
limit, so parts are also written to memory.
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
from tests.bench.stages import completed_stages

from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.storage.log.blocks import LogBatch
from lavant.pipeline.cluster.assignment import ANYWHERE
from lavant.pipeline.internals.stages import PlacedTask, run_stages
from lavant.pipeline.operators.access import encode_range
from lavant.pipeline.operators.tasks import ExitReport, ExitTask, MatchTask, exit_bounds, match_blocks
from lavant.pipeline.operators.travel import SliceTravel, exit_function, match_function
from lavant.simulation.workloads.stock import StockWorkload

COLUMNS = (
    "parts in",
    "exit tasks",
    "publications, ids",
    "match and exit, ms",
    "exit alone, ms",
    "ids/s of the exit",
    "shuffle bytes",
    "bytes to the driver",
    "driver's memory (Python), MB",
)
SUBSCRIPTIONS, SLICES, HOSTS = 100_000, 16, 2
PUBLICATIONS = 16_000
TASKS = (1, 2, 4, 8, 16, 32)
REPEATS, WARM = 7, 6
MEMORY = Path("/dev/shm")
NAMES = ("lavant match", "lavant exit")


class ExitRow(NamedTuple):
    place: str
    tasks: int
    publications: int
    ids: int
    ms: float
    exit_ms: float
    shuffled: int
    returned: int
    memory_mb: float

    def cells(self) -> list[str]:
        return [
            self.place,
            str(self.tasks),
            f"{self.publications:,}, {self.ids:,}",
            f"{self.ms:,.0f}",
            f"{self.exit_ms:,.0f}",
            f"{self.ids / self.exit_ms * 1000:,.0f}",
            f"{self.shuffled:,}",
            f"{self.returned:,}",
            f"{self.memory_mb:,.0f}",
        ]


def measure_exit(spark: Any) -> list[ExitRow]:
    """Parts go to memory, where Linux has files in memory, so that the exit itself is measured; then to a disk."""
    workload = StockWorkload(subscriptions=SUBSCRIPTIONS)
    rows = []
    for place, tasks, sizes in (("memory", TASKS, (PUBLICATIONS,)), ("disk", (1, 2), (500, 2000, PUBLICATIONS))):
        if place == "memory" and not MEMORY.is_dir():
            continue
        with tempfile.TemporaryDirectory(prefix="lavant-exit-", dir=MEMORY if place == "memory" else None) as directory:
            home = Path(directory)
            SliceStore.create(home / "store", slices=SLICES).add(np.arange(SUBSCRIPTIONS), workload.filters())
            rows += [_row(spark, home, place, workload, n, publications) for publications in sizes for n in tasks]
    return rows


def _row(spark: Any, home: Path, place: str, workload: StockWorkload, tasks: int, publications: int) -> ExitRow:
    store = SliceReader(home / "store")
    version = store.version()
    slices, luggage = SliceTravel(spark.sparkContext, shared=True).pack(store, version)
    block = encode_range("plain", "", 0, [LogBatch(0, workload.publications(publications).records)])
    bounds = exit_bounds(publications, [(number,) for number in range(tasks)])
    matching = [
        MatchTask(store=slices, version=version, host=host, slices=tuple(range(host, SLICES, HOSTS)), exits=bounds)
        for host in range(HOSTS)
    ]
    exiting = [
        ExitTask(store=slices, version=version, host=n, slices=(n,), output=str(home / "out"), part=f"{n}.parquet")
        for n in range(tasks)
    ]

    def run() -> list[bytes]:
        placed = [
            [PlacedTask(ANYWHERE, msgspec.msgpack.encode(each)) for each in group] for group in (matching, exiting)
        ]
        match = match_function(msgspec.msgpack.encode([block]), luggage)
        return list(
            run_stages(
                spark.sparkContext, placed[0], match, placed[1], exit_function(luggage), ("lavant match", "lavant exit")
            )
        )

    times = []
    for _ in range(WARM + REPEATS):
        began = perf_counter()
        results = run()
        times.append((perf_counter() - began) * 1000)
    exits = [stage for stage in completed_stages(spark) if stage.operator == "exit"][-REPEATS:]
    reports = [msgspec.msgpack.decode(each, type=ExitReport) for each in results]
    shuffled = sum(len(part.to_bytes()) for task in matching for part in match_blocks(task, [block]))
    return ExitRow(
        place,
        tasks,
        publications,
        sum(report.part.matches for report in reports),
        median(times[WARM:]),
        median(stage.ended_ms - stage.began_ms for stage in exits),
        shuffled,
        sum(map(len, results)),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )
