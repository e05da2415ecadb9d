"""Sweeps on a real Spark: what is computed, what fails, what is kept, and what is said."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from lavant.core.errors import InvalidValue, LavantError, LimitExceeded
from lavant.pipeline.sweep.calls import perform
from lavant.pipeline.sweep.results import ResultStore, parts, read_results
from lavant.pipeline.sweep.runner import SweepProgress, compute_all, run_sweep
from lavant.pipeline.sweep.scenario import Sweep, load_sweep
from lavant.simulation.balancing.micro_figures import PERIOD, run_micro

command = import_module("lavant.cli.planning.sweep")  # the module; the package may offer the function by this name
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

FUNCTIONS = """
import os, sys
from pathlib import Path
import numpy as np

constant = 5

def area(parameters, seed):
    return {"area": parameters["a"] * parameters["b"], "seed_used": str(seed), "even": seed % 2 == 0}

def picky(parameters, seed):
    match parameters["a"]:
        case 1: raise ZeroDivisionError("one is too few")
        case 2: return [1, 2]
        case 3: sys.exit("enough")
        case 4: os._exit(7)
        case 5: return {"a": 1}
        case 6: return {"sizes": [1]}
        case 7: return {"x": "seven"}
        case 8: return {"x": np.float32(0.5), "n": np.int64(3)}
        case _: return {"x": 1}

def once(parameters, seed):
    "Fails unless a file is there, and leaves a line for each call."
    place = Path(parameters["place"])
    with open(place / "calls", "a") as calls:
        calls.write(f"{parameters['a']}\\n")
    if parameters["a"] == 2 and not (place / "repaired").exists():
        raise RuntimeError("broken")
    return {"x": 1.5}
