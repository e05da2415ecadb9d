"""`lavant demo`: stock quotes through a server, then through the pipeline on Spark."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from lavant.cli.common import AsJson, narrator, print_json


class DemoPart(StrEnum):
    ALL = "all"
    SERVICE = "service"
    PIPELINE = "pipeline"


def demo(
    part: Annotated[DemoPart, typer.Argument(help="part to run")] = DemoPart.ALL,
    seconds: Annotated[float, typer.Option(min=1, help="seconds of publishing in each part")] = 10.0,
    service_rate: Annotated[int, typer.Option(min=1, help="quotes per second to the server")] = 200,
    rate: Annotated[int, typer.Option(min=1, help="quotes per second to the pipeline")] = 500,
    subscriptions: Annotated[int, typer.Option(min=1, help="subscriptions of the pipeline")] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Publish stock quotes to the subscribers of a server, then match many subscriptions on Spark."""
    console = narrator(as_json=as_json)
    found: dict[str, Any] = {}
    if part is not DemoPart.PIPELINE:
        from lavant.cli.reports.demonstration.service import run_service  # noqa: PLC0415

        console.rule("the service", align="left")
        found["service"] = run_service(console, seconds=seconds, rate=service_rate)
    if part is not DemoPart.SERVICE:
        from lavant.cli.reports.demonstration.pipeline import run_pipeline  # noqa: PLC0415

        console.rule("the pipeline on Spark", align="left")
        found["pipeline"] = run_pipeline(console, subscriptions=subscriptions, seconds=seconds, rate=rate)
    if as_json:
        print_json(found)
