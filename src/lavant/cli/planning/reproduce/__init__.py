"""`lavant reproduce [PAPER [FIGURE]]`: the experiments of the papers, run again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lavant.cli.common import AsJson, check_readable, print_table, progress
from lavant.core.errors import InvalidValue

if TYPE_CHECKING:
    from lavant.simulation.figures import RunAll


def reproduce(
    paper: Annotated[str | None, typer.Argument(help="name of a paper; without it, papers are listed")] = None,
    figure: Annotated[str | None, typer.Argument(help="one figure, such as 8 or table-1; all without it")] = None,
    is_all: Annotated[bool, typer.Option("--all", help="all figures of all papers, about ten minutes")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="directory for reproductions.md, and reproductions/ with pages, pictures (SVG) and tables (CSV)"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="seed of the random numbers")] = 1,
    trades: Annotated[
        Path | None,
        typer.Option(help="for e-streamhub 9: Parquet with a column ms, the time of each trade; default: a drawn day"),
    ] = None,
    quotes: Annotated[
        Path | None,
        typer.Option(
            help="for balancing: Parquet of daily quotes with symbol, date, high, low and volume; default: drawn ones"
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            help="run the sweeps of balancing on Spark: local[*] or spark://HOST:PORT; default: in this process"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the experiments of the papers again, and compare with what the papers say."""
    from lavant.cli.planning.reproduce.registry import selected  # noqa: PLC0415

    if is_all and paper is not None:
        raise InvalidValue(f"--all runs all papers, got the paper {paper!r} too; give one or the other")
    if paper is None and not is_all:
        _list(as_json)
        return
    import msgspec  # noqa: PLC0415

    from lavant.cli.planning.reproduce.pages import print_figure, write_figures  # noqa: PLC0415
    from lavant.simulation.figures import FigureSettings  # noqa: PLC0415

    chosen = selected(paper, figure)
    for given in filter(None, (trades, quotes)):
        check_readable(given)  # before Spark takes its seconds to start
    found = []
    with _computer(master) as run_all, progress("", sum(entry.steps for _, entry in chosen)) as report:
        for each, entry in chosen:
            left = iter(range(entry.steps))

            def advance(done: str, left: Iterator[int] = left) -> None:
                if next(left, None) is not None:
                    report(done)

            found.append((each, entry, entry.run(FigureSettings(seed, trades, advance, quotes, run_all))))
            for _ in left:  # steps that another figure had done already
                report(entry.title)
    if out is not None:
        write_figures(found, out)
    if as_json:
        figures = [
            {"paper": each.name, "figure": entry.name, "title": entry.title, **msgspec.to_builtins(result)}
            for each, entry, result in found
        ]
        print(msgspec.json.encode(figures).decode())
        return
    for each, entry, result in found:
        print_figure(each, entry, result)


@contextlib.contextmanager
def _computer(master: str | None) -> Iterator[RunAll]:
    """What runs the calls of sweeps: this process, or Spark."""
    from lavant.simulation.figures import run_here  # noqa: PLC0415

    if master is None:
        yield run_here
        return
    from lavant.pipeline.session import spark_session  # noqa: PLC0415
    from lavant.pipeline.sweep.runner import compute_all  # noqa: PLC0415

    spark = spark_session(master, name="lavant reproduce")
    try:
        yield partial(compute_all, spark)
    finally:
        spark.stop()


def _list(as_json: bool) -> None:
    import msgspec  # noqa: PLC0415

    from lavant.cli.planning.reproduce.registry import papers  # noqa: PLC0415

    rows = [(paper.name, entry.name, entry.title) for paper in papers().values() for entry in paper.figures]
    if as_json:
        listed = [{"paper": paper, "figure": figure, "title": title} for paper, figure, title in rows]
        print(msgspec.json.encode(listed).decode())
    else:
        print_table(("paper", "figure", "shows"), rows)