"""


@pytest.fixture
def spark(shared_spark: SparkSession) -> SparkSession:
    return shared_spark


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("functions")
    (directory / "swept_functions.py").write_text(FUNCTIONS)
    return str(directory)


def rows_of(directory: Path, *columns: str) -> list[tuple[Any, ...]]:
    table = read_results(directory)
    return sorted(zip(*(table.column(name).to_pylist() for name in columns), strict=True), key=str)


@pytest.mark.parametrize("name", ["scenario", "runner"])
def test_the_examples_of_the_modules_run(name: str) -> None:
    results = doctest.testmod(import_module(f"lavant.pipeline.sweep.{name}"))
    assert results.attempted > 0
    assert results.failed == 0


# ---- what is computed -----------------------------------------------------------------------------------------------


def test_every_scenario_is_computed_with_a_seed_of_its_own(spark: SparkSession, path: str, tmp_path: Path) -> None:
    sweep = Sweep(
        function="swept_functions:area", fixed={"b": 3}, grid={"a": [1, 2.5], "c": ["x", "y"]}, replications=2
    )
    seen: list[SweepProgress] = []
    progress = run_sweep(spark, sweep, ResultStore(tmp_path, sweep), path=path, report=seen.append)

    assert progress == seen[-1] == SweepProgress(total=8, kept=0, computed=8)
    expected = [(a, 3, c, r, 3 * a) for a in (1.0, 2.5) for c in ("x", "y") for r in (0, 1)]
    assert rows_of(tmp_path, "a", "b", "c", "replication", "area") == sorted(expected, key=str)
    table = read_results(tmp_path)
    assert len(set(table.column("seed").to_pylist())) == 8
    assert [str(seed) for seed in table.column("seed").to_pylist()] == table.column("seed_used").to_pylist()
    assert table.schema.field("even").type == pa.bool_()


def test_calls_are_computed_in_their_order_and_a_failure_is_raised(spark: SparkSession) -> None:
    function = "lavant.simulation.balancing.micro_figures:run_micro"
    variant = PERIOD.variants[0]
    short = msgspec.structs.replace(variant.experiment, duration_s=20, subscribers=20, joins_s=(1, 10))
    parameters = msgspec.structs.replace(variant, experiment=short).parameters_of("shares", None)
    calls = [(parameters, seed) for seed in range(3)]
    wanted = [{name: float(figure) for name, figure in run_micro(parameters, seed).items()} for _, seed in calls]
    assert list(compute_all(spark, function, calls)) == [pytest.approx(each, rel=0, nan_ok=True) for each in wanted]
    with pytest.raises(LavantError, match=r"seed 7 of .* failed: InvalidValue: /none is no Parquet file"):
        list(compute_all(spark, function, [({**parameters, "quotes": "/none"}, 7)]))


def test_a_scenario_that_fails_in_whatever_way_does_not_lose_the_others(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    sweep = Sweep(function="swept_functions:picky", grid={"a": list(range(10))})
    progress = run_sweep(spark, sweep, ResultStore(tmp_path, sweep), path=path)

    assert (progress.computed, progress.failed) == (10, 7)
    errors = {a: error for a, error in rows_of(tmp_path, "a", "error") if error is not None}
    assert sorted(errors) == [1, 2, 3, 4, 5, 6, 7]
    assert errors[1].startswith("ZeroDivisionError: one is too few (picky, line")
    assert "must return a dict of figures, it returned list" in errors[2]
    assert errors[3].startswith("SystemExit: enough")
    assert errors[4].startswith("the worker died:")
    assert "returned 'a', which is a parameter" in errors[5]
    assert "figure 'sizes' is of type list" in errors[6]
    assert "returned 'x' as string, for other tasks as double" in errors[7]
    assert rows_of(tmp_path, "a", "x", "n")[8] == (8, 0.5, 3.0)


def test_what_is_there_is_kept_and_what_failed_is_tried_again(spark: SparkSession, path: str, tmp_path: Path) -> None:
    fixed = {"place": str(tmp_path)}
    first = Sweep(function="swept_functions:once", fixed=dict(fixed), grid={"a": [1, 2]})
    run_sweep(spark, first, ResultStore(tmp_path / "out", first), path=path)
    assert rows_of(tmp_path / "out", "a", "x") == [(1, 1.5), (2, None)]

    (tmp_path / "repaired").touch()
    (tmp_path / "calls").unlink()
    more = Sweep(function="swept_functions:once", fixed=dict(fixed), grid={"a": [3, 2, 1]})
    progress = run_sweep(spark, more, ResultStore(tmp_path / "out", more), path=path)

    assert progress == SweepProgress(total=3, kept=1, computed=2)
    assert sorted((tmp_path / "calls").read_text().split()) == ["2", "3"]
    assert rows_of(tmp_path / "out", "a", "x") == [(1, 1.5), (2, 1.5), (3, 1.5)]

    again = ResultStore(tmp_path / "out", more, fresh=True)
    assert len(read_results(tmp_path / "out")) == 3  # until there is something new
    assert run_sweep(spark, more, again, path=path).computed == 3
    assert len(read_results(tmp_path / "out")) == 3


def test_seeds_do_not_depend_on_the_rest_of_the_grid() -> None:
    small = Sweep(function="f:g", grid={"a": [1, 2]}, seed=5)
    large = Sweep(function="f:g", grid={"a": [0, 1, 2, 3]}, seed=5, replications=3)
    assert {(t.id, t.seed) for t in small.tasks()} <= {(t.id, t.seed) for t in large.tasks()}
    other = Sweep(function="f:g", grid={"a": [1, 2]}, seed=6)
    assert {t.seed for t in small.tasks()}.isdisjoint(t.seed for t in other.tasks())


def test_the_page_shows_the_example() -> None:
    page = (EXAMPLES.parent / "docs" / "sweeps.md").read_text(encoding="utf-8")
    shown = page.split("```toml\n")[1].split("```")[0]
    assert tomllib.loads(shown) == tomllib.loads((EXAMPLES / "sweep.toml").read_text(encoding="utf-8"))


def test_a_task_gives_the_same_on_the_driver() -> None:
    task = next(load_sweep(EXAMPLES / "sweep.toml").tasks())
    first, second = (perform(task, "mmc:queue", str(EXAMPLES)) for _ in range(2))
    assert first.figures == second.figures
    assert first.figures["response_ms"] == pytest.approx(20.0)  # M/M/1: 1 / (100 - 50) s


# ---- what is said ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("function = ", "not TOML"),
        ("[grid]\na = [1]", "missing required field `function`"),
        ('function = "f:g"\nreplicas = 3', "unknown field `replicas`; a sweep has function, fixed, grid"),
        ('function = "f:g"\nreplications = "many"', r"Expected `int`, got `str` - at `\$.replications`"),
        ('function = "f:g"\nreplications = 0', "replications must be positive, got 0"),
        ('function = "f:g"\n[grid]\na = 3', r"Expected `array`, got `int` - at `\$.grid"),
        ('function = "f:g"\n[grid]\na = []', "grid list 'a' is empty"),
        ('function = "f:g"\n[grid]\na = [1, "x"]', "grid list 'a' mixes types"),
        ('function = "f:g"\n[grid]\na = [1, 1]', "grid list 'a' has a value twice"),
        ('function = "f:g"\n[grid]\na = [nan]', "parameter 'a' is nan; use a finite number"),
        ('function = "f:g"\n[grid]\nseed = [1]', "a parameter cannot be called 'seed'"),
        ('function = "f:g"\n[fixed]\na = 1\n[grid]\na = [1]', r"'a' is in \[fixed\] and in \[grid\]"),
        ('function = "f:g"\n[fixed]\na = 1979-05-27', "Expected `bool | int | float | str`"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "odd.toml"
    file.write_text(text)
    with pytest.raises(InvalidValue, match=f"odd.toml: .*{message}"):
        load_sweep(file)


def test_a_grid_has_a_bound(tmp_path: Path) -> None:
    file = tmp_path / "large.toml"
    file.write_text(f'function = "f:g"\nreplications = 11\n[grid]\na = {list(range(100))}\nb = {list(range(100))}')
    with pytest.raises(LimitExceeded, match=r"110000 tasks .100 a × 100 b × 11 replications., at most 100000"):
        load_sweep(file)


def invoke(*arguments: object) -> Result:
    app = typer.Typer()
    app.command()(command.sweep)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("swept_functions", "must be of the form 'package.module:function', got 'swept_functions'"),
        ("no_such_module:f", "cannot import 'no_such_module'"),
        ("swept_functions:aera", "has no 'aera'; functions there: Path, area, once, picky"),
        ("swept_functions:constant", "has a value that is no function as 'constant'"),
    ],
)
def test_an_unknown_function_is_refused_before_spark_starts(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, message: str
) -> None:
    monkeypatch.setattr("lavant.pipeline.session.spark_session", None)
    file = tmp_path / "sweep.toml"
    file.write_text(f'function = "{function}"')
    result = invoke(file, "--output", tmp_path / "out", "--path", path)
    assert result.exit_code == command.EXIT_UNUSABLE
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_results_of_another_function_are_not_mixed_in(tmp_path: Path) -> None:
    task = next(load_sweep(EXAMPLES / "sweep.toml").tasks())
    mine = Sweep(function="mmc:queue", fixed=dict(task.parameters))
    ResultStore(tmp_path, mine).append([perform(task, "mmc:queue", str(EXAMPLES))])
    with pytest.raises(InvalidValue, match="holds results of 'mmc:queue', not of 'f:g'; choose another output"):
        ResultStore(tmp_path, Sweep(function="f:g"))
    with pytest.raises(InvalidValue, match="holds 'servers' as int64, this sweep has it as string"):
        ResultStore(tmp_path, Sweep(function="mmc:queue", fixed={"servers": "two"}))


def test_the_exit_code_is_the_number_of_failures(
    spark: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_running = SimpleNamespace(sparkContext=spark.sparkContext, stop=lambda: None)
    monkeypatch.setattr("lavant.pipeline.session.spark_session", lambda *arguments, **settings: kept_running)
    file = tmp_path / "sweep.toml"
    file.write_text('function = "swept_functions:picky"\n[grid]\na = [1, 2, 9]')
    result = invoke(file, "--output", tmp_path / "out", "--path", path)
    assert result.exit_code == 2
    assert "3 scenarios: 3 computed, 0 kept from before, 2 failed" in result.stdout
    assert "ZeroDivisionError: one is too few" in result.stderr


def test_the_example_runs_as_documented_and_needs_no_spark_the_second_time(tmp_path: Path) -> None:
    text = (EXAMPLES / "sweep.toml").read_text().replace("customers = 20_000", "customers = 10")
    (tmp_path / "small.toml").write_text(text)
    program = "import typer; from lavant.cli.planning.sweep import sweep; typer.run(sweep)"
    arguments = ["small.toml", "--path", str(EXAMPLES), "--output", "results", "--master"]

    def run(master: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, *arguments, master],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    first = run("local[2]")
    assert first.returncode == 0, first.stderr
    assert "240 scenarios: 240 computed, 0 kept from before, 0 failed" in first.stdout
    assert len(read_results(tmp_path / "results")) == 240
    before = parts(tmp_path / "results")

    second = run("spark://127.0.0.1:1")  # where nobody is
    assert second.returncode == 0, second.stderr
    assert "240 scenarios: 0 computed, 240 kept from before" in second.stdout
    assert parts(tmp_path / "results") == before
