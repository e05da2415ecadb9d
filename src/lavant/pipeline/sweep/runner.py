"""Runs tasks over Spark in chunks: after each chunk its results are on disk and progress is reported.

Chunks are sized to take some seconds, by the time of the last one: short enough that little is lost when a sweep is
stopped, long enough that cores seldom wait for the last task of a chunk. A task that takes its worker down fails the
chunk; halves of the chunk are then tried again until that task is alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
from pyspark.sql import SparkSession

from lavant.core.errors import LavantError
from lavant.pipeline.internals.java import SPARK_ERRORS, is_stopped
from lavant.pipeline.sweep.calls import ERROR_LENGTH_MAX, Figure, SweepTaskResult, perform
from lavant.pipeline.sweep.results import ResultStore
from lavant.pipeline.sweep.scenario import Sweep, SweepTask

CHUNK_SECONDS = 4.0
CHUNK_TASKS_MAX = 10_000
GROWTH_MAX = 4.0
PARTITIONS_OF_A_CORE = 4
"""Several, so that a core with fast tasks takes over from one with slow ones."""

Compute = Callable[[Sequence[SweepTask]], list[SweepTaskResult]]


class SweepProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a sweep: `kept` existed before, `computed` are new, `failed` of them failed."""

    total: int
    kept: int
    computed: int = 0
    failed: int = 0
    errors: tuple[str, ...] = ()
    """The first few, each once."""

    def after(self, results: Sequence[SweepTaskResult]) -> SweepProgress:
        errors = [result.error for result in results if result.error is not None]
        shown = tuple(dict.fromkeys([*self.errors, *errors]))[:5]
        return msgspec.structs.replace(
            self, computed=self.computed + len(results), failed=self.failed + len(errors), errors=shown
        )


def run_sweep(
    spark: SparkSession,
    sweep: Sweep,
    store: ResultStore,
    *,
    path: str | None = None,
    report: Callable[[SweepProgress], None] = lambda progress: None,
) -> SweepProgress:
    """Compute what the store does not have yet."""
    missing = missing_tasks(sweep, store)
    progress = SweepProgress(total=sweep.size, kept=sweep.size - len(missing))
    report(progress)
    cores = spark.sparkContext.defaultParallelism
    size, first = cores * PARTITIONS_OF_A_CORE, 0

    def compute(tasks: Sequence[SweepTask]) -> list[SweepTaskResult]:
        return _on_spark(spark, tasks, sweep.function, path)

    while first < len(missing):
        chunk = missing[first : first + size]
        start = time.perf_counter()
        progress = progress.after(store.append(surviving(compute, chunk)))
        report(progress)
        first += size
        size = next_size(size, time.perf_counter() - start, least=cores)
    return progress


def compute_all(
    spark: SparkSession, function: str, calls: Sequence[tuple[dict[str, str], int]]
) -> Iterator[dict[str, Figure]]:
    """The figures of each call (parameters and seed), in their order, without a store; raises if one fails."""
    tasks = [SweepTask(str(place), dict(parameters), 0, seed) for place, (parameters, seed) in enumerate(calls)]
    size = spark.sparkContext.defaultParallelism * PARTITIONS_OF_A_CORE
    for first in range(0, len(tasks), size):
        for result in surviving(lambda chunk: _on_spark(spark, chunk, function, None), tasks[first : first + size]):
            if result.error is not None:
                raise LavantError(f"seed {result.task.seed} of {function} failed: {result.error}")
            yield result.figures


def missing_tasks(sweep: Sweep, store: ResultStore) -> list[SweepTask]:
    return [task for task in sweep.tasks() if task.id not in store.done]


def next_size(size: int, seconds: float, *, least: int) -> int:
    """Number of tasks of the next chunk, if `size` of them took `seconds`.

    >>> next_size(8, 1.0, least=2), next_size(100, 40.0, least=2), next_size(4, 1000.0, least=2)
    (32, 50, 2)
    """
    growth = min(max(CHUNK_SECONDS / max(seconds, 1e-9), 0.5), GROWTH_MAX)
    return min(max(round(size * growth), least), CHUNK_TASKS_MAX)


def surviving(compute: Compute, tasks: Sequence[SweepTask]) -> list[SweepTaskResult]:
    """Results of all tasks, even if some of them end the process that computes them."""
    try:
        return compute(tasks)
    except SPARK_ERRORS as error:
        if len(tasks) == 1:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            return [SweepTaskResult(task=tasks[0], seconds=0.0, error=f"the worker died: {reason}"[:ERROR_LENGTH_MAX])]
        middle = len(tasks) // 2
        return [*surviving(compute, tasks[:middle]), *surviving(compute, tasks[middle:])]


def _on_spark(
    spark: SparkSession, tasks: Sequence[SweepTask], reference: str, path: str | None
) -> list[SweepTaskResult]:
    context = spark.sparkContext
    if is_stopped(context):
        raise LavantError("Spark has stopped; results so far are kept, start the sweep again to continue")
    partitions = min(len(tasks), context.defaultParallelism * PARTITIONS_OF_A_CORE)
    distributed = context.parallelize(list(tasks), partitions)
    return distributed.map(lambda task: perform(task, reference, path)).collect()
