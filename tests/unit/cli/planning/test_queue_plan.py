"""`lavant queue plan`, as people call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lavant.cli import app, commands
from lavant.core.errors import Infeasible, InvalidValue

EXAMPLE = Path(__file__).parents[4] / "examples" / "reliable-queue.toml"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(commands, ["queue", "plan", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("sys.argv", ["lavant", "queue", "plan", *arguments])
    with pytest.raises(SystemExit) as ended:
        app()
    assert ended.value.code in (InvalidValue.exit_code, Infeasible.exit_code)
    return capsys.readouterr().err


def test_the_example_is_planned() -> None:
    shown = run(str(EXAMPLE))
    assert "target       5 consumers for a p95 of 0.6 s" in shown
    assert "best visibility timeout: 455 ms" in shown
    assert ["senders", "6", "50%"] in [line.split()[:3] for line in shown.splitlines()]


def test_a_target_of_the_command_line_replaces_that_of_the_file() -> None:
    found = json.loads(run(str(EXAMPLE), "--delivery-s", "0.22", "--json"))
    assert found["goal"]["percentile"] is None
    assert found["plan"]["least_consumers"] == 6
    assert found["plan"]["at_least"]["delivery_s"] <= 0.22


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count = 6", "count = 3", "senders are too slow: 3 senders with 0.1 s a message do 30 a second"),
        ("loss = 0.01", "losses = 0.01", "queue has no field 'losses'"),
        ("delivery_s = 0.6", "delivery_s = 0.1", "no number of consumers brings the p95 of the delivery time"),
        ("percentile = 0.95", "percentile = 95", "goal.percentile is 95, expected a number < 1"),
    ],
)
def test_a_wrong_file_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    old: str,
    new: str,
    message: str,
) -> None:
    path = tmp_path / "queue.toml"
    path.write_text(EXAMPLE.read_text().replace(old, new))
    said = refused(str(path), capsys=capsys, monkeypatch=monkeypatch)
    assert message in said
    assert said.count("\n") == 1


def test_options_that_do_not_go_together_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(*arguments: str) -> str:
        return refused(*arguments, capsys=capsys, monkeypatch=monkeypatch)

    assert "give a scenario file, or --from SOURCE" in said()
    assert "belong to --from" in said(str(EXAMPLE), "--loss", "0.1")
    assert "give the name of the queue" in said("--from", "telemetry")
    assert "no Parquet file" in said("--from", "telemetry", "--queue", "q")
    assert "--delivery-s must be above 0, got -1" in said(str(EXAMPLE), "--delivery-s", "-1")
