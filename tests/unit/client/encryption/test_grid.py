"""Grids: literals are grid points, and bounds fall between the right two."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest

from lavant.client.encryption import NumericAttribute, Schema
from lavant.client.encryption.ranges import Grid
from lavant.core.errors import InvalidValue


def grid_of(low: float, high: float, resolution: float) -> Grid:
    return Grid(Schema.of(NumericAttribute("price", low, high, resolution)))


def column(*values: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array(values, np.float64).reshape(-1, 1)


def test_a_grid_point_is_the_double_that_its_literal_stands_for() -> None:
    grid = grid_of(-2, 9, 0.001)
    literals = [float(Decimal(k) / 1000) for k in range(-2000, 9001)]
    assert grid.values(column(*range(11_001))).ravel().tolist() == literals
    assert grid.points(column(*literals)).ravel().tolist() == list(range(11_001))


def test_a_value_off_the_grid_goes_to_the_nearest_point() -> None:
    assert grid_of(0, 10, 0.1).points(column(0.04, 0.06, 9.99, 3.3)).ravel().tolist() == [0, 1, 100, 33]


@pytest.mark.parametrize("value", [-0.001, 10.001, math.inf, -math.inf, math.nan])
def test_a_value_out_of_range_is_an_error_that_names_it(value: float) -> None:
    with pytest.raises(InvalidValue, match=rf"price of publication 1 is {value}, outside .*\[0, 10\]; clip it"):
        grid_of(0, 10, 0.1).points(column(5, value))


@pytest.mark.parametrize(
    ("bound", "first"),
    [
        (0.3, 3),
        (math.nextafter(0.3, 1), 4),
        (math.nextafter(0.3, 0), 3),
        (0.25, 3),
        (0.35, 4),
        (0.0, 0),
        (math.nextafter(0.0, 1), 1),
        (-7.0, 0),
        (-math.inf, 0),
        (1.0, 10),
        (math.nextafter(1.0, 2), 11),
        (1e300, 11),
        (math.inf, 11),
    ],
)
def test_a_bound_parts_the_grid_where_the_plaintext_comparison_does(bound: float, first: int) -> None:
    grid = grid_of(0, 1, 0.1)
    assert grid.first_not_below(column(bound)).item() == first
    assert first == sum(k / 10 < bound for k in range(11))


def test_a_bound_that_is_no_number_is_an_error() -> None:
    with pytest.raises(InvalidValue, match="bound of price in filter 1 is nan; use -inf or inf"):
        grid_of(0, 1, 0.1).first_not_below(column(0.5, math.nan))


@pytest.mark.parametrize(("low", "high", "resolution"), [(0, 1, 1e-9), (1e6, 1e6 + 1000, 1e-6), (-3, 4, 7)])
def test_the_finest_grids_part_rightly_too(low: float, high: float, resolution: float) -> None:
    grid = grid_of(low, high, resolution)
    points = np.random.default_rng(1).integers(0, int(grid.steps.item()) + 1, (10_000, 1)).astype(np.float64)
    values = grid.values(points)
    assert np.array_equal(grid.points(values), points)
    assert np.array_equal(grid.first_not_below(values), points)
    assert np.array_equal(grid.first_not_below(np.nextafter(values, np.inf)), points + 1)
