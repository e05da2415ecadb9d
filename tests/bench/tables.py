"""`match` on tables against what an expert writes by hand, in one plain Spark session.

    python -m tests.bench.tables [--only quotes|million|stock|columns|poison] [--ways match,Arrow] [--rounds 25]

*Quotes*: 200,000 events, filters `symbol = … and price > … and volume > …`. *30 columns*: the same with 25 columns more
that no filter compares. *Stock*: 5,000 events of the workload.
All ways have the same cached input and write to nowhere (`noop`). They take turns. Of wall-clock times the least
counts; processor time is that of the JVM and its Python workers, which is steadier on a machine with other work: the
least and the median.

| way | what it is |
| --- | --- |
| match | `match(events, store)`: all columns, a list of ids, the reason |
| kernel | Lavant's matcher, broadcast, opened once a task in a `mapInArrow` that returns the event's id and the list |
| Arrow UDF | NumPy without Lavant: filters by symbol, compared with all events of the symbol at once |
| join rows | a broadcast join, a row for each match |
| join lists | the same, gathered into lists |
| nothing | an Arrow UDF that returns null: what the way to Python and back costs |
| precomputed | an Arrow UDF that returns as many ids as `match`, without matching: the same with lists to return |
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
from tests.bench.timing import seconds

from lavant.broker.matching import PlainMatcher
from lavant.broker.matching.plain.strings import low_entries
from lavant.broker.matching.plain.table import FilterTable
from lavant.broker.matching.plain.templates import Column, encode_template
from lavant.broker.slices import SliceStore
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.tables import match
from lavant.simulation.workloads.stock import StockWorkload

EVENTS, SYMBOLS = 200_000, 1000
STOCK_EVENTS = 5000
ROUNDS = 5
COLUMNS = ("table", "matches", "way", "s", "of match", "processor s, least", "of match", "median", "of match")
LISTS = "event_id string, subscriptions array<bigint>"

Ways = dict[str, Callable[[], DataFrame]]


def measure_tables(only: str = "", beginnings: tuple[str, ...] = ("",), rounds: int = ROUNDS) -> list[list[str]]:
    """The lines of the table, of the ways that begin so, in a plain session of its own."""
    spark = plain_session()
    loads: dict[str, Callable[[SparkSession, Path], tuple[int, Ways]]] = {
        "quotes, 100,000 filters": lambda spark, home: quotes(spark, home, 100_000),
        "30 columns, 100,000 filters": wide,
        "quotes, 1 million filters": lambda spark, home: quotes(spark, home, 1_000_000),
        "stock, 100,000 filters": stock,
        "poison, 20 % NaN": poison,
    }
    lines: list[list[str]] = []
    for name, load in loads.items():
        home = Path(tempfile.mkdtemp(prefix="lavant-bench-"))
        if only in name:
            matches, ways = load(spark, home)
            taken = in_turns({way: run for way, run in ways.items() if way.startswith(beginnings)}, rounds)
            for way, times in taken.items():
                ratios = zip(times, taken["match"], strict=True)
                cells = [cell for mine, ours in ratios for cell in (f"{mine:.2f}", f"{mine / ours:.2f}")]
                lines.append([name, f"{matches:,}", way, *cells])
        shutil.rmtree(home)
    spark.stop()
    return lines


class WayTimes(NamedTuple):
    """Seconds that a way took, of several turns."""

    wall_least: float
    processor_least: float
    processor_median: float


def in_turns(ways: Ways, rounds: int) -> dict[str, WayTimes]:
    wall: dict[str, list[float]] = {name: [] for name in ways}
    processor: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(1 + rounds):
        for name, way in ways.items():
            before = processor_s()
            taken = seconds(lambda way=way: nowhere(way()))  # type: ignore[misc]
            if turn:  # the first one warms up
                wall[name].append(taken)
                processor[name].append(processor_s() - before)
    return {name: WayTimes(min(wall[name]), min(processor[name]), median(processor[name])) for name in ways}


def processor_s() -> float:
    """Of all processes below this one, so far; Python workers stay, so none is missed."""
    used, pending = 0, _children(os.getpid())
    while pending:
        process = pending.pop()
        pending += _children(process)
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            used += int(fields[11]) + int(fields[12])
    return used / os.sysconf("SC_CLK_TCK")


def _children(process: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def cached(spark: SparkSession, table: pa.Table, path: Path) -> DataFrame:
    pq.write_table(table, path)
    frame = spark.read.parquet(str(path)).repartition(2).cache()
    frame.count()
    return frame


def store_of(filters: FilterTable, path: Path) -> Path:
    SliceStore.create(path, slices=16).add(np.arange(len(filters)), filters)
    return path


# ---- quotes ---------------------------------------------------------------------------------------------------------


def events_table(random: np.random.Generator, poisoned: float = 0.0) -> pa.Table:
    price = random.uniform(0, 45, EVENTS).round(2)
    price[random.random(EVENTS) < poisoned] = np.nan
    return pa.table(
        {
            "event_id": [f"event-{number}" for number in range(EVENTS)],
            "symbol": np.array([f"S{number:04}" for number in range(SYMBOLS)])[random.integers(0, SYMBOLS, EVENTS)],
            "price": price,
            "volume": random.integers(0, 4500, EVENTS),
            "exchange": random.choice(["N", "L", "T"], EVENTS),
        }
    )


def filters_table(random: np.random.Generator, count: int) -> pa.Table:
    symbols = np.array([f"S{number:04}" for number in range(SYMBOLS)])[random.integers(0, SYMBOLS, count)]
    price, volume = random.uniform(0, 100, count).round(2), random.integers(0, 10_000, count)
    return pa.table({"id": np.arange(count), "symbol": symbols, "price": price, "volume": volume})


def encoded(filters: pa.Table) -> FilterTable:
    return encode_template(
        [
            Column("symbol", "=", filters["symbol"].to_pylist()),
            Column("price", ">", filters["price"].to_numpy()),
            Column("volume", ">", filters["volume"].to_numpy()),
        ]
    )


def quotes(spark: SparkSession, home: Path, count: int) -> tuple[int, Ways]:
    random = np.random.default_rng(7)
    events = cached(spark, events_table(random), home / "events.parquet")
    listed = filters_table(random, count)
    filters = cached(spark, listed, home / "filters.parquet")
    store = store_of(encoded(listed), home / "store")
    joined = events.alias("e").join(
        sf.broadcast(filters.alias("f")),
        (sf.col("e.symbol") == sf.col("f.symbol"))
        & (sf.col("e.price") > sf.col("f.price"))
        & (sf.col("e.volume") > sf.col("f.volume")),
    )
    rows = joined.select("e.event_id", "f.id")
    by_hand = arrow_udf_of(spark, listed)
    ways: Ways = {
        "match": lambda: match(events, store),
        "match, explode": lambda: match(events, store, explode=True),
        "kernel": kernel(spark, events, encoded(listed), ["symbol", "price", "volume"]),
        "Arrow UDF": lambda: events.withColumn("subscriptions", by_hand("symbol", "price", "volume")),
        "join rows": lambda: rows,
        "join lists": lambda: rows.groupBy("event_id").agg(sf.collect_list("id")),
    }
    matches = match(events, store, explode=True).count()
    for name, length in (("nothing", None), ("precomputed", round(matches / EVENTS))):
        lists = same_lists(length)
        ways[name] = lambda lists=lists: events.withColumn("subscriptions", lists("symbol", "price", "volume"))  # type: ignore[misc]
    return matches, ways


def same_lists(length: int | None) -> Any:
    """A function that returns a list of so many ids for each row, or null."""

    def lists(symbol: pa.Array, price: pa.Array, volume: pa.Array) -> pa.Array:
        if length is None:
            return pa.nulls(len(symbol), pa.list_(pa.int64()))
        offsets = length * np.arange(len(symbol) + 1, dtype=np.int32)
        return pa.ListArray.from_arrays(offsets, np.arange(offsets[-1], dtype=np.int64))

    lists.__annotations__ = {"symbol": pa.Array, "price": pa.Array, "volume": pa.Array, "return": pa.Array}
    return arrow_udf(lists, "array<bigint>")


def wide(spark: SparkSession, home: Path) -> tuple[int, Ways]:
    random = np.random.default_rng(7)
    table, listed = events_table(random), filters_table(random, 100_000)
    for number in range(25):
        table = table.append_column(f"more_{number}", table["event_id" if number % 2 else "price"])
    events = cached(spark, table, home / "events.parquet")
    store = store_of(encoded(listed), home / "store")
    by_hand = arrow_udf_of(spark, listed)
    return match(events, store, explode=True).count(), {
        "match": lambda: match(events, store),
        "Arrow UDF": lambda: events.withColumn("subscriptions", by_hand("symbol", "price", "volume")),
        "all columns to Python and back": lambda: events.mapInArrow(_unchanged, events.schema),
    }


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def poison(spark: SparkSession, home: Path) -> tuple[int, Ways]:
    random = np.random.default_rng(7)
    clean = cached(spark, events_table(random), home / "clean.parquet")
    bad = cached(spark, events_table(np.random.default_rng(7), 0.2), home / "bad.parquet")
    store = store_of(encoded(filters_table(random, 100_000)), home / "store")
    return match(bad, store, explode=True).count(), {
        "match": lambda: match(clean, store),
        "match, 20 % NaN": lambda: match(bad, store),
    }


def kernel(
    spark: SparkSession, events: DataFrame, filters: FilterTable, compared: list[str]
) -> Callable[[], DataFrame]:
    matcher = PlainMatcher()
    matcher.add(np.arange(len(filters)), filters)
    broadcast = spark.sparkContext.broadcast(matcher.to_bytes())

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opened = PlainMatcher.from_bytes(broadcast.value)
        for batch in batches:
            found = opened.match(PublicationBatch(batch.select(compared)))
            lists = pa.ListArray.from_arrays(found.offsets.astype(np.int32), found.ids.astype(np.int64))
            yield pa.RecordBatch.from_arrays([batch.column("event_id"), lists], names=["event_id", "subscriptions"])

    return lambda: events.mapInArrow(run, LISTS)


def arrow_udf_of(spark: SparkSession, filters: pa.Table) -> Any:
    order = np.argsort(filters["symbol"].to_numpy(), kind="stable")
    symbols, starts = np.unique(filters["symbol"].to_numpy()[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    held = {
        symbol: tuple(filters[name].to_numpy()[order[start:end]] for name in ("price", "volume", "id"))
        for symbol, start, end in zip(symbols.tolist(), starts, ends, strict=True)
    }
    broadcast = spark.sparkContext.broadcast(held)

    def by_hand(symbol: pa.Array, price: pa.Array, volume: pa.Array) -> pa.Array:
        known = broadcast.value
        codes = symbol.dictionary_encode()
        of_row, prices, volumes = codes.indices.to_numpy(), price.to_numpy(), volume.to_numpy()
        by_symbol = np.argsort(of_row, kind="stable")
        firsts = np.searchsorted(of_row[by_symbol], np.arange(len(codes.dictionary) + 1))
        rows, ids = [], []
        for code, name in enumerate(codes.dictionary.to_pylist()):
            mine = by_symbol[firsts[code] : firsts[code + 1]]
            low, least, number = known[name]
            row, column = np.nonzero((prices[mine, None] > low) & (volumes[mine, None] > least))
            rows.append(mine[row])
            ids.append(number[column])
        row = np.concatenate(rows)
        offsets = np.append(0, np.cumsum(np.bincount(row, minlength=len(symbol)))).astype(np.int32)
        return pa.ListArray.from_arrays(offsets, np.concatenate(ids)[np.argsort(row, kind="stable")])

    by_hand.__annotations__ = {"symbol": pa.Array, "price": pa.Array, "volume": pa.Array, "return": pa.Array}
    return arrow_udf(by_hand, "array<bigint>")


# ---- stock ----------------------------------------------------------------------------------------------------------


def stock(spark: SparkSession, home: Path) -> tuple[int, Ways]:
    workload = StockWorkload()
    records = pa.Table.from_batches([workload.publications(STOCK_EVENTS).records])
    plain = [column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column for column in records.columns]
    table = pa.table(plain, names=records.column_names)
    table = table.append_column("event_id", pa.array([f"event-{number}" for number in range(STOCK_EVENTS)]))
    events = cached(spark, table, home / "events.parquet")
    filters = workload.filters()
    store = store_of(filters, home / "store")
    bounds = cached(spark, bounds_of(filters), home / "filters.parquet")
    compared = ["class", "symbol", "high", "low", "volume"]
    ways: Ways = {
        "match": lambda: match(events, store),
        "match, explode": lambda: match(events, store, explode=True),
        "kernel": kernel(spark, events, filters, compared),
        "join rows": lambda: stock_join(events, bounds),
    }
    return stock_join(events, bounds).count(), ways


def bounds_of(filters: FilterTable) -> pa.Table:
    """A row for each filter: its symbol, and the least or greatest of a number."""
    names = [name for name, _ in filters.dimensions]
    filter_of = np.repeat(filters.row_filter, np.diff(filters.row_start))
    ends = filters.strings.offsets.tolist()
    data = filters.strings.data.tobytes()
    texts = np.array([data[start:end].decode() for start, end in pairwise(ends)], object)
    columns: dict[str, Any] = {"id": np.arange(len(filters))}
    for dimension, name in enumerate(names):
        mine = np.flatnonzero(filters.dimension == dimension)
        if name in ("class", "symbol"):
            values = np.full(len(filters), None, object)
            values[filter_of[mine]] = texts[low_entries(filters.low[mine])]
            columns[name] = pa.array(values, pa.string())
            continue
        for side in ("low", "high"):
            bounds = getattr(filters, side)[mine]
            numbers = np.full(len(filters), np.nan)
            numbers[filter_of[mine]] = np.where(np.isfinite(bounds), bounds, np.nan)
            columns[f"{name}_{side}"] = pa.array(numbers, mask=np.isnan(numbers))
    return pa.table(columns)


def stock_join(events: DataFrame, bounds: DataFrame) -> DataFrame:
    """By template, since a join needs equal columns to be quick."""
    e, parts = events.alias("e"), []
    for numbers in (["high_low"], ["low_high"], ["volume_low"], []):
        for has_symbol in (True, False):
            kind = bounds.where(sf.col("symbol").isNotNull() == has_symbol)
            for name in ("high_low", "low_high", "volume_low"):
                kind = kind.where(sf.col(name).isNotNull() == (name in numbers))
            f = sf.broadcast(kind.alias("f"))
            on = sf.col("e.class") == sf.col("f.class")
            if has_symbol:
                on = on & (sf.col("e.symbol") == sf.col("f.symbol"))
            for name in numbers:
                column, bound = sf.col(f"e.{name.partition('_')[0]}"), sf.col(f"f.{name}")
                on = on & (column <= bound if name == "low_high" else column >= bound)
            parts.append(e.join(f, on).select("e.event_id", "f.id"))
    joined = parts[0]
    for part in parts[1:]:
        joined = joined.unionAll(part)
    return joined


def plain_session() -> SparkSession:
    """As a data engineer has it, not tuned by Lavant."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("lavant-bench-tables")
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "3g"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--ways", default="", help="beginnings of their names; `match` must be one of them")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    for line in [list(COLUMNS), *measure_tables(given.only, tuple(given.ways.split(",")), given.rounds)]:
        print("| " + " | ".join(line) + " |", flush=True)


if __name__ == "__main__":
    main()
