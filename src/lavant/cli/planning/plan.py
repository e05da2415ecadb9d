"""`lavant plan`: how many consumers each topic needs to reach a goal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def plan(
    system: Annotated[Path, typer.Argument(help="TOML file of topics, job types and goal")],
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANGE",
            help='change the system first: "arrival_rate.1=4", "service_rate.*=x1.5", "response_s=40"; repeatable',
        ),
    ] = None,
    steps: Annotated[bool, typer.Option("--steps", help="show each step of the allocation")] = False,
    picture: Annotated[Path | None, typer.Option(help="SVG file for a chart of the steps")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, including the steps")] = False,
) -> None:
    """Compute the consumers that each topic needs for a response time or a budget.

    Exit code 2 if the file is invalid or no allocation reaches the goal.
    """
    from lavant.cli.reports import plans as planning  # noqa: PLC0415
    from lavant.cli.reports.charts import write_picture  # noqa: PLC0415

    file, before = planning.read(system), None
    if what_if:
        before = planning.outlook_before(file)
        file = file.with_changes(what_if)
    found = planning.outlook(file, before=before)
    if picture is not None:
        write_picture(picture, planning.as_picture(found))
    if as_json:
        print(planning.as_json(found).decode())
        return
    print(planning.as_text(found, before=before))
    if steps:
        print(f"\n{planning.steps_as_text(found)}")
