"""Rolling telemetry files: a new one every few seconds; the oldest are deleted when there are too many.

    telemetry-0001794807119-000007.parquet     Unix time of the writer's start, and the number of the file

A file gets its name when it is complete, so readers never see half of one.
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
"""The cheapest: readers select by time, so only times have statistics. Without the writer's schema, strings are read
as strings, not as the dictionaries they are written from."""


class TelemetryFiles:
    """Keeps at most `keep` files; `start_s` distinguishes the files of one writer from those of the previous."""

    def __init__(self, directory: Path, *, start_s: int, keep: int = KEEP) -> None:
        if keep < 1:
            raise InvalidValue(f"keep must be at least 1 telemetry file, got {keep}")
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
