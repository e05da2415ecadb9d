"""Schemas: grids in integers, and grids that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from lavant.client.encryption import NumericAttribute, Schema
from lavant.client.encryption.schema import Ticks
from lavant.core.errors import InvalidValue, LimitExceeded


@pytest.mark.parametrize(
    ("low", "high", "resolution", "ticks"),
    [
        (0, 1000, 0.01, Ticks(0, 1, 100, 100_000)),
        (-180, 180, 0.5, Ticks(-360, 1, 2, 720)),
        (0.1, 0.7, 0.2, Ticks(1, 2, 10, 3)),
        (0, 1, 1e-9, Ticks(0, 1, 10**9, 10**9)),
        (5, 105, 25, Ticks(5, 25, 1, 4)),
        (-1e6, 1e6, 100.0, Ticks(-1_000_000, 100, 1, 20_000)),
    ],
)
def test_a_grid_is_held_in_integers(low: float, high: float, resolution: float, ticks: Ticks) -> None:
    assert NumericAttribute("x", low, high, resolution).ticks() == ticks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", 0, 1, 0), "resolution .* must be positive, got 0"),
        (("x", 0, 1, -0.1), "resolution .* must be positive"),
        (("x", 1, 1, 0.1), "needs min < max, got 1 and 1"),
        (("x", 2, 1, 0.1), "needs min < max"),
        (("x", 0, 1, 0.3), "not a multiple of the resolution 0.3; set max to 1.2"),
        (("x", 0, float("inf"), 1), "inf"),
        (("x", float("nan"), 1, 1), "nan"),
        (("x", 0, True, 1), "must be a number, got True"),
        (("x", 0, "1", 1), "must be a number, got '1'"),
        (("", 0, 1, 1), "must not be empty"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        NumericAttribute(*arguments)


def test_a_grid_too_fine_to_be_exact_is_refused_with_one_that_would_do() -> None:
    with pytest.raises(LimitExceeded, match=r"2000000000 grid steps, at most 1000000000 .* at least 2e-09"):
        NumericAttribute("x", 0, 2, 1e-9)


def test_a_range_too_far_from_zero_for_its_resolution_is_refused() -> None:
    with pytest.raises(LimitExceeded, match=r"keep their ratio below 2\^50"):
        NumericAttribute("x", 2e15, 2e15 + 2, 1)


def test_a_schema_has_a_bounded_number_of_attributes_each_once() -> None:
    attribute = NumericAttribute("x", 0, 1, 1)
    with pytest.raises(LimitExceeded, match="between 1 and 16 encrypted attributes, got 0"):
        Schema.of()
    with pytest.raises(LimitExceeded, match="got 17"):
        Schema.of(*(NumericAttribute(f"x{i}", 0, 1, 1) for i in range(17)))
    with pytest.raises(InvalidValue, match="'x' occurs twice"):
        Schema.of(attribute, attribute)
