"""`lavant queue compare`, as people call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lavant.cli import commands
from lavant.core.errors import InvalidValue

EXAMPLE = Path(__file__).parents[4] / "examples" / "reliable-queue.toml"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(commands, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_equations_net_and_queue_machine_stand_side_by_side(tmp_path: Path) -> None:
    chart = tmp_path / "compared.svg"
    loads = ("--utilisation", "0.3", "--utilisation", "0.6")
    rows = json.loads(
        run("queue", "compare", str(EXAMPLE), *loads, "--messages", "5000", "--json", "--picture", str(chart))
    )
    assert [row["way"] for row in rows] == ["equations", "Petri net", "queue machine"] * 2
    assert [round(row["utilisation"], 2) for row in rows] == [0.3] * 3 + [0.6] * 3
    for predicted, net, simulated in (rows[:3], rows[3:]):
        for seen in (net, simulated):
            assert predicted["delivery_s"]["mean"] == pytest.approx(seen["delivery_s"]["mean"], rel=0.08)
            assert seen["delivery_s"]["half_width"] > 0
            assert seen["attempts"] == pytest.approx(predicted["attempts"], rel=0.01)
    assert chart.read_text().count("V") >= 4  # a vertical stroke for each interval


def test_a_table_shows_intervals() -> None:
    shown = run("queue", "compare", str(EXAMPLE), "--messages", "1000")
    assert "equations" in shown
    assert " ± " in next(line for line in shown.splitlines() if "queue machine" in line)


def test_every_distribution_is_shown_in_every_way(tmp_path: Path) -> None:
    path = tmp_path / "queue.toml"
    for family, scv in (("gamma", 0.0), ("gamma", 0.5), ("lognormal", 2.0), ("hyperexponential", 2.5)):
        times = f'service_s = 0.1\nservice_scv = {scv}\ndistribution = "{family}"'
        path.write_text(EXAMPLE.read_text().replace("service_s = 0.1", times))
        shown = run("queue", "compare", str(path), "--messages", "1000")
        assert [way in shown for way in ("equations", "Petri net", "queue machine")] == [True] * 3


def test_what_the_net_cannot_show_is_said(tmp_path: Path) -> None:
    path = tmp_path / "queue.toml"
    path.write_text(EXAMPLE.read_text().replace("[queue]", '[queue]\ntimer = "send"\nlink_s = 15.0'))
    shown = run("queue", "compare", str(path), "--messages", "1000")
    assert "without the Petri net: its timers would run out before acknowledgements are back" in shown
    assert "queue machine" in shown


def test_a_load_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidValue, match="a utilisation is between 0 and 1, got 1"):
        run("queue", "compare", str(EXAMPLE), "--utilisation", "1.0")


def test_a_live_run_without_an_interval_is_refused_before_it_starts() -> None:
    with pytest.raises(InvalidValue, match="needs at least 667 messages for its interval, got 100"):
        run("queue", "compare", str(EXAMPLE), "--live", "100")
