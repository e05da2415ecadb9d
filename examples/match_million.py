"""A table of events against a million subscriptions, with Spark on this machine.

    python examples/match_million.py DIRECTORY [--subscriptions N] [--events N]

DIRECTORY must not exist; it gets `subscriptions` (a slice store), `events.parquet` and `matched` (Parquet).
Subscriptions and events are stock quotes drawn from a seed, so that every run finds the same.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from lavant.broker.slices import SliceStore
from lavant.pipeline.session import spark_session
from lavant.pipeline.tables import match
from lavant.simulation.workloads.stock import StockWorkload

SYMBOLS = 5000


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)


def write_subscriptions(workload: StockWorkload, directory: Path) -> None:
    """Subscription i is the i-th filter of the workload."""
    store = SliceStore.create(directory, slices=16)
    store.add(np.arange(workload.subscriptions), workload.filters())


def write_events(workload: StockWorkload, count: int, path: Path) -> None:
    """Quotes, with a column that names each."""
    names = pa.array([f"quote-{number}" for number in range(count)])
    quotes = pa.Table.from_batches([workload.publications(count).records])
    pq.write_table(quotes.append_column("event_id", names), path)


def match_events(spark: SparkSession, directory: Path) -> None:
    events = spark.read.parquet(str(directory / "events.parquet"))
    events = events.repartition(spark.sparkContext.defaultParallelism)  # one file is one task otherwise
    matched = match(events, directory / "subscriptions")
    matched.write.parquet(str(directory / "matched"))


def show(directory: Path) -> None:
    """By column, file by file: a list of 35,000 ids in each row is more than Spark reads in its usual memory."""
    counts: list[tuple[int, str]] = []
    refused = 0
    for path in sorted(directory.glob("matched/*.parquet")):
        table = pq.read_table(path, columns=["event_id", "subscriptions", "rejected"])
        refused += len(table) - table.column("rejected").null_count
        lengths = pc.list_value_length(table.column("subscriptions")).to_pylist()
        counts += zip(lengths, table.column("event_id").to_pylist(), strict=True)
    print(f"{len(counts):,} events match {sum(count for count, _ in counts):,} times; {refused} were refused")
    for count, event in sorted(counts, reverse=True)[:3]:
        print(f"{event}: {count:,} subscriptions")


def main(directory: Path, subscriptions: int, events: int) -> None:
    directory.mkdir(parents=True)
    workload = StockWorkload(symbols=SYMBOLS, subscriptions=subscriptions)
    with timed(f"{subscriptions:,} subscriptions generated, indexed and written"):
        write_subscriptions(workload, directory / "subscriptions")
    with timed(f"{events:,} events generated and written"):
        write_events(workload, events, directory / "events.parquet")
    with timed("Spark started"):
        spark = spark_session("local[*]")
    with timed("matched and written, with the start of the Python workers"):
        match_events(spark, directory)
    spark.stop()
    show(directory)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--subscriptions", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=1_000)
    chosen = parser.parse_args()
    main(chosen.directory, chosen.subscriptions, chosen.events)
