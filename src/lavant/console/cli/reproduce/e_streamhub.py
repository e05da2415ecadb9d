"""`lavant reproduce e-streamhub`: elastic scaling under a ramp and a trading day (Section VI-E, Figures 8 and 9)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lavant.simulation.placement.reproduction import Course


def e_streamhub(
    trades: Annotated[
        Path | None, typer.Option(help="Parquet with a column ms, a time for each trade; without it a day is made up")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    hosts: Annotated[int, typer.Option(min=1, max=100, help="the most that may be used")] = 15,
    output: Annotated[Path | None, typer.Option(help="directory for a picture of each load")] = None,
    json: Annotated[bool, typer.Option("--json", help="everything as JSON, each probe interval too")] = False,
) -> None:
    """Hosts come and go with the load, slices move: the paper's policy, Lavant's, and a fixed number of hosts.

    Every publication is simulated, and every move is made by the real manager and hosts.
    """
    import msgspec  # noqa: PLC0415

    courses = _run(trades, seed, hosts)
    if output is not None:
        _draw(courses, output)
    if json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(courses)) + b"\n")
    else:
        _print(courses)


def _run(trades: Path | None, seed: int, hosts: int) -> list[Course]:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    from lavant.simulation.placement.reproduction import POLICIES, loads, run_course  # noqa: PLC0415

    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as progress:
        wanted = loads(trades, seed)
        task = progress.add_task("", total=sum(len(load.curve) for load in wanted) * len(POLICIES))
        courses = []
        for load in wanted:
            for policy in POLICIES:
                progress.update(task, description=f"{load.name}, {policy}")
                courses.append(
                    run_course(load, policy, seed=seed, hosts_max=hosts, progress=lambda s: progress.advance(task, s))
                )
    return courses


def _print(courses: list[Course]) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(caption="CPU of single hosts; delays from a publication's arrival to its notification", box=None)
    for name in ("load", "policy"):
        table.add_column(name)
    for name in (
        "hosts",
        "host-hours",
        "CPU low/avg/high",
        "> 80 % (host-s)",
        "moves",
        "state (GB)",
        "pause (ms)",
        "delay p50/p99 (ms)",
        "while moving p50/p99",
        "max (ms)",
    ):
        table.add_column(name, justify="right")
    last = ""
    for course in courses:
        trial, low, mean, high = course.trial, *course.envelope
        table.add_row(
            course.load if course.load != last else "",
            trial.policy,
            f"{min(trial.hosts)} to {max(trial.hosts)}",
            f"{trial.host_hours:.2f}",
            f"{low:.0%} / {mean:.0%} / {high:.0%}",
            f"{trial.host_s_above:.0f}",
            f"{trial.moves}",
            f"{trial.state_bytes / 1e9:.1f}",
            f"{trial.pause_ms:.0f}" if trial.moves else "–",
            f"{trial.delays.p50_ms:.0f} / {trial.delays.p99_ms:.0f}",
            f"{trial.delays_moving.p50_ms:.0f} / {trial.delays_moving.p99_ms:.0f}" if trial.moves else "–",
            f"{trial.delays.max_ms:.0f}",
        )
        last = course.load
    Console(width=max(150, Console().width)).print(table)


def _draw(courses: list[Course], output: Path) -> None:
    from lavant.console.cli.reproduce.pictures import elasticity_picture  # noqa: PLC0415

    output.mkdir(parents=True, exist_ok=True)
    for load in dict.fromkeys(course.load for course in courses):
        path = output / f"e-streamhub-{load.split()[0]}.svg"
        path.write_text(elasticity_picture([course for course in courses if course.load == load]), encoding="utf-8")
        typer.echo(f"wrote {path}", err=True)
