"""`lavant model`: fit models to telemetry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from lavant.core.errors import InvalidValue

ROWS_MAX = 50_000_000

model = typer.Typer(help="Fit models to telemetry.", no_args_is_help=True)


@model.callback()
def group() -> None:
    """Fit models to telemetry."""


@model.command("fit")
def fit(
    telemetry: Annotated[Path, typer.Argument(metavar="TELEMETRY_DIR", help="directory of telemetry files (Parquet)")],
    rates_per: Annotated[str, typer.Option(help="time unit of the rates: second, minute or hour")] = "second",
    window_s: Annotated[
        int, typer.Option(min=1, max=3000, help="length of the windows within which variability is estimated")
    ] = 600,
) -> None:
    """Print a system file for `lavant plan` with the rates, variabilities and routes seen in telemetry."""
    from lavant.control.allocation.system.toml_file import SECONDS  # noqa: PLC0415
    from lavant.control.allocation.system.toml_text import system_text  # noqa: PLC0415
    from lavant.core.estimation import EstimationConfig, Estimator  # noqa: PLC0415
    from lavant.models.calibration import fit as fit_network  # noqa: PLC0415

    if rates_per not in SECONDS:
        raise InvalidValue(f"--rates-per {rates_per!r} is none of {', '.join(SECONDS)}")
    estimator = Estimator(EstimationConfig(window_ms=window_s * 1000, topics_overall=False, rows_open_max=ROWS_MAX))
    seen = _Seen()
    rows = 0
    for batch in _batches(telemetry):
        rows += estimator.observe(batch).rows
        seen.note(batch)
    found = fit_network(estimator.close(2**53), seen.first_us, length_s=seen.length_s)
    left_out = (
        f"Left out, because nothing was consumed from them: {', '.join(found.left_out)}.\n" if found.left_out else ""
    )
    remark = (
        f"Fitted to {rows:,} rows of telemetry, {seen.length_s:,.0f} s of it.\n"
        "Routes are in the order in which topics saw a job type first; check it.\n"
        f"{left_out}"
        "Add a [goal] with response_s or budget, and costs and limits where they are not 1 and 1000."
    )
    print(system_text(found.network, rates_per=rates_per, remark=remark), end="")


def _batches(directory: Path) -> Any:
    """Record batches of all Parquet files, by name."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    files = sorted(path for path in directory.rglob("*.parquet") if not path.name.startswith((".", "_")))
    if not files:
        raise InvalidValue(f"no Parquet file in {directory}; give the directory of `lavant serve --telemetry`")
    for path in files:
        try:
            yield from pq.ParquetFile(path).iter_batches()
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidValue(f"{path} cannot be read as Parquet: {error}") from None


class _Seen:
    """First observation of each job type at each topic, and the time span of arrivals."""

    def __init__(self) -> None:
        self.first_us: dict[tuple[str, str], int] = {}
        self._arrivals_us: list[int] = []

    @property
    def length_s(self) -> float:
        return (max(self._arrivals_us) - min(self._arrivals_us)) / 1e6 if self._arrivals_us else 0.0

    def note(self, batch: Any) -> None:
        from lavant.core.telemetry import is_stage  # noqa: PLC0415

        for key, first_us, last_us in _spans(batch, "arrival"):
            self._see(key, first_us)
            if not is_stage(key[1]):
                self._arrivals_us = [min([first_us, *self._arrivals_us]), max([last_us, *self._arrivals_us])]
        for key, first_us, _ in _spans(batch, "service"):
            self._see(key, first_us)

    def _see(self, key: tuple[str, str], time_us: int) -> None:
        self.first_us[key] = min(time_us, self.first_us.get(key, time_us))


def _spans(batch: Any, kind: str) -> Iterator[tuple[tuple[str, str], int, int]]:
    """Start times of the first and last row of a kind, by job type and topic."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    rows = batch.filter(pc.equal(batch.column("kind"), kind))
    began_us = pc.subtract(rows.column("time_us"), pc.fill_null(rows.column("duration_us"), 0))
    keys = {name: rows.column(name).cast(pa.string()) for name in ("job_type", "topic")}
    table = pa.table({**keys, "began_us": began_us})
    for row in table.group_by(["job_type", "topic"]).aggregate([("began_us", "min_max")]).to_pylist():
        span = row["began_us_min_max"]
        yield (row["job_type"], row["topic"]), span["min"], span["max"]
