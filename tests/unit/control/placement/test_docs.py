"""What the documentation shows is what happens."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[4] / "docs" / "placement.md"


def test_the_examples_of_the_page_run() -> None:
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted > 3
    assert results.failed == 0


@pytest.mark.parametrize(
    "name", ["control.placement.enforcer", "control.placement.policies.trend", "control.placement.values"]
)
def test_the_examples_of_the_modules_run(name: str) -> None:
    results = doctest.testmod(import_module(f"lavant.{name}"))
    assert results.attempted > 0
    assert results.failed == 0
