"""`make bench`: one table, measured in one run. `--only TEXT` picks rows, `--markdown FILE` also writes it there."""

from __future__ import annotations

import argparse
import platform
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tests.bench.limits import Limits, measure_limits
from tests.bench.matching import CORES, Row, measure, subjects

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


def describe(limits: Limits) -> str:
    return (
        f"One core of this machine ({platform.machine()}, {CORES} cores): {limits.gflop_per_s:.0f} GFLOP/s of "
        f"single-precision multiply-adds, {limits.read_gb_per_s:.1f} GB/s read, {limits.copy_gb_per_s:.1f} GB/s copied."
    )


def markdown(limits: Limits, rows: list[Row]) -> str:
    lines = [describe(limits), "", "| " + " | ".join(COLUMNS) + " |", "| --- | --- |" + " ---: |" * 8 + " --- |"]
    return "\n".join([*lines, *("| " + " | ".join(cells(row)) + " |" for row in rows)]) + "\n"


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
    table = Table(title=describe(limits), title_justify="left")
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if 2 <= number < len(COLUMNS) - 1 else "left")
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)
    if arguments.markdown is not None:
        arguments.markdown.write_text(markdown(limits, rows))


if __name__ == "__main__":
    main()
