"""`lavant plan` and `lavant model fit`, as people call them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.models.telemetry import case_study_telemetry
from typer.testing import CliRunner

from lavant.cli import app, commands
from lavant.control.allocation.system.toml_file import SystemFile
from lavant.core.telemetry import telemetry_batch

EXAMPLE = Path(__file__).parents[4] / "examples" / "allocation-case-study.toml"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(commands, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def plan(*arguments: str) -> str:
    return run("plan", str(EXAMPLE), *arguments)


def test_the_case_study_is_planned_as_in_the_paper() -> None:
    shown = plan()
    assert "allocation   A 2, B 2, C 1, D 4" in shown
    assert "cost         9, 5 more than the least" in shown
    assert "response     42.55 s over all jobs; 6.737 requests" in shown
    assert "next bottleneck: topic A, full at 1.29 times this load" in shown
    lines = [line.split() for line in shown.splitlines()]
    assert ["1", "53.4"] in [line[:2] for line in lines]
    assert ["D", "4", "64%"] in [line[:3] for line in lines]


def test_json_has_every_step_with_its_figures() -> None:
    found = json.loads(plan("--json", "--what-if", "budget=6"))
    steps = found["steps"]
    assert ["".join(map(str, step["allocation"].values())) for step in steps] == [
        *("1111", "1112", "1113", "2113", "2114", "2214", "3214")
    ]
    assert [step["wip"] for step in steps[:3]] == [None, None, None]  # infinite
    assert [round(step["wip"], 3) for step in steps[3:]] == [10.343, 8.503, 6.737, 5.969]
    assert [round(step["response_s"], 2) for step in steps[3:]] == [65.32, 53.70, 42.55, 37.70]
    assert [[round(r, 1) for r in step["response_of_job_s"].values()] for step in steps[5:]] == [
        *([53.4, 48.7, 24.5], [46.3, 41.6, 24.5])
    ]
    assert [step["cost"] for step in steps] == [4, 5, 6, 7, 8, 9, 10]
    assert found["allocation"] == {"A": 3, "B": 2, "C": 1, "D": 4}


def test_what_if_shows_the_change_and_what_the_old_allocation_would_do() -> None:
    shown = plan("--what-if", "lambda.1=4", "--what-if", "mu.B=x1.1")
    assert "before the change: A 2, B 2, C 1, D 4, cost 9, 42.55 s; kept, it would take" in shown
    assert "for ever: it is overloaded" in plan("--what-if", "lambda.*=x1.5")


def test_steps_say_why() -> None:
    assert "topic D gets work for 2.55 consumers and has 1: none lacks more" in plan("--steps")


def test_a_goal_may_come_from_the_command_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(EXAMPLE.read_text().partition("[goal]")[0])
    assert "A 2, B 2, C 1, D 4" in run("plan", str(path), "--what-if", "response_s=50")


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    plan("--picture", str(tmp_path / "p.svg"))
    svg = (tmp_path / "p.svg").read_text()
    assert "all jobs" in svg
    assert "target" in svg


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("service_rate = 3.7", "service_rate = -3.7", ":17: service_rate of topic 'B' is -3.7, expected a number > 0"),
        ('["C", "D"]', '["C", "E"]', ":44: job type '3' goes to topic 'E', which is none of A, B, C, D"),
        (
            'route = ["C", "D"]',
            'tasks.x = {topic = "A", after = ["x"]}',
            ":44: tasks of job type '3' have a cycle",
        ),
        ("response_s = 50", "response_s = 20", ":49: the mean response of all jobs cannot be 20 s"),
        ("response_s = 50", "budget = 2", ":49: needs at least 7 consumers: A 2, B 1, C 1, D 3"),
        ("[goal]\nresponse_s = 50", "", "the file has no [goal]"),
    ],
)
def test_bad_input_is_one_line_with_its_place_and_an_exit_code(
    tmp_path: Path, old: str, new: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "s.toml"
    broken.write_text(EXAMPLE.read_text().replace(old, new))
    monkeypatch.setattr("sys.argv", ["lavant", "plan", str(broken)])
    with pytest.raises(SystemExit) as caught:
        app()
    assert caught.value.code == (8 if said.startswith(":49: ") else 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["lavant", "plan", "nowhere.toml"])
    with pytest.raises(SystemExit):
        app()
    assert "cannot read nowhere.toml: No such file or directory" in capsys.readouterr().err


def test_a_fitted_model_can_be_planned_with(tmp_path: Path) -> None:
    rows = case_study_telemetry(hours=8.0, seed=3)
    half = len(rows) // 2
    for name, part in (("b", rows[:half]), ("a", rows[half:])):  # files in no order of time
        batch = telemetry_batch(part)
        pq.write_table(pa.Table.from_batches([batch]), tmp_path / f"{name}.parquet")
    text = run("model", "fit", str(tmp_path), "--rates-per", "minute")
    network = SystemFile(text, name="fitted").system.network
    assert [job.name for job in network.jobs] == ["1", "2", "3"]
    assert network.topics[0].service_rate_per_s * 60 == pytest.approx(4.2, rel=0.05)
    path = tmp_path / "s.toml"
    path.write_text(f"{text}\n[goal]\nresponse_s = 50\n")
    assert "allocation   A 2, B 2, C 1, D 4" in run("plan", str(path))


def test_a_directory_without_telemetry_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["lavant", "model", "fit", str(tmp_path)])
    with pytest.raises(SystemExit):
        app()
    assert "no Parquet file in" in capsys.readouterr().err
