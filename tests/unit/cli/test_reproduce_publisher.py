"""`lavant reproduce publisher`, on a small part of its experiments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lavant.cli import commands
from lavant.simulation.publisher import reproduction


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction, "SIZES", {55.0: (14, 15)})
    for seeds in ("STEP_SEEDS", "CONGESTION_SEEDS"):
        monkeypatch.setattr(reproduction, seeds, range(1, 2))


def test_it_prints_what_came_of_each_experiment() -> None:
    result = CliRunner().invoke(commands, ["reproduce", "publisher", "--seeds", "2"])
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[:2] for line in lines if line and line[0] == "55"] == [["55", "15"]]
    for controller, times in (("fixed", 3), ("aimd", 8), ("eager", 8)):  # 5 steps, a slow subscriber twice, a broker
        assert sum(bool(line) and line[0] == controller for line in lines) == times


def test_as_json_it_is_complete_and_the_picture_is_drawn(tmp_path: Path) -> None:
    output = tmp_path / "pictures"
    arguments = ["reproduce", "publisher", "--seeds", "2", "--json", "--output", str(output)]
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["loads"][0]["eager"]["mean_ms"] < 0.85 * found["loads"][0]["best_fixed"]["mean_ms"]
    assert [len(steps) for steps in found["steps"].values()] == [5, 5]
    assert len(found["slow_subscriber"]) == 6
    picture = (output / "publisher.svg").read_text()
    assert picture.startswith("<svg")
    assert picture.count("eager") == 3


def test_progress_is_told_as_often_as_it_was_announced() -> None:
    told: list[str] = []
    reproduction.reproduce(seeds=range(1, 3), report=told.append)
    assert len(told) == reproduction.tasks()
