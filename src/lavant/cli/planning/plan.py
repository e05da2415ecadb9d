"""`lavant plan`: how many consumers each topic needs to reach a goal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lavant.cli.common import CaFile, Key
from lavant.core.errors import InvalidValue

if TYPE_CHECKING:
    from lavant.control.allocation.system.toml_file import SystemFile


def plan(
    system: Annotated[Path | None, typer.Argument(help="TOML file of topics, job types and goal")] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="plan for what was observed: the address of a server with --telemetry, or a directory of telemetry",
        ),
    ] = None,
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
    key: Key = "",
    ca_file: CaFile = None,
) -> None:
    """Compute the consumers that each topic needs for a response time or a budget.

    With --from, give the goal as a change: --what-if response_s=50, or --what-if budget=5. Exit code 2 if the file is
    invalid, 8 if no allocation reaches the goal.
    """
    from lavant.cli.reports import plans as planning  # noqa: PLC0415
    from lavant.cli.reports.charts import write_picture  # noqa: PLC0415

    if (system is None) == (source is None):
        raise InvalidValue("give a system file, or --from SOURCE, and not both")
    file = planning.read(system) if system is not None else _observed(source, key, ca_file)
    before = None
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


def _observed(source: str | None, key: str, ca_file: Path | None) -> SystemFile:
    from lavant.cli.reports.telemetry import fitted_text, history  # noqa: PLC0415
    from lavant.control.allocation.system.toml_file import SystemFile  # noqa: PLC0415

    assert source is not None
    return SystemFile(fitted_text(history(source, key, ca_file)), name=source)
