"""The kernels against NumPy: every code path, every number of dimensions, and the error that the guard band allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lavant.broker.matching.encrypted import kernels
from lavant.broker.matching.encrypted.matcher import _Room, pack, unit_vectors
from lavant.broker.matching.encrypted.precision import TOLERANCE, guard
from lavant.broker.matching.encrypted.values import DIMENSIONS_MAX, EncryptedFilters
from lavant.core.kernels.kernels import frozen

LANES = kernels.LANES


def survey_all(tests: NDArray[np.float64], points: NDArray[np.float64], band: float) -> Any:
    """Candidates as an array publications × rows of the lowest product, NaN where there is none."""
    blocks = frozen(pack(EncryptedFilters(tests)))
    room = _Room(len(points))
    lowest = np.full((len(points), len(blocks) * LANES), np.nan, np.float32)
    block, rounds = 0, 0
    while block < len(blocks):
        block, found = kernels.survey(
            blocks, block, unit_vectors(points), (0,) * points.shape[1], np.float32(band),
            room.lowest, room.flags, room.flags_by_eight, room.publication, room.row, room.product,
        )  # fmt: skip
        lowest[room.publication[:found], room.row[:found]] = room.product[:found]
        rounds += 1
    return lowest[:, : len(tests)], rounds


@pytest.mark.parametrize("dimensions", range(2, DIMENSIONS_MAX + 1))
@pytest.mark.parametrize("publications", [1, 4, 7])
def test_the_lowest_product_errs_by_less_than_the_guard_band(dimensions: int, publications: int) -> None:
    random = np.random.default_rng(dimensions)
    tests = random.normal(size=(300, 2 * dimensions - 2, dimensions)) * 10.0 ** random.uniform(-9, 9, (300, 1, 1))
    points = random.normal(size=(publications, dimensions))
    lowest, _ = survey_all(tests, points, 3.0)  # a band so wide that all are candidates
    units = tests / np.linalg.norm(tests, axis=2, keepdims=True)
    exact = np.einsum("rti,pi->prt", units, points / np.linalg.norm(points, axis=1, keepdims=True)).min(axis=2)
    error = np.abs(lowest - exact)
    assert error.max() <= guard(dimensions)
    assert error.max() > guard(dimensions) / 100, "a band much wider than the error would hide that it is needed"


def test_candidates_are_those_above_minus_the_band() -> None:
    random = np.random.default_rng(5)
    tests, points = random.normal(size=(1000, 4, 5)), random.normal(size=(9, 5))
    everything, _ = survey_all(tests, points, 3.0)
    some, _ = survey_all(tests, points, 0.25)
    assert np.array_equal(~np.isnan(some), everything >= np.float32(-0.25))
    assert 0.05 < np.mean(np.isnan(some)) < 0.95


def test_the_search_goes_on_where_its_output_was_full() -> None:
    tests, points = np.ones((5000, 2, 3)), np.ones((20, 3))
    lowest, rounds = survey_all(tests, points, 0.1)
    assert rounds > 10
    assert np.allclose(lowest, 1.0)


@pytest.mark.parametrize(("shift", "expected"), [(0.5, True), (0.0, True), (-0.5, True), (-2.0, False), (-1e6, False)])
def test_in_double_a_test_holds_down_to_minus_the_tolerance(shift: float, expected: bool) -> None:
    point = np.array([3.0, 4.0, 0.0]) * 1e40
    tests = np.array([[1.0, 0.0, 1.0], [4.0, -3.0, 0.0]]) * 1e-30
    tests[1] += shift * TOLERANCE * 5e-30 * point / 5e40
    assert kernels.holds_in_double(tests, point) is expected


def test_every_test_counts_in_double() -> None:
    point = np.array([1.0, 1.0])
    for place in range(4):
        tests = np.ones((4, 2))
        tests[place] = -1.0
        assert not kernels.holds_in_double(tests, point)
