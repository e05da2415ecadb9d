"""Estimates over the telemetry of a directory, as a whole: the input of fitted models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lavant.core.errors import InvalidValue
from lavant.core.estimation.estimates import EstimationConfig, WindowEstimate
from lavant.core.estimation.estimator import Estimator
from lavant.core.telemetry import is_stage

ROWS_MAX = 50_000_000
WINDOW_MS = 600_000
CLOSED = 2**53
"""A watermark behind which all windows are closed."""


class FirstSeen(msgspec.Struct, frozen=True):
    """When a job type was first seen at a topic: its first arrival, or the start of its first service."""

    job_type: str
    topic: str
    time_us: int


class TelemetryHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Windows of estimates, and what they cannot say."""

    rows: int
    length_s: float
    """From the first arrival to the last: windows begin and end with the clock, not with the telemetry."""
    estimates: tuple[WindowEstimate, ...]
    first_seen: tuple[FirstSeen, ...]


def read_history(directory: Path, *, window_ms: int = WINDOW_MS, files_max: int | None = None) -> TelemetryHistory:
    """Estimates over all Parquet files below a directory, or the newest `files_max` of them."""
    files = sorted(path for path in directory.rglob("*.parquet") if not path.name.startswith((".", "_")))
    if not files:
        raise InvalidValue(f"no Parquet file in {directory}; give the directory of `lavant serve --telemetry`")
    estimator = Estimator(EstimationConfig(window_ms=window_ms, topics_overall=False, rows_open_max=ROWS_MAX))
    seen = _Seen()
    for path in files if files_max is None else files[-files_max:]:
        for batch in _batches(path):
            estimator.observe(batch)
            seen.note(batch)
    return TelemetryHistory(
        rows=estimator.total.rows,
        length_s=seen.length_s,
        estimates=tuple(estimator.close(CLOSED)),
        first_seen=tuple(FirstSeen(*key, time_us) for key, time_us in sorted(seen.first_us.items())),
    )


def _batches(path: Path) -> Iterator[Any]:
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
    rows = batch.filter(pc.equal(batch.column("kind"), kind))
    began_us = pc.subtract(rows.column("time_us"), pc.fill_null(rows.column("duration_us"), 0))
    keys = {name: rows.column(name).cast(pa.string()) for name in ("job_type", "topic")}
    table = pa.table({**keys, "began_us": began_us})
    for row in table.group_by(["job_type", "topic"]).aggregate([("began_us", "min_max")]).to_pylist():
        span = row["began_us_min_max"]
        yield (row["job_type"], row["topic"]), span["min"], span["max"]
