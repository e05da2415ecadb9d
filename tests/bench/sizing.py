"""The constants of `lavant.pipeline.sizing`, measured again: each must be within a factor of what the code says.

The factor is generous, because machines differ and this one is shared. It finds a constant that the code has outgrown.
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
from lavant.pipeline.sizing.constants import MATCHERS, Measured, PipelineConstants
from lavant.pipeline.stream.records import encrypted_records, make_batch
from lavant.simulation.workloads.stock import StockWorkload
from lavant.simulation.workloads.synthetic import EncryptedWorkload, SyntheticWorkload

FACTOR_MAX = 4.0
COLUMNS = ("constant", "unit", "as in the code", "measured", "ratio")
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


def measure_sizing(spark: SparkSession) -> list[list[str]]:
    """Lines of the table; the last cell says if a constant is beyond the factor."""
    found = {**access_times(), **exit_times(), **task_times(spark), **worker_bytes(spark)}
    for name in KINDS:
        found |= {f"{name}: {key}": value for key, value in matcher_times(name).items()}
    return [_line(name, constant, found[name]) for name, constant in constants().items() if name in found]


def constants() -> dict[str, Measured]:
    fixed = PipelineConstants()
    known = {name: getattr(fixed, name) for name in fixed.__struct_fields__}
    for kind, matcher in MATCHERS.items():
        known |= {f"{kind}: {name}": getattr(matcher, name) for name in matcher.__struct_fields__}
    return known


def _line(name: str, constant: Measured, measured: float) -> list[str]:
    ratio = measured / constant.value if constant.value else 1.0
    remark = "" if 1 / FACTOR_MAX <= ratio <= FACTOR_MAX else f", beyond a factor of {FACTOR_MAX:g}"
    return [name, constant.unit, f"{constant.value:.3g}", f"{measured:.3g}", f"{ratio:.2f}{remark}"]


def access_times() -> dict[str, float]:
    """Checking and encoding publications of a log, and decoding them at a host."""
    batch = StockWorkload(subscriptions=10).publications(PUBLICATIONS)
    names = pa.array([f"quote-{number:08d}" for number in range(PUBLICATIONS)])
    records = batch.records.add_column(0, ID, names)
    block = encode_range("plain", "", 0, [LogBatch(0, records)])
    encoding = best_of(lambda: encode_range("plain", "", 0, [LogBatch(0, records)]), 7)
    decoding = best_of(lambda: [make_batch("plain", piece.batch()) for piece in block.pieces], 7)
    return {"access": encoding / PUBLICATIONS, "decode": decoding / PUBLICATIONS}


def matcher_times(name: str) -> dict[str, float]:
    """A publication's time as a line: of the number of subscriptions, and of matches."""
    kind = KINDS[name]
    small, large = (timed(kind, count, kind.rare) for count in (SMALL, LARGE))
    often = timed(kind, LARGE, kind.often) if kind.often else large
    more = often.matches - large.matches
    match = max(0.0, (often.seconds - large.seconds) / more) if more else 0.0
    subscription = (large.seconds - small.seconds - match * (large.matches - small.matches)) / (LARGE - SMALL)
    publication = small.seconds - subscription * SMALL - match * small.matches
    batch = kind.records(kind.workload(10, kind.often).publications(PUBLICATIONS))
    return {
        "publication": max(0.0, publication),
        "subscription": max(0.0, subscription),
        "match": match,
        "memory": large.memory_bytes,
        "runs": large.runs,
        "publication_bytes": batch.nbytes / PUBLICATIONS,
    }


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


def exit_times() -> dict[str, float]:
    """Merging and writing: three measurements, three unknowns."""
    few, many, lists = exit_s(2, 10), exit_s(2, 1000), exit_s(64, 10)
    exit_list = (lists - few) / (64 - 2)
    exit_id = (many - few) / (1000 - 10)
    return {"exit_id": exit_id, "exit_list": exit_list, "exit_row": few - 10 * exit_id - 2 * exit_list}


def exit_s(hosts: int, matches: int) -> float:
    """Of a publication with so many matches from so many hosts."""
    random = np.random.default_rng(1)
    names = pa.array([f"quote-{number:08d}" for number in range(PUBLICATIONS)])
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


def task_times(spark: SparkSession) -> dict[str, float]:
    """The slope of a job's time over its number of tasks, which do nothing: of Java, for the driver, and of Python."""
    cores = spark.sparkContext.defaultParallelism

    def in_java(tasks: int) -> None:
        spark.range(0, tasks, 1, tasks).write.format("noop").mode("overwrite").save()

    def in_python(tasks: int) -> None:
        placed = [PlacedTask(ANYWHERE, b"") for _ in range(tasks // 2)]
        nothing = [b""] * len(placed)
        list(run_stages(spark.sparkContext, placed, lambda _: nothing, placed, lambda _, parts: b"", ("m", "e")))

    java, python = slope(in_java), slope(in_python)
    return {"task": java, "start": (python - java) * cores}


def slope(job: Callable[[int], None]) -> float:
    for _ in range(20):
        job(MANY_TASKS)
    few, many = (best_of(lambda tasks=tasks: job(tasks), 15) for tasks in (FEW_TASKS, MANY_TASKS))  # type: ignore[misc]
    return (many - few) / (MANY_TASKS - FEW_TASKS)


def worker_bytes(spark: SparkSession) -> dict[str, float]:
    """The largest resident set of a Python worker that does nothing; it shares much of it with others."""

    def resident(_: Any) -> list[int]:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return [1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")]

    return {"worker_bytes": float(max(spark.sparkContext.parallelize(range(2), 2).mapPartitions(resident).collect()))}
