"""`lavant model`: models from what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lavant.core.errors import InvalidValue

ROWS_MAX = 50_000_000

model = typer.Typer(help="Make models of what was measured.", no_args_is_help=True)


@model.callback()
def group() -> None:
    """Make models of what was measured."""


@model.command("fit")
def fit(
    telemetry: Annotated[Path, typer.Argument(metavar="TELEMETRY_DIR", help="directory of telemetry, as Parquet")],
    rates_per: Annotated[str, typer.Option(help="unit of the rates: second, minute, hour")] = "second",
    window_s: Annotated[
        int, typer.Option(min=1, max=3000, help="variabilities are computed within such windows")
    ] = 600,
) -> None:
    """Print the system file of `lavant plan` for what telemetry observed: rates, variabilities, routes."""
    from lavant.control.allocation.system_file import SECONDS  # noqa: PLC0415
    from lavant.control.allocation.system_text import system_text  # noqa: PLC0415
    from lavant.core.estimation import EstimationConfig, Estimator  # noqa: PLC0415
    from lavant.models.fitting import fit as fit_network  # noqa: PLC0415

    if rates_per not in SECONDS:
        raise InvalidValue(f"--rates-per {rates_per!r} is none of {', '.join(SECONDS)}")
    estimator = Estimator(EstimationConfig(window_ms=window_s * 1000, topics_overall=False, rows_open_max=ROWS_MAX))
    seen = _Seen()
    rows = 0
    for batch in _batches(telemetry):
        rows += estimator.observe(batch).rows
        seen.note(batch)
    network = fit_network(estimator.close(2**53), seen.first_us, length_s=seen.length_s)
    remark = (
        f"Fitted to {rows:,} rows of telemetry, {seen.length_s:,.0f} s of it.\n"
        "Routes are in the order in which topics saw a job type first; check it.\n"
        "Add a [goal] with response_s or budget, and costs and limits where they are not 1 and 1000."
    )
    print(system_text(network, rates_per=rates_per, remark=remark), end="")


def _batches(directory: Path) -> Any:
    """Record batches of all Parquet files, by name."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    files = sorted(path for path in directory.rglob("*.parquet") if not path.name.startswith((".", "_")))
    if not files:
        raise InvalidValue(f"there is no Parquet file in {directory}; telemetry is written there by the service")
    for path in files:
        try:
            yield from pq.ParquetFile(path).iter_batches()
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidValue(f"{path} cannot be read as Parquet: {error}") from None


class _Seen:
    """When arrivals were observed: the earliest of each job type at each topic, and the last of all."""

    def __init__(self) -> None:
        self.first_us: dict[tuple[str, str], int] = {}
        self._last_us = 0

    @property
    def length_s(self) -> float:
        return (self._last_us - min(self.first_us.values(), default=0)) / 1e6

    def note(self, batch: Any) -> None:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        arrivals = batch.filter(pc.equal(batch.column("kind"), "arrival")).select(["job_type", "topic", "time_us"])
        by_key = pa.Table.from_batches([arrivals]).group_by(["job_type", "topic"])
        for row in by_key.aggregate([("time_us", "min_max")]).to_pylist():
            key, times = (row["job_type"], row["topic"]), row["time_us_min_max"]
            self.first_us[key] = min(times["min"], self.first_us.get(key, times["min"]))
            self._last_us = max(self._last_us, times["max"])
