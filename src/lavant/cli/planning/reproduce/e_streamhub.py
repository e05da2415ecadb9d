"""`lavant reproduce e-streamhub`: elastic scaling under a ramp and a trading day (Section VI-E, Figures 8 and 9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from lavant.cli.common import AsJson, print_table

if TYPE_CHECKING:
    from lavant.cli.reports.charts import Chart
    from lavant.simulation.placement.reproduction import LoadTrial

PERIOD = 6
"""Probe intervals per point of a chart: 30 s, as in the paper."""
Summary: TypeAlias = Callable[[Sequence[float]], float]


def e_streamhub(
    trades: Annotated[
        Path | None, typer.Option(help="Parquet with a column ms, the time of each trade; by default a synthetic day")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="seed of the random numbers")] = 1,
    hosts: Annotated[int, typer.Option(min=1, max=100, help="hosts at most")] = 15,
    output: Annotated[Path | None, typer.Option(help="directory for the charts, one per load")] = None,
    as_json: AsJson = False,
) -> None:
    """Scale hosts and move slices under a ramp and a trading day.

    Compares the paper's policy (threshold) with Lavant's default (forecast) and a fixed number of hosts.
    The real manager and hosts move the slices while every publication is simulated. Takes about 20 s.
    """
    import msgspec  # noqa: PLC0415

    runs = _run(trades, seed, hosts)
    if output is not None:
        _write(runs, output)
    if as_json:
        print(msgspec.json.encode(runs).decode())
    else:
        _print(runs)


def _run(trades: Path | None, seed: int, hosts: int) -> list[LoadTrial]:
    """Run all policies under all loads, with progress on standard error."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    from lavant.simulation.placement.reproduction import POLICIES, loads, run_load_trial  # noqa: PLC0415

    wanted = loads(trades, seed)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    runs = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=sum(len(load.curve) for load in wanted) * len(POLICIES))
        for load in wanted:
            for policy in POLICIES:
                bar.update(task, description=f"{load.name}, {policy}")
                runs.append(
                    run_load_trial(
                        load, policy, seed=seed, hosts_max=hosts, progress=lambda done: bar.advance(task, done)
                    )
                )
    return runs


def _print(runs: list[LoadTrial]) -> None:
    for load in dict.fromkeys(run.load for run in runs):
        here = [run for run in runs if run.load == load]
        print(f"{load}: {here[0].trial.publications:,} publications\n")
        costs = ("policy", "hosts", "host-hours", "CPU", "overloaded", "moves", "state moved")
        print_table(costs, map(_costs, here), numbers=costs[1:])
        print()
        delays = ("delays (ms)", "p50", "p99", "max", "moving: p50", "moving: p99", "pause")
        print_table(delays, map(_delays, here), numbers=delays[1:])
        print()
    print("CPU: of the least and the most busy host, 5th and 95th percentile, while there was more than one host.")
    print("Overloaded: host-seconds above 80 %. Delays: from arrival of a publication to its notification;")
    print("moving: of publications in transit while a slice was paused; pause: mean pause of a migrating slice.")


def _costs(run: LoadTrial) -> tuple[str, ...]:
    trial, (low, high) = run.trial, run.envelope
    return (
        trial.policy,
        f"{min(trial.hosts)} to {max(trial.hosts)}",
        f"{trial.host_hours:.2f}",
        f"{low:.0%} to {high:.0%}",
        f"{trial.host_s_above:.0f} s",
        f"{trial.moves}",
        f"{trial.state_bytes / 1e9:.1f} GB",
    )


def _delays(run: LoadTrial) -> tuple[str, ...]:
    trial = run.trial
    delays, moving = trial.delays, trial.delays_moving
    figures = [delays.p50_ms, delays.p99_ms, delays.max_ms]
    at_moves = [moving.p50_ms, moving.p99_ms, trial.pause_ms]
    return (trial.policy, *(f"{f:.0f}" for f in figures), *(f"{f:.0f}" if trial.moves else "–" for f in at_moves))


def _write(runs: list[LoadTrial], output: Path) -> None:
    from lavant.cli.reports.charts import picture, write_picture  # noqa: PLC0415

    output.mkdir(parents=True, exist_ok=True)
    for load in dict.fromkeys(run.load for run in runs):
        charts = _charts([run for run in runs if run.load == load])
        write_picture(output / f"e-streamhub-{load.split()[0]}.svg", picture(charts))


def _charts(runs: list[LoadTrial]) -> list[Chart]:
    """The charts of Figures 8 and 9: load, hosts, CPU of hosts and delays, over periods of 30 s."""
    from lavant.cli.reports.charts import Chart, ChartLine  # noqa: PLC0415

    trials = {run.trial.policy: run.trial for run in runs}
    times_s = _periods([interval.time_s for interval in trials["static"].intervals], max)

    def lines(field: str, summary: Summary) -> list[ChartLine]:
        return [line(policy, policy, field, summary) for policy in trials]

    def line(name: str, policy: str, field: str, summary: Summary, unit: float = 1.0) -> ChartLine:
        values = [unit * getattr(interval, field) for interval in trials[policy].intervals]
        return ChartLine(name, times_s, _periods(values, summary))

    def envelope(policy: str) -> list[ChartLine]:
        fields = (("highest", "load_high", max), ("mean", "load_mean", fmean), ("lowest", "load_low", min))
        return [line(name, policy, field, summary, 100.0) for name, field, summary in fields]

    return [
        Chart(runs[0].load, "time (s)", "publications per second", [line("load", "static", "rate_per_s", fmean)]),
        Chart("Hosts by policy", "time (s)", "hosts", [line._replace(steps=True) for line in lines("hosts", max)]),
        Chart("CPU of single hosts: threshold", "time (s)", "CPU (%)", envelope("threshold"), y_max=100.0),
        Chart("CPU of single hosts: forecast", "time (s)", "CPU (%)", envelope("forecast"), y_max=100.0),
        Chart("Mean delay by policy", "time (s)", "delay (ms)", lines("delay_ms", fmean)),
    ]


def _periods(values: Sequence[float], summary: Summary) -> list[float]:
    """One value per period of six probe intervals."""
    return [round(summary(values[start : start + PERIOD]), 2) for start in range(0, len(values), PERIOD)]
