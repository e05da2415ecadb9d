"""The constants of `lavant.pipeline.sizing`, measured again: work of a known size against what they say it takes.

Sums are compared, not the constants one by one, because a difference of two times on a shared machine may be anything.
The factor is generous for the same reason. It finds a constant that the code has outgrown.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from tests.bench.timing import best_of

from lavant.broker.matching import EncryptedMatcher, Matches, PlainMatcher
from lavant.broker.storage.log.blocks import LogBatch
from lavant.core.publications.publication import ID
from lavant.pipeline.cluster.assignment import ANYWHERE
from lavant.pipeline.internals.stages import PlacedTask, run_stages
from lavant.pipeline.operators.access import encode_range
from lavant.pipeline.operators.exchange import MatchedBlock, merge_blocks
from lavant.pipeline.operators.parts import write_part
from lavant.pipeline.sizing.constants import MATCHERS, PipelineConstants
from lavant.pipeline.stream.records import encrypted_records, make_batch
from lavant.simulation.workloads.stock import StockWorkload
from lavant.simulation.workloads.synthetic import EncryptedWorkload, SyntheticWorkload

CONSTANTS = PipelineConstants()
FACTOR_MAX = 4.0
COLUMNS = ("work", "unit", "by the constants", "measured", "ratio")
PUBLICATIONS = 4096
SMALL, LARGE = 20_000, 100_000
FEW_TASKS, MANY_TASKS = 2, 34


class Kind(NamedTuple):
    """A workload by the number of subscriptions and the probability of a match."""

    workload: Callable[[int, float], Any]
    matcher: Callable[[], Any]
    records: Callable[[Any], pa.RecordBatch]
    rare: float
    often: float


KINDS = {
    "equality": Kind(lambda count, _: StockWorkload(subscriptions=count), PlainMatcher, lambda b: b.records, 0, 0),
    "ranges": Kind(
        lambda count, share: SyntheticWorkload(subscriptions=count, match_probability=share),
        PlainMatcher,
        lambda batch: batch.records,
        0.0001,
        0.01,
    ),
    "encrypted": Kind(
        lambda count, share: EncryptedWorkload(subscriptions=count, match_probability=share),
        EncryptedMatcher,
        encrypted_records,
        0.0001,
        0.01,
    ),
}


class Timed(NamedTuple):
    """Of one publication."""

    seconds: float
    matches: float
    runs: float
    memory_bytes: float
    """Of one subscription."""


class SizingTable(NamedTuple):
    lines: list[list[str]]
    far_off: list[str]
    """The rows beyond `FACTOR_MAX`."""


class Comparison(NamedTuple):
    work: str
    unit: str
    expected: float
    measured: float

    @property
    def ratio(self) -> float:
        return self.measured / self.expected if self.expected else 1.0

    @property
    def is_far_off(self) -> bool:
        return not 1 / FACTOR_MAX <= self.ratio <= FACTOR_MAX


def measure_sizing(spark: SparkSession) -> SizingTable:
    rows = [*access_times(), *exit_times(), *task_times(spark), worker_memory(spark)]
    for name in KINDS:
        rows += matcher_times(name)
    lines = [[row.work, row.unit, f"{row.expected:.3g}", f"{row.measured:.3g}", f"{row.ratio:.2f}"] for row in rows]
    return SizingTable(lines, [row.work for row in rows if row.is_far_off])


def access_times() -> list[Comparison]:
    """Checking and encoding publications of a log, and decoding them at a host."""
    batch = StockWorkload(subscriptions=10).publications(PUBLICATIONS)
    records = batch.records.add_column(0, ID, _names())
    block = encode_range("plain", "", 0, [LogBatch(0, records)])
    encoding = best_of(lambda: encode_range("plain", "", 0, [LogBatch(0, records)]), 7)
    decoding = best_of(lambda: [make_batch("plain", piece.batch()) for piece in block.pieces], 7)
    unit = "s/publication"
    return [
        Comparison("access", unit, CONSTANTS.access.value, encoding / PUBLICATIONS),
        Comparison("decoding at a host", unit, CONSTANTS.decode.value, decoding / PUBLICATIONS),
    ]


def matcher_times(name: str) -> list[Comparison]:
    kind, constants = KINDS[name], MATCHERS[name]
    cases = [(SMALL, kind.rare), (LARGE, kind.rare), *([(LARGE, kind.often)] if kind.often else [])]
    found = [timed(kind, *case) for case in cases]
    rows = []
    for (count, share), each in zip(cases, found, strict=True):
        expected = constants.publication.value + count * constants.subscription.value
        expected += each.matches * constants.match.value
        case = f"match, {name}, {count:,}" + (f", {share:.2%}" if share else "")
        rows.append(Comparison(case, "s/publication", expected, each.seconds))
    records = kind.records(kind.workload(10, kind.often).publications(PUBLICATIONS))
    each = found[1]
    return [
        *rows,
        Comparison(f"memory, {name}", constants.memory.unit, constants.memory.value, each.memory_bytes),
        Comparison(f"runs, {name}", constants.runs.unit, constants.runs.value, each.runs),
        Comparison(
            f"log, {name}",
            constants.publication_bytes.unit,
            constants.publication_bytes.value,
            records.nbytes / PUBLICATIONS,
        ),
    ]


def timed(kind: Kind, count: int, share: float) -> Timed:
    workload, matcher = kind.workload(count, share), kind.matcher()
    matcher.add(np.arange(count), workload.filters())
    batch = workload.publications(PUBLICATIONS)
    segments = matcher.segments
    runs, rest = matcher.match_in_runs(batch, segments)
    taken = best_of(lambda: matcher.match_in_runs(batch, segments), 5)
    matches = len(rest.ids) + sum(each.matches for _, each in runs)
    return Timed(
        taken / PUBLICATIONS,
        matches / PUBLICATIONS,
        sum(len(each.length) for _, each in runs) / PUBLICATIONS,
        matcher.statistics().memory_bytes / count,
    )


def exit_times() -> list[Comparison]:
    """Merging and writing: once mostly rows, once mostly matches, once mostly lists."""
    return [
        Comparison(
            f"exit, {matches} matches of {hosts} hosts",
            "s/publication",
            CONSTANTS.exit_row.value + matches * CONSTANTS.exit_id.value + hosts * CONSTANTS.exit_list.value,
            exit_s(hosts, matches),
        )
        for hosts, matches in ((2, 10), (2, 1000), (64, 10))
    ]


def _names() -> pa.Array:
    return pa.array([f"quote-{number:08d}" for number in range(PUBLICATIONS)])


def exit_s(hosts: int, matches: int) -> float:
    """Of a publication with so many matches from so many hosts."""
    random = np.random.default_rng(1)
    names = _names()
    encoded = []
    for host in range(hosts):
        counts = np.full(PUBLICATIONS, matches // hosts + (host < matches % hosts))
        ids = random.integers(0, 2**32, counts.sum(), np.uint32)
        found = Matches(np.append(0, np.cumsum(counts)), ids)
        encoded.append(MatchedBlock(0, PUBLICATIONS, host, [], found, [], None if host else names, []).to_bytes())

    def leave() -> None:
        blocks = [MatchedBlock.from_bytes(data) for data in encoded]
        write_part(None, "part", blocks, merge_blocks(blocks, lambda key: np.empty(0, np.uint32)))

    leave()
    return best_of(leave, 5) / PUBLICATIONS


def task_times(spark: SparkSession) -> list[Comparison]:
    """The slope of a job's time over its number of tasks, which do nothing: of Java, for the driver, and of Python."""
    cores = spark.sparkContext.defaultParallelism

    def in_java(tasks: int) -> None:
        spark.range(0, tasks, 1, tasks).write.format("noop").mode("overwrite").save()

    def in_python(tasks: int) -> None:
        placed = [PlacedTask(ANYWHERE, b"") for _ in range(tasks // 2)]
        nothing = [b""] * len(placed)
        list(run_stages(spark.sparkContext, placed, lambda _: nothing, placed, lambda _, parts: b"", ("m", "e")))

    task, start = CONSTANTS.task.value, CONSTANTS.start.value
    return [
        Comparison("a task in Java", "s/task", task, slope(in_java)),
        Comparison(f"a task in Python on {cores} cores", "s/task", task + start / cores, slope(in_python)),
    ]


def slope(job: Callable[[int], None]) -> float:
    for _ in range(20):
        job(MANY_TASKS)
    few, many = (best_of(lambda tasks=tasks: job(tasks), 15) for tasks in (FEW_TASKS, MANY_TASKS))  # type: ignore[misc]
    return (many - few) / (MANY_TASKS - FEW_TASKS)


def worker_memory(spark: SparkSession) -> Comparison:
    """The largest resident set of a Python worker that does nothing; it shares much of it with others."""

    def resident(_: Any) -> list[int]:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return [1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")]

    found = max(spark.sparkContext.parallelize(range(2), 2).mapPartitions(resident).collect())
    return Comparison("a Python worker", "bytes", CONSTANTS.worker_bytes.value, float(found))
