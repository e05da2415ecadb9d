"""`lavant spark size`: what it prints, and when it says no."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from lavant.cli import commands
from lavant.core.errors import InvalidValue


def size(*options: str, rate: str = "50000", executors: str = "100") -> Result:
    load = ["--subscriptions", "1000000", "--rate", rate, "--matches", "500", "--executors", executors]
    return CliRunner().invoke(commands, ["spark", "size", *load, *options])


def test_a_load_that_fits_is_described() -> None:
    result = size("--kind", "equality")
    assert result.exit_code == 0, result.output
    names = [line[:17].strip() for line in result.output.splitlines()]
    assert names[:4] == ["load", "hosts", "cores busy", "batch"]
    assert "1,000,000 subscriptions (equality), 50,000 publications/s, 500 matches each" in result.output
    assert "exhausted first" in names


def test_one_that_does_not_fit_says_how_many_hosts_would_suffice() -> None:
    result = size("--kind", "encrypted", executors="10")
    assert result.exit_code == 1
    last = result.output.splitlines()[-1]
    assert last.startswith("too much for 10 hosts; ")
    needed = last.split("; ")[1].split()[0].replace(",", "")
    assert size("--kind", "encrypted", executors=needed).exit_code == 0


def test_one_that_no_number_of_hosts_can_take_says_so() -> None:
    assert "every host reads every publication" in size(rate="100000000").output


def test_a_storage_that_is_too_slow_is_named() -> None:
    result = size("--kind", "equality", "--storage", "1000000")
    assert result.exit_code == 1
    assert result.output.splitlines()[-1] == "too much for the storage"


def test_json_has_all_figures() -> None:
    found = json.loads(size("--kind", "equality", "--hosts", "7", "--json").output)
    assert found["hosts"] == found["exit_tasks"] == 7
    assert {"batch_s", "delay_s", "shuffle_bytes_per_s", "executor_bytes", "resources"} <= set(found)


def test_more_hosts_than_executors_are_refused() -> None:
    result = size("--hosts", "101")
    assert isinstance(result.exception, InvalidValue)
    assert str(result.exception) == "--hosts must be between 1 and 100 executors, got 101"


@pytest.mark.parametrize("is_shared", [True, False])
def test_results_pass_through_the_driver_if_storage_is_not_shared(is_shared: bool) -> None:
    shared = "--shared" if is_shared else "--not-shared"
    found = json.loads(size("--kind", "equality", "--network", "110000000", shared, "--json").output)
    driver = next(use for use in found["resources"] if use["name"] == "the driver's network")
    assert (driver["used"] / driver["capacity"] < 0.5) == is_shared
