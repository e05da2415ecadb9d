"""`lavant reproduce publisher`: experiments with the auto-tuned publisher in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lavant.cli.common import AsJson, print_table, progress

if TYPE_CHECKING:
    from lavant.cli.reports.charts import Chart
    from lavant.simulation.publisher.congestion import Congested
    from lavant.simulation.publisher.reproduction import LoadRow, PublisherReproduction
    from lavant.simulation.publisher.steps import StepResponse

PICTURE = "publisher.svg"


def publisher(
    seeds: Annotated[int, typer.Option(help="simulated runs per constant load", min=2, max=10)] = 4,
    output: Annotated[Path | None, typer.Option(help=f"directory for the chart, {PICTURE}")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure publishing latency at constant loads, under a stepped load, and under congestion.

    Compares the paper's controller (aimd), the best fixed batch size and Lavant's default (eager). Takes about 20 s.
    """
    import msgspec  # noqa: PLC0415

    from lavant.simulation.publisher.reproduction import reproduce, tasks  # noqa: PLC0415

    with progress("publisher", tasks()) as report:
        found = reproduce(seeds=range(1, seeds + 1), report=report)
    if output is not None:
        _write(found, output)
    if as_json:
        print(msgspec.json.encode(found).decode())
    else:
        _print(found)


def _print(found: PublisherReproduction) -> None:
    print("Mean latency in ms ± 95 % confidence interval, by requests per second; expected: by independent code\n")
    _print_loads(found.loads)
    print("\nStepped load: latency in ms in the first seconds of each step, when settled, settling time; batch size\n")
    _print_steps(found.steps)
    print("\nSlow subscriber: 17.5 publications per second arrive, about 13 per second get through\n")
    _print_congested(found.slow_subscriber)
    print("\nBroker short of capacity: 55 publications per second arrive, it takes 38 transfers per second\n")
    _print_congested(found.short_of_capacity)


def _print_loads(loads: Sequence[LoadRow]) -> None:
    columns = ("load", "best N", "fixed", "expected", "aimd", "expected", "eager", "below fixed")
    rows = [
        (
            f"{row.load_per_s:g}",
            str(row.best_fixed.batch_size),
            str(row.best_fixed),
            str(row.expected_fixed_ms),
            str(row.aimd),
            str(row.expected_aimd_ms),
            str(row.eager),
            f"{row.eager_below_best:.0%}",
        )
        for row in loads
    ]
    print_table(columns, rows, numbers=columns)


def _print_steps(steps: dict[str, list[StepResponse]]) -> None:
    columns = ("controller", "load", *(f"{second} s" for second in range(1, 7)), "settled", "after", "batch")
    rows = [_step(controller, step) for controller, responses in steps.items() for step in responses]
    print_table(columns, rows, numbers=columns[1:])


def _step(controller: str, step: StepResponse) -> tuple[str, ...]:
    seconds = [f"{latency_ms:.0f}" for latency_ms in step.latency_ms[:6]]
    figures = (f"{step.settled_latency_ms:.0f}", f"{step.settling_s} s", f"{step.settled_batch_size:.1f}")
    return (controller, f"{step.rate_per_s:g}", *seconds, *figures)


def _print_congested(rows: Sequence[Congested]) -> None:
    columns = ("controller", "reserved", "received", "dropped", "published", "latency")
    table = [
        (
            row.controller,
            str(row.workers_reserved),
            str(row.received),
            str(row.dropped),
            str(row.published),
            f"{row.mean_ms / 1000:.1f} s",
        )
        for row in rows
    ]
    print_table(columns, table, numbers=columns[1:])


def _write(found: PublisherReproduction, output: Path) -> None:
    from lavant.cli.reports.charts import picture, write_picture  # noqa: PLC0415

    output.mkdir(parents=True, exist_ok=True)
    write_picture(output / PICTURE, picture(_charts(found)))


def _charts(found: PublisherReproduction) -> list[Chart]:
    from lavant.cli.reports.charts import Chart, ChartLine  # noqa: PLC0415

    loads = [row.load_per_s for row in found.loads]
    by_load = [
        ChartLine("aimd", loads, [row.aimd.mean_ms for row in found.loads]),
        ChartLine("eager (default)", loads, [row.eager.mean_ms for row in found.loads]),
        ChartLine("best fixed N", loads, [row.best_fixed.mean_ms for row in found.loads]),
    ]

    def over_time(name: str) -> list[ChartLine]:
        return [
            ChartLine(
                controller,
                [step.begins_s + second for step in steps for second in range(len(step.latency_ms))],
                [value for step in steps for value in getattr(step, name)],
            )
            for controller, steps in found.steps.items()
        ]

    return [
        Chart("Latency at constant loads", "requests per second", "mean latency (ms)", by_load),
        Chart(
            "Latency under the load of Table II, shortened", "time (s)", "mean latency (ms)", over_time("latency_ms")
        ),
        Chart("Batch size", "time (s)", "publications per batch (mean)", over_time("batch_size")),
    ]
