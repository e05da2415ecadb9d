"""`make bench`: tables, measured in one run: matchers, the pipeline on Spark, durable queues, publishing, and models.

`--only TEXT` picks rows of the first table (and `--only pipeline`, `tables`, `sizing`, `queues`, `publishing`, `models`
or `petri` another one), `--markdown FILE` also writes the tables there. Ends with exit code 1 if a constant of sizing
is far off.
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tests.bench.exit import COLUMNS as EXIT_COLUMNS
from tests.bench.exit import ExitRow, measure_exit
from tests.bench.limits import Limits, measure_limits
from tests.bench.matching import CORES, Row, measure, subjects
from tests.bench.models import COLUMNS as MODEL_COLUMNS
from tests.bench.models import measure_models
from tests.bench.petri.table import COLUMNS as PETRI_COLUMNS
from tests.bench.petri.table import measure_petri
from tests.bench.pipeline import Result, encrypted_load, measure_pipeline, stock_load
from tests.bench.publishing.table import COLUMNS as PUBLISHING_COLUMNS
from tests.bench.publishing.table import PublishingTable, measure_publishing
from tests.bench.queues.table import COLUMNS as QUEUE_COLUMNS
from tests.bench.queues.table import QueueTable, measure_queues
from tests.bench.sizing import COLUMNS as SIZING_COLUMNS
from tests.bench.sizing import SizingTable, measure_sizing
from tests.bench.tables import COLUMNS as TABLE_COLUMNS
from tests.bench.tables import measure_tables

from lavant.pipeline.session import spark_session

COLUMNS = (
    "workload, subscriptions",
    "matcher",
    "matches/event",
    "events/s, 1 thread",
    f"events/s, {CORES} threads",
    "1 event p50 µs",
    "p99 µs",
    "build s",
    "bytes/sub.",
    "additions/s",
    "against the machine's limit",
)


def cells(row: Row) -> list[str]:
    return [
        row.workload,
        row.matcher,
        f"{row.matches:,.0f}",
        f"{row.events_per_s:,.0f}",
        f"{row.events_per_s_all:,.0f}",
        f"{row.single_us[0]:,.0f}",
        f"{row.single_us[1]:,.0f}",
        f"{row.build_s:.2f}",
        f"{row.bytes_each:,.0f}",
        f"{row.additions_per_s:,.0f}",
        row.share,
    ]


PIPELINE_COLUMNS = (
    "100,000 subscriptions, 16 slices",
    "publications a batch",
    "kernel alone, 2 threads",
    "through Spark, local[2]",
    "share",
    "a batch's ms: access + match + exit (CPU) / whole / planning",
    "delay at half rate p50, p75, p99 ms",
    "open a slice ms",
)


def pipeline_cells(result: Result) -> list[str]:
    parts = result.batch_ms
    return [
        result.load,
        f"{result.batch_size:,}",
        f"{result.kernel_per_s:,.0f}/s = {result.kernel_per_s / 10:,.0f} M operations/s",
        f"{result.spark_per_s:,.0f}/s = {result.spark_per_s / 10:,.0f} M operations/s",
        f"{result.spark_per_s / result.kernel_per_s:.1%}",
        f"{parts['AP']:.0f} + {parts['M']:.0f} + {parts['EP']:.0f} / {parts['whole']:.0f} / {parts['planning']:.0f}",
        f"{', '.join(f'{delay:,.0f}' for delay in result.latency_ms)} at {result.latency_rate:,.0f}/s",
        f"{result.open_ms:.1f}",
    ]


def measure_pipelines() -> tuple[list[Result], list[ExitRow]]:
    with bench_spark() as spark:
        return [measure_pipeline(spark, load()) for load in (encrypted_load, stock_load)], measure_exit(spark)


@contextlib.contextmanager
def bench_spark() -> Iterator[SparkSession]:
    spark = spark_session(f"local[{CORES}]", name="lavant-bench")
    try:
        yield spark
    finally:
        spark.stop()


def measure_constants() -> SizingTable:
    with bench_spark() as spark:
        return measure_sizing(spark)


def describe(limits: Limits) -> str:
    return (
        f"One core of this machine ({platform.machine()}, {CORES} cores): {limits.gflop_per_s:.0f} GFLOP/s of "
        f"single-precision multiply-adds, {limits.read_gb_per_s:.1f} GB/s read, {limits.copy_gb_per_s:.1f} GB/s copied."
    )


def markdown(
    limits: Limits,
    rows: list[Row],
    results: list[Result],
    exits: list[ExitRow],
    tables: list[list[str]],
    sizing: SizingTable | None,
    queues: QueueTable | None,
    publishing: PublishingTable | None,
    models: list[list[str]],
    petri: list[list[str]],
) -> str:
    lines = [describe(limits), ""]
    lines += markdown_table(COLUMNS, [cells(row) for row in rows])
    lines += markdown_table(PIPELINE_COLUMNS, [pipeline_cells(result) for result in results])
    lines += markdown_table(EXIT_COLUMNS, [row.cells() for row in exits])
    lines += markdown_table(TABLE_COLUMNS, tables)
    if sizing is not None:
        lines += markdown_table(SIZING_COLUMNS, sizing.lines)
    if queues is not None:
        lines += [*markdown_table(QUEUE_COLUMNS, queues.lines), *queues.remarks, ""]
    if publishing is not None:
        lines += [*markdown_table(PUBLISHING_COLUMNS, publishing.lines), *publishing.remarks, ""]
    lines += markdown_table(MODEL_COLUMNS, models)
    lines += markdown_table(PETRI_COLUMNS, petri)
    return "\n".join(lines) + "\n"


def markdown_table(columns: tuple[str, ...], lines: list[list[str]]) -> list[str]:
    if not lines:
        return []
    rule = "| --- |" + " ---: |" * (len(columns) - 1)
    return ["| " + " | ".join(columns) + " |", rule, *("| " + " | ".join(line) + " |" for line in lines), ""]


def print_table(console: Console, title: str, columns: tuple[str, ...], lines: list[list[str]], left: set[int]) -> None:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number in left else "right")
    for line in lines:
        table.add_row(*line)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", default="", help="rows whose workload or matcher contains this text")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    arguments = parser.parse_args()
    console = Console(width=None if Console().is_terminal else 220)
    limits = measure_limits()
    rows: list[Row] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        chosen = [s for s in subjects() if arguments.only in f"{s.workload} {s.matcher}"]
        task = progress.add_task("measuring", total=len(chosen))
        while chosen:
            rows.append(measure(chosen.pop(0), limits))
            progress.advance(task)
    print_table(console, describe(limits), COLUMNS, [cells(row) for row in rows], {0, 1, len(COLUMNS) - 1})
    results, exits = measure_pipelines() if arguments.only in "pipeline" else ([], [])
    if results:
        print_table(console, "The pipeline on Spark", PIPELINE_COLUMNS, [pipeline_cells(r) for r in results], {0})
        print_table(console, "The exit", EXIT_COLUMNS, [row.cells() for row in exits], set())
    tables = measure_tables() if arguments.only in "tables" else []
    if tables:
        print_table(console, "Tables on Spark, by hand and with match", TABLE_COLUMNS, tables, {0, 2})
    sizing = measure_constants() if arguments.only in "sizing" else None
    if sizing is not None:
        print_table(console, "Constants of sizing", SIZING_COLUMNS, sizing.lines, {0, 1})
    queues = measure_queues() if arguments.only in "queues" else None
    if queues is not None:
        print_table(console, "Durable queues", QUEUE_COLUMNS, queues.lines, {0})
        console.print(*queues.remarks, sep="\n")
    publishing = measure_publishing() if arguments.only in "publishing" else None
    if publishing is not None:
        print_table(console, "Publishing", PUBLISHING_COLUMNS, publishing.lines, {0})
        console.print(*publishing.remarks, sep="\n")
    models = measure_models() if arguments.only in "models" else []
    if models:
        print_table(console, "Models", MODEL_COLUMNS, models, {0})
    petri = measure_petri() if arguments.only in "petri" else []
    if petri:
        print_table(console, "Petri nets", PETRI_COLUMNS, petri, {0})
    if arguments.markdown is not None:
        text = markdown(limits, rows, results, exits, tables, sizing, queues, publishing, models, petri)
        arguments.markdown.write_text(text)
    if sizing is not None and sizing.far_off:
        sys.exit(f"make bench: constants of sizing are far off: {', '.join(sizing.far_off)}; see docs/sizing.md")


if __name__ == "__main__":
    main()
