"""`lavant reproduce allocation`: case study of the allocation paper (model against simulation) and its burst."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lavant.cli.common import AsJson, print_table, progress

if TYPE_CHECKING:
    from lavant.cli.reports.charts import Chart
    from lavant.simulation.queueing import Estimate
    from lavant.simulation.queueing.reproduction import AllocationReproduction, Comparison


PICTURE = "allocation.svg"
SHOWN = ("MinTime 5", "MinCost 50 s", "threshold 1.75", "threshold 5")
"""Policies in the chart; the others would leave its scale."""


def allocation(
    seeds: Annotated[int, typer.Option(help="simulated bursts per policy", min=2, max=100)] = 20,
    days: Annotated[int, typer.Option(help="simulated trading days per policy, some seconds each", min=0, max=20)] = 0,
    output: Annotated[Path | None, typer.Option(help=f"directory for the chart, {PICTURE}")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare response times by model, refinement and simulation, and allocation policies under a burst.

    Takes about half a minute, plus some seconds for each day.
    """
    import msgspec  # noqa: PLC0415

    from lavant.simulation.queueing.reproduction import reproduce, tasks  # noqa: PLC0415

    with progress("allocation", tasks(days=days)) as report:
        found = reproduce(seeds=seeds, days=days, report=report)
    if output is not None:
        _write(found, output)
    if as_json:
        print(msgspec.json.encode(found).decode())
    else:
        _print(found, seeds, days)


def _print(found: AllocationReproduction, seeds: int, days: int) -> None:
    print("Model of Eq. 2: requests in the system; response time in s of jobs 1, 2, 3 and of all jobs\n")
    columns = ("consumers", "requests", "expected", "job 1", "job 2", "job 3", "all", "expected ")
    rows = [
        (
            _digits(row.consumers),
            f"{row.wip:.3f}",
            f"{row.expected_wip:.3f}",
            *(f"{response_s:.1f}" for response_s in row.response_of_job_s),
            f"{row.response_s:.2f}",
            f"{row.expected_s:.2f}",
        )
        for row in found.table
    ]
    print_table(columns, rows, numbers=columns[1:])
    print(
        "\nResponse time of all jobs in s: model, with Whitt's refinement, simulated; expected: by independent code\n"
    )
    simulated = [
        (
            _digits(row.consumers),
            f"{row.response_s:.2f}",
            f"{row.refined_s:.2f}",
            str(row.simulated_s),
            str(row.expected_simulated_s),
        )
        for row in found.table
    ]
    names = ("model", "refined", "simulated", "expected")
    print_table(("consumers", *names), simulated, numbers=names)
    print(f"\nMinTime, from one consumer each: {' → '.join(map(_digits, found.min_time_path))}")
    print(f"MinCost for 50 s: {_digits(found.min_cost)}, {sum(found.min_cost) - 4} more\n")
    print(f"Burst of Section VI-F, {seeds} seeds: response time and p95 in s, share of minutes above 50 s,")
    print("consumer hours, allocation changes; ±: 95 % confidence interval\n")
    _print_comparison(found.bursts)
    if found.days:
        print(f"\nTrading days, {days} seeds\n")
        _print_comparison(found.days)


def _print_comparison(rows: Sequence[Comparison]) -> None:
    columns = ("policy", "response", "p95", "above", "hours", "changes")
    table = [
        (
            row.policy,
            _with_interval(row.response_s),
            _with_interval(row.p95_s),
            f"{row.time_above.mean:.1%} ± {row.time_above.half_width:.1%}",
            _with_interval(row.consumer_hours),
            f"{row.changes:.0f}",
        )
        for row in rows
    ]
    print_table(columns, table, numbers=columns[1:])


def _with_interval(estimate: Estimate) -> str:
    return f"{estimate.mean:.1f} ± {estimate.half_width:.1f}"


def _write(found: AllocationReproduction, output: Path) -> None:
    from lavant.cli.reports.charts import picture, write_picture  # noqa: PLC0415

    output.mkdir(parents=True, exist_ok=True)
    write_picture(output / PICTURE, picture(_charts(found)))


def _charts(found: AllocationReproduction) -> list[Chart]:
    from lavant.cli.reports.charts import Chart, ChartLine  # noqa: PLC0415

    steps = [float(sum(row.consumers) - 4) for row in found.table]
    by_step = [
        ChartLine("model, Eq. 2", steps, [row.response_s for row in found.table]),
        ChartLine("refined", steps, [row.refined_s for row in found.table]),
        ChartLine("simulated", steps, [row.simulated_s.mean for row in found.table]),
    ]
    over_time = [
        ChartLine(row.policy, [float(minute) for minute in range(len(row.minutes))], row.minutes)
        for row in found.bursts
        if row.policy in SHOWN
    ]
    target = ("target", 50.0)
    return [
        Chart("Response time on the path of MinTime", "additional consumers", "response time (s)", by_step, target),
        Chart("Response time under the burst", "time of arrival (min)", "response time (s)", over_time, target),
    ]


def _digits(consumers: Sequence[int]) -> str:
    return " ".join(map(str, consumers))
