"""`make bench`: tables, measured in one run.

`--only TEXT` picks rows of the first table, of matchers, or another table by its name; `--list` prints the names.
`--markdown FILE` also writes the tables there. Ends with exit code 1 if a constant of sizing is far off.
"""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tests.bench.limits import Limits, measure_limits
from tests.bench.matching import CORES, Row, measure, subjects
from tests.bench.sections import SECTIONS, Section

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


def measure_matchers(only: str, console: Console) -> list[str]:
    """The table of matchers, as Markdown."""
    limits = measure_limits()
    rows: list[Row] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        chosen = [s for s in subjects() if only in f"{s.workload} {s.matcher}"]
        task = progress.add_task("measuring", total=len(chosen))
        while chosen:
            rows.append(measure(chosen.pop(0), limits))
            progress.advance(task)
    lines = [cells(row) for row in rows]
    if lines:
        print_table(console, describe(limits), COLUMNS, lines, {0, 1, len(COLUMNS) - 1})
    return [describe(limits), "", *markdown_table(COLUMNS, lines)]


def measure_section(section: Section, console: Console) -> tuple[list[str], str]:
    """A table as Markdown, and what is wrong with its figures."""
    console.print(f"measuring: {section.title}", style="dim")
    found = section.measure()
    print_table(console, section.title, section.columns, found.lines, section.left)
    if found.remarks:
        console.print(*found.remarks, sep="\n")
    remarks = [*found.remarks, ""] if found.remarks else []
    return [*markdown_table(section.columns, found.lines), *remarks], found.problem


def markdown_table(columns: tuple[str, ...], lines: list[list[str]]) -> list[str]:
    if not lines:
        return []
    rule = "| --- |" + " ---: |" * (len(columns) - 1)
    return ["| " + " | ".join(columns) + " |", rule, *("| " + " | ".join(line) + " |" for line in lines), ""]


def print_table(
    console: Console, title: str, columns: tuple[str, ...], lines: list[list[str]], left: frozenset[int] | set[int]
) -> None:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number in left else "right")
    for line in lines:
        table.add_row(*line)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", default="", help="rows whose workload or matcher contains this text, or a table")
    parser.add_argument("--list", action="store_true", help="print the names of the tables")
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(section.name for section in SECTIONS))
        return
    console = Console(width=None if Console().is_terminal else 220)
    lines = measure_matchers(arguments.only, console)
    problems = []
    for section in SECTIONS:
        if arguments.only in section.name:
            written, problem = measure_section(section, console)
            lines += written
            problems += [problem] if problem else []
    if arguments.markdown is not None:
        arguments.markdown.write_text("\n".join(lines) + "\n")
    if problems:
        sys.exit(f"make bench: {'; '.join(problems)}")


if __name__ == "__main__":
    main()
