"""`lavant reproduce e-streamhub`, on loads of a few minutes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lavant.cli import commands
from lavant.core.errors import InvalidValue
from lavant.simulation.placement import reproduction
from lavant.simulation.placement.load_curves import ramp


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction, "ramp", lambda: ramp(rise_s=150, hold_s=30, rest_s=20))
    monkeypatch.setattr(reproduction, "trading_day", lambda seed: ramp(peak_per_s=40, rise_s=60, hold_s=30, rest_s=20))


def test_it_prints_costs_and_delays_of_each_policy_under_each_load() -> None:
    result = CliRunner().invoke(commands, ["reproduce", "e-streamhub"], env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    for policy in ("threshold", "forecast", "static"):
        assert sum(bool(row) and row[0] == policy for row in rows) == 4
    assert next(row[1:4] for row in rows if row[:1] == ["static"]) == ["15", "to", "15"]


def test_as_json_it_is_complete_and_a_picture_of_each_load_is_drawn(tmp_path: Path) -> None:
    output = tmp_path / "pictures"
    arguments = ["reproduce", "e-streamhub", "--json", "--hosts", "4", "--output", str(output)]
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == 0, result.output
    courses = json.loads(result.stdout)
    assert [course["trial"]["policy"] for course in courses] == 2 * ["threshold", "forecast", "static"]
    for course in courses:
        assert max(interval["hosts"] for interval in course["trial"]["intervals"]) <= 4
    for name in ("e-streamhub-ramp.svg", "e-streamhub-day.svg"):
        assert "CPU of single hosts: forecast" in (output / name).read_text()


def test_a_recorded_day_is_replayed_and_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    times_ms = np.repeat(np.arange(0, 3_600_000, 500), 2)
    pq.write_table(pa.table({"ms": times_ms}), tmp_path / "trades.parquet")
    _, day = reproduction.loads(tmp_path / "trades.parquet", seed=1)
    assert (day.name.startswith("day (recorded"), len(day.curve)) == (True, 180)
    assert day.curve.max() == pytest.approx(190)
    (tmp_path / "other").write_bytes(b"no table")
    with pytest.raises(InvalidValue, match="no Parquet file with a column ms"):
        reproduction.loads(tmp_path / "other", seed=1)
