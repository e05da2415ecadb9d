"""`lavant plan`: how many consumers each topic needs for a goal, from a description of the system."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def plan(
    system: Annotated[Path, typer.Argument(help="TOML file: topics, job types, goal")],
    what_if: Annotated[
        list[str] | None,
        typer.Option(metavar="CHANGE", help='such as "arrival_rate.1=4", "service_rate.*=x1.5", "response_s=40"'),
    ] = None,
    steps: Annotated[bool, typer.Option("--steps", help="show how the allocation came about")] = False,
    picture: Annotated[Path | None, typer.Option(help="file for a picture of the steps, as SVG")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, with every step")] = False,
) -> None:
    """Say how many consumers each topic needs for a response time or a budget, and what that gives.

    Exits with 2 if the file cannot be used, or if no allocation reaches the goal.
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
