"""Telemetry files: whole, at most so many, and none of it the service's trouble."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from lavant.broker.machine.state import BrokerState
from lavant.core.errors import InvalidValue
from lavant.core.telemetry import TELEMETRY_SCHEMA, ObservationKind, checked_telemetry
from lavant.service.observability.telemetry import Telemetry, TelemetryFiles
from lavant.service.observability.telemetry.rows import BLOCK_ROWS_MAX, Rows


def _rows(count: int) -> Rows:
    rows = Rows("h1")
    for number in range(count):
        rows.arrival(1_000_000 + number, rows.code("q"), 1)
    return rows


def observe(telemetry: Telemetry, publications: int) -> None:
    """In a loop, from start to stop."""

    async def run() -> None:
        telemetry.start()
        telemetry.events.arrived(publications)
        telemetry.stop()

    asyncio.run(run())


def test_the_oldest_files_go_and_unfinished_ones_too(tmp_path: Path) -> None:
    (tmp_path / ".telemetry-0000000001-000000.parquet").touch()
    (tmp_path / "notes.txt").touch()
    for start_s in (5, 6):
        files = TelemetryFiles(tmp_path, start_s=start_s, keep=3)
        for _ in range(4):
            files.write(_rows(2).take())
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["notes.txt", *(f"telemetry-0000000006-00000{n}.parquet" for n in (1, 2, 3))]
    with pytest.raises(InvalidValue, match="keep must be at least 1"):
        TelemetryFiles(tmp_path, start_s=7, keep=0)


def test_what_was_noted_before_the_end_is_in_files(tmp_path: Path) -> None:
    telemetry = Telemetry(BrokerState().queues, TelemetryFiles(tmp_path, start_s=1))
    observe(telemetry, 3)
    [file] = tmp_path.iterdir()
    table = pq.read_table(file)
    assert table.schema.equals(TELEMETRY_SCHEMA), "texts are texts for whoever reads it"
    [batch] = table.to_batches()
    assert checked_telemetry(batch).column("publications").to_pylist() == [3]
    assert telemetry.stages.counts["access"] == 3


def test_many_rows_stay_in_order_and_keep_what_belongs_together() -> None:
    rows, times_us = Rows("h1"), np.arange(2 * BLOCK_ROWS_MAX + 3)
    topics = np.array([rows.code("even"), rows.code("odd")])[times_us % 2]
    rows.add(ObservationKind.ARRIVAL, times_us, topics, publications=times_us + 1)
    rows.timed(ObservationKind.SERVICE, 7, rows.code("even"), 5)
    assert len(rows) == 2 * BLOCK_ROWS_MAX + 4
    table = rows.take()
    assert len(rows) == 0
    *many, last = table.select(["time_us", "topic", "publications", "duration_us"]).to_pylist()
    assert [row["time_us"] for row in many] == times_us.tolist()
    assert all(row["topic"] == ("odd" if row["time_us"] % 2 else "even") for row in many)
    assert all(row["publications"] == row["time_us"] + 1 and row["duration_us"] is None for row in many)
    assert last == {"time_us": 7, "topic": "even", "publications": 0, "duration_us": 5}


def test_a_disk_that_does_not_write_costs_rows_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "telemetry"
    telemetry = Telemetry(BrokerState().queues, TelemetryFiles(place, start_s=1))
    place.rmdir()
    observe(telemetry, 3)
    assert telemetry.lost_rows == 1
    assert "telemetry cannot be written" in caplog.text
    said = {family.name: family.samples for family in telemetry.families()}
    assert said["lavant_telemetry_lost_rows"] == [({}, 1)]


def test_without_files_there_are_figures_only() -> None:
    telemetry = Telemetry(BrokerState().queues)
    observe(telemetry, 2)
    assert telemetry.stages.counts["access"] == 2


def test_writing_does_not_import_pandas(tmp_path: Path) -> None:
    """Where it is installed, that takes a second, in the middle of service."""
    assert find_spec("pandas") is not None, "else this shows nothing"
    code = f"""
import sys
from pathlib import Path
from lavant.service.observability.telemetry.files import TelemetryFiles
from lavant.service.observability.telemetry.rows import Rows
rows = Rows("host")
rows.arrival(5, rows.code("orders"), 3)
TelemetryFiles(Path({str(tmp_path)!r}), start_s=1).write(rows.take())
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    [row] = pq.read_table(next(tmp_path.iterdir())).to_pylist()
    assert (row["topic"], row["kind"], row["publications"], row["duration_us"]) == ("orders", "arrival", 3, None)
