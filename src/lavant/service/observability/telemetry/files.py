"""Rows in files that roll: a new one every few seconds, the oldest deleted when there are too many.

    telemetry-0001794807119-000007.parquet     seconds since 1970 at the writer's start, and which file it is of that

A file appears under its name when it is whole, so that readers find no half ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lavant.core.errors import InvalidValue
from lavant.core.telemetry import TELEMETRY_SCHEMA

KEEP = 1000
PATTERN = "telemetry-*.parquet"
FORMAT: dict[str, Any] = {
    "compression": "lz4",
    "use_dictionary": [field.name for field in TELEMETRY_SCHEMA if field.type == pa.string()],
    "column_encoding": {"time_us": "DELTA_BINARY_PACKED"},
    "write_statistics": ["time_us"],
    "store_schema": False,
}
"""What costs least: readers look for times, so only they have statistics. Without the writer's schema texts are read
as texts, not as the dictionaries they are written from."""


class TelemetryFiles:
    """`keep` files at most; `start_s` tells the files of one writer from those of the one before."""

    def __init__(self, directory: Path, *, start_s: int, keep: int = KEEP) -> None:
        if keep < 1:
            raise InvalidValue(f"at least one telemetry file is kept, got {keep}")
        self.written = 0
        self._directory = directory
        self._start_s = start_s
        self._keep = keep
        directory.mkdir(parents=True, exist_ok=True)
        for unfinished in directory.glob(".telemetry-*"):
            unfinished.unlink()

    def write(self, rows: pa.Table) -> Path:
        name = f"telemetry-{self._start_s:010d}-{self.written:06d}.parquet"
        path, unfinished = self._directory / name, self._directory / f".{name}"
        try:
            pq.write_table(rows, unfinished, **FORMAT)
            unfinished.rename(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        self.written += 1
        for old in sorted(self._directory.glob(PATTERN))[: -self._keep]:
            old.unlink(missing_ok=True)
        return path
