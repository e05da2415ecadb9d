"""Anybody can send vectors: what is malformed is refused at the door."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lavant.broker.matching.encrypted.values import EncryptedBatch, EncryptedFilters
from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.ids import PublicationId

GOOD_FILTERS = np.ones((3, 4, 3))
GOOD_POINTS = np.ones((3, 3))


def with_vector(array: Any, where: Any, value: float) -> Any:
    changed = array.copy()
    changed[where] = value
    return changed


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, 1e-200, 1e200])
def test_a_vector_without_a_sane_length_is_refused_by_number(value: float) -> None:
    with pytest.raises(InvalidValue, match=r"test vector of encrypted filter 1 is \[.*\]: its length must be finite"):
        EncryptedFilters(with_vector(GOOD_FILTERS, (1, 2), value))
    with pytest.raises(InvalidValue, match=r"point of encrypted publication 2 is \[.*\]; encrypt it|between"):
        EncryptedBatch(with_vector(GOOD_POINTS, 2, value))


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        (np.ones((3, 4)), r"filters × tests × dimensions, got float64 of shape \(3, 4\)"),
        (np.ones((3, 4, 3), np.float32), "must be a float64 array"),
        ([[[1.0, 1.0]]], "got list"),
        (np.ones((3, 0, 3)), "has 0 tests, between 1 and 32"),
        (np.ones((3, 33, 3)), "has 33 tests, between 1 and 32"),
        (np.ones((3, 4, 1)), "between 2 and 17 dimensions .* got 1"),
        (np.ones((3, 4, 18)), "between 2 and 17 dimensions .* got 18"),
    ],
)
def test_filters_of_another_shape_are_refused(tests: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        EncryptedFilters(tests)


@pytest.mark.parametrize("points", [np.ones(3), np.ones((3, 3), np.int64), np.ones((3, 3, 3)), None])
def test_points_of_another_shape_are_refused(points: Any) -> None:
    with pytest.raises(InvalidValue, match="must be a float64 array of publications × dimensions"):
        EncryptedBatch(points)


def test_points_of_too_many_dimensions_are_refused() -> None:
    with pytest.raises(LimitExceeded, match="got 18"):
        EncryptedBatch(np.ones((3, 18)))


def test_a_batch_has_an_id_for_each_point_or_none_at_all() -> None:
    assert EncryptedBatch(GOOD_POINTS, tuple(map(PublicationId, "abc"))).ids == ("a", "b", "c")
    with pytest.raises(InvalidValue, match="got 1 ids for 3 encrypted points"):
        EncryptedBatch(GOOD_POINTS, (PublicationId("a"),))


def test_filters_go_through_arrays_and_come_back() -> None:
    filters = EncryptedFilters(np.random.default_rng(1).normal(size=(5, 4, 3)))
    again = EncryptedFilters.from_arrays(*filters.to_arrays())
    assert again.tests is filters.tests
    assert np.array_equal(
        EncryptedFilters.concatenate([filters, again]).take(np.array([6, 0])).tests, filters.tests[[1, 0]]
    )


def test_arrays_that_hold_no_filters_are_refused() -> None:
    with pytest.raises(InvalidValue, match=r"need the array 'tests', got \['points'\]"):
        EncryptedFilters.from_arrays({}, {"points": GOOD_POINTS})
    with pytest.raises(InvalidValue, match="float64 array"):
        EncryptedFilters.from_arrays({}, {"tests": GOOD_POINTS})
    with pytest.raises(LimitExceeded, match="33 tests"):
        EncryptedFilters.from_arrays({}, {"tests": np.ones((1, 33, 3))})


def test_what_is_printed_is_short() -> None:
    assert repr(EncryptedFilters(GOOD_FILTERS)) == "EncryptedFilters(3 filters of 4 tests in 3 dimensions)"
    assert repr(EncryptedBatch(GOOD_POINTS)) == "EncryptedBatch(3 publications in 3 dimensions)"
