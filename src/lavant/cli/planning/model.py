"""`lavant model`: fit models to telemetry."""

from __future__ import annotations

import tomllib
from typing import Annotated

import typer

from lavant.cli.common import AsJson, CaFile, Key, print_json
from lavant.core.errors import InvalidValue

model = typer.Typer(help="Fit models to telemetry.", no_args_is_help=True)


@model.callback()
def group() -> None:
    """Fit models to telemetry."""


@model.command("fit")
def fit(
    telemetry: Annotated[
        str,
        typer.Argument(
            metavar="TELEMETRY", help="directory of telemetry files (Parquet), or the address of a running server"
        ),
    ],
    rates_per: Annotated[str, typer.Option(help="time unit of the rates: second, minute or hour")] = "second",
    window_s: Annotated[
        int,
        typer.Option(
            min=1, max=3000, help="length of the windows within which variability is estimated; a server has its own"
        ),
    ] = 600,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Print a system file for `lavant plan` with the rates, variabilities and routes seen in telemetry."""
    from lavant.cli.reports.telemetry import fitted_text, history  # noqa: PLC0415
    from lavant.control.allocation.system.toml_file import SECONDS  # noqa: PLC0415

    if rates_per not in SECONDS:
        raise InvalidValue(f"--rates-per {rates_per!r} is none of {', '.join(SECONDS)}")
    text = fitted_text(history(telemetry, key, ca_file, window_s=window_s), rates_per=rates_per)
    if as_json:
        print_json(tomllib.loads(text))
    else:
        print(text, end="")
