"""`lavant sweep`: run a function over a grid of scenarios on Spark."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lavant.cli.common import AsJson, progress_console, report
from lavant.core.errors import LavantError

if TYPE_CHECKING:
    from lavant.pipeline.sweep.runner import SweepProgress

EXIT_FAILED_MAX = 100
EXIT_UNUSABLE = 101
"""Not 2 as for other commands, since 2 means two failed scenarios."""
EXIT_INTERRUPTED = 130


def sweep(
    scenario: Annotated[Path, typer.Argument(help="TOML file with function, fixed, grid, replications, seed")],
    output: Annotated[Path, typer.Option(help="directory for the results (Parquet)")],
    master: Annotated[str, typer.Option(help="Spark master: local[*] or spark://HOST:PORT")] = "local[*]",
    path: Annotated[
        Path | None, typer.Option(help="directory of the function's module, at the same path on every machine")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="discard earlier results")] = False,
    driver_host: Annotated[str | None, typer.Option(help="address at which executors reach this machine")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a function for every scenario of a grid. Results from earlier runs are kept.

    The exit code is the number of failed scenarios (at most 100), or 101 if the sweep cannot run.
    """
    start = time.monotonic()
    place = None if path is None else str(path.resolve())
    try:
        progress = _run(scenario, output, master=master, place=place, fresh=fresh, driver_host=driver_host)
    except LavantError as error:
        typer.echo(f"lavant: {error}", err=True)
        raise typer.Exit(EXIT_UNUSABLE) from None
    except KeyboardInterrupt:
        typer.echo("stopped; finished chunks are kept: run the same command again to resume", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    counts = {name: getattr(progress, name) for name in ("total", "computed", "kept", "failed")}
    report(_summary(progress, output, time.monotonic() - start), as_json=as_json, **counts, output=str(output))
    for text in progress.errors:
        typer.echo(f"  {text}", err=True)
    raise typer.Exit(min(progress.failed, EXIT_FAILED_MAX))


def _run(
    scenario: Path, output: Path, *, master: str, place: str | None, fresh: bool, driver_host: str | None
) -> SweepProgress:
    from lavant.pipeline.session import spark_session  # noqa: PLC0415
    from lavant.pipeline.sweep.calls import resolve  # noqa: PLC0415
    from lavant.pipeline.sweep.results import ResultStore  # noqa: PLC0415
    from lavant.pipeline.sweep.runner import SweepProgress, missing_tasks, run_sweep  # noqa: PLC0415
    from lavant.pipeline.sweep.scenario import load_sweep  # noqa: PLC0415

    wanted = load_sweep(scenario)
    resolve(wanted.function, place)  # before Spark takes its seconds to start
    store = ResultStore(output, wanted, fresh=fresh)
    if not missing_tasks(wanted, store):
        return SweepProgress(total=wanted.size, kept=wanted.size)
    with contextlib.ExitStack() as ending:
        spark = spark_session(master, name=f"sweep of {wanted.function}", driver_host=driver_host)
        ending.callback(spark.stop)
        report = ending.enter_context(_bar(scenario.name))
        return run_sweep(spark, wanted, store, path=place, report=report)


@contextlib.contextmanager
def _bar(name: str) -> Iterator[Callable[[SweepProgress], None]]:
    """A progress bar on standard error; standard output is for the summary."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    failures = TextColumn("{task.fields[failed]} failed")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), failures, TimeRemainingColumn())
    with Bar(*columns, console=progress_console()) as bar:
        task = bar.add_task(name, total=None, failed=0)

        def report(progress: SweepProgress) -> None:
            done = progress.kept + progress.computed
            bar.update(task, total=progress.total, completed=done, failed=progress.failed)

        yield report


def _summary(progress: SweepProgress, output: Path, seconds: float) -> str:
    return (
        f"{progress.total} scenarios: {progress.computed} computed, {progress.kept} kept from before, "
        f"{progress.failed} failed, in {seconds:.1f} s; results in {output}"
    )
