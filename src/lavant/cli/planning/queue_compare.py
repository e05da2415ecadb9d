"""`lavant queue compare`: one scenario by equations, by the paper's net, by the simulated queue, and on a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lavant.cli.common import AsJson, print_table, progress


def compare_queue(
    scenario: Annotated[Path, typer.Argument(help="TOML file of the load, the threads and the queue")],
    utilisation: Annotated[
        list[float] | None,
        typer.Option(help="load at which consumers are so busy, instead of the file's; such as 0.6; repeatable"),
    ] = None,
    messages: Annotated[int, typer.Option(help="messages of a simulation", min=1_000, max=10_000_000)] = 20_000,
    live: Annotated[
        int, typer.Option(metavar="MESSAGES", help="messages of a run on a real server, at least 700; 0: none", min=0)
    ] = 0,
    stretch: Annotated[
        float, typer.Option(help="factor by which a live run is slower, for slow machines", min=0.1, max=100.0)
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="seed of the load", min=0)] = 1,
    picture: Annotated[Path | None, typer.Option(help="SVG file for a chart with the intervals")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare delivery times by equations, by the paper's Petri net, by Lavant's own queue simulated, and on a server.

    The live run starts a server, a process that sends and one process for each consumer; they sleep instead of
    working. It takes as long as its messages take to arrive. Its second line is free of the chance of its load: the
    queue machine is its control variate.
    """
    import msgspec  # noqa: PLC0415

    from lavant.cli.planning.queue_plan import read_scenario  # noqa: PLC0415
    from lavant.cli.reports.charts import write_picture  # noqa: PLC0415
    from lavant.cli.reports.queue_models.comparison import (  # noqa: PLC0415
        as_picture,
        compare,
        why_not_net,
        with_utilisation,
    )

    given = read_scenario(scenario).scenario
    scenarios = [with_utilisation(given, each) for each in utilisation] if utilisation else [given]
    with progress("queue", len(scenarios) * (3 if live else 2)) as report:
        rows = compare(scenarios, messages=messages, live_messages=live, stretch=stretch, seed=seed, report=report)
    if picture is not None:
        write_picture(picture, as_picture(rows))
    if as_json:
        print(msgspec.json.encode(rows).decode())
        return
    columns = ("load", "by", "mean delivery (s)", "p95 (s)", "attempts", "duplicates", "busy")
    table = [
        (
            f"{row.utilisation:.0%}",
            row.way,
            _with_interval(row.delivery_s.mean, row.delivery_s.half_width),
            _with_interval(row.p95_s.mean, row.p95_s.half_width),
            f"{row.attempts:.3f}",
            f"{row.duplicates:.3f}",
            f"{row.busy:.0%}",
        )
        for row in rows
    ]
    print_table(columns, table, numbers=columns[2:])
    print("±: 95 % confidence interval")
    if live:
        print("controlled: live server − queue machine under the same load + queue machine, as control variate")
    if reason := why_not_net(given):
        print(f"without the Petri net: {reason}")


def _with_interval(mean: float, half_width: float) -> str:
    return f"{mean:.4f} ± {half_width:.4f}" if half_width else f"{mean:.4f}"
