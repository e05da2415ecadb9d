"""Segments: what single precision cannot decide is decided in double, and what is removed stays away."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from lavant.broker.matching.encrypted.kernels import LANES
from lavant.broker.matching.encrypted.matcher import PUBLICATIONS_TOGETHER, EncryptedSegment, unit_vectors
from lavant.broker.matching.encrypted.precision import TOLERANCE
from lavant.broker.matching.encrypted.values import EncryptedBatch, EncryptedFilters
from lavant.core.errors import CorruptSnapshot, InvalidValue

Doubles = NDArray[np.float64]


def found(segment: EncryptedSegment, points: Doubles, dead: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
    """Which publication matches which id, as an array of publications × ids."""
    search = segment.search(EncryptedBatch(points), dead)
    offsets = np.concatenate([[0], np.cumsum(search.counts)])
    out = np.full(offsets[-1], 2**32 - 1, np.uint32)
    cursor = offsets[:-1].copy()
    search.fill(out, cursor)
    assert np.array_equal(cursor, offsets[1:])
    result = np.zeros((len(points), int(segment.row_ids.max()) + 1), np.int64)
    np.add.at(result, (np.repeat(np.arange(len(points)), search.counts), out), 1)
    assert result.max(initial=0) <= 1, "an id is found once"
    return result.astype(np.bool_)


def segment_of(tests: Doubles) -> EncryptedSegment:
    return EncryptedSegment.build(np.arange(len(tests), dtype=np.uint32), EncryptedFilters(tests))


def lowest_relative(tests: Doubles, points: Doubles) -> Doubles:
    """The lowest product relative to the lengths, in extended precision: publications × rows."""
    wide_tests, wide_points = tests.astype(np.longdouble), points.astype(np.longdouble)
    products = np.einsum("rti,pi->prt", wide_tests, wide_points)
    lengths = np.linalg.norm(tests, axis=2)[None] * np.linalg.norm(points, axis=1)[:, None, None]
    return np.asarray((products / lengths).min(axis=2), np.float64)


def close_calls(seed: int, dimensions: int, nearness: float) -> tuple[Doubles, Doubles]:
    """Tests whose first vector is within `nearness` of a right angle to one of the points, the others hold."""
    random = np.random.default_rng(seed)
    matrix = random.normal(size=(dimensions, dimensions))
    points = random.uniform(0.5, 1.0, (40, dimensions))
    tests = random.uniform(0.5, 1.0, (2000, 4, dimensions))
    aim = points[np.arange(2000) % 40]
    first = random.normal(size=(2000, dimensions))
    first -= (np.sum(first * aim, axis=1) / np.sum(aim * aim, axis=1))[:, None] * aim
    tilt = random.uniform(-nearness, nearness, (2000, 1)) * np.linalg.norm(first, axis=1, keepdims=True)
    tests[:, 2] = first + tilt * aim / np.linalg.norm(aim, axis=1, keepdims=True)
    return tests @ np.linalg.inv(matrix).T, points @ matrix


@pytest.mark.parametrize("dimensions", [3, 5, 6, 7, 9, 17])
@pytest.mark.parametrize("nearness", [1e-6, 1e-7, 1e-9])
def test_close_calls_that_single_precision_gets_wrong_are_decided_rightly(dimensions: int, nearness: float) -> None:
    tests, points = close_calls(dimensions, dimensions, nearness)
    relative = lowest_relative(tests, points)
    clear = np.abs(relative) > 2 * TOLERANCE
    right = relative > 0
    single = np.einsum("rti,pi->prt", unit_vectors(tests), unit_vectors(points)).min(axis=2) >= 0
    assert (single & ~right & clear).any(), "without the double path there would be false matches"
    assert (~single & right & clear).any(), "and lost ones"
    segment = segment_of(tests)
    assert np.array_equal(found(segment, points)[clear], right[clear])
    assert segment.search(EncryptedBatch(points), None).decided_in_double > 100


def test_what_lies_exactly_on_a_bound_matches() -> None:
    tests, points = close_calls(1, 5, 0.0)
    relative = lowest_relative(tests, points)
    on_bound = np.abs(relative) < TOLERANCE / 2
    assert on_bound.sum() >= 1000
    assert found(segment_of(tests), points)[on_bound].all()


@pytest.mark.parametrize("rows", [1, LANES - 1, LANES, LANES + 1, 3 * LANES + 7])
def test_padding_never_matches(rows: int) -> None:
    assert found(segment_of(np.ones((rows, 2, 3))), np.ones((5, 3))).sum() == 5 * rows


@pytest.mark.parametrize("publications", [0, 1, 5, PUBLICATIONS_TOGETHER, PUBLICATIONS_TOGETHER + 1, 700])
def test_batches_of_any_length_are_searched_in_tiles(publications: int) -> None:
    random = np.random.default_rng(publications)
    tests, points = random.normal(size=(333, 3, 4)), random.normal(size=(publications, 4))
    expected = np.einsum("rti,pi->prt", tests, points).min(axis=2) >= 0
    assert np.array_equal(found(segment_of(tests), points), expected)


def test_where_everything_matches_everything_is_found() -> None:
    assert found(segment_of(np.ones((3000, 2, 3))), np.ones((300, 3))).all()


def test_dead_rows_do_not_match() -> None:
    dead = np.zeros(1000, np.bool_)
    dead[[0, 127, 128, 999]] = True
    assert np.array_equal(found(segment_of(np.ones((1000, 2, 3))), np.ones((4, 3)), dead)[2], ~dead)


def test_ids_need_not_be_row_numbers() -> None:
    ids = np.array([7, 3, 900], np.uint32)
    segment = EncryptedSegment.build(ids, EncryptedFilters(np.array([[[1.0, 0.0]], [[-1.0, 0.0]], [[1.0, 1.0]]])))
    assert np.flatnonzero(found(segment, np.ones((1, 2)))[0]).tolist() == [7, 900]


def test_vectors_of_extreme_length_are_matched_as_any_other() -> None:
    tests, points = close_calls(3, 5, 1e-3)
    expected = found(segment_of(tests), points)
    assert np.array_equal(found(segment_of(tests * 1e90), points * 1e-90), expected)
    assert np.array_equal(found(segment_of(tests * 1e-90), points * 1e-90), expected)


def test_arrays_in_odd_layouts_are_matched_as_any_other() -> None:
    tests, points = close_calls(3, 5, 1e-3)
    expected = found(segment_of(tests), points)
    assert np.array_equal(found(segment_of(np.asfortranarray(tests)), np.asfortranarray(points)), expected)
    assert np.array_equal(found(segment_of(np.repeat(tests, 2, axis=0)[::2]), points[::-1][::-1]), expected)


def test_publications_of_another_dimension_are_refused() -> None:
    with pytest.raises(InvalidValue, match="publications of 4 dimensions cannot match filters of 3"):
        segment_of(np.ones((10, 2, 3))).search(EncryptedBatch(np.ones((1, 4))), None)


def test_blocks_that_do_not_fit_their_filters_are_corrupt() -> None:
    segment = segment_of(np.ones((10, 2, 3)))
    arrays = segment.to_arrays()[1]
    with pytest.raises(CorruptSnapshot, match=r"blocks of shape \(1, 2, 3, 128\) for 200 encrypted filters"):
        EncryptedSegment.from_arrays({**arrays, "ids": np.arange(200, dtype=np.uint32)})
    with pytest.raises(CorruptSnapshot, match=r"filters of shape \(10, 2, 4\), the blocks are of \(10, 2, 3\)"):
        EncryptedSegment.from_arrays(arrays).with_filters(EncryptedFilters(np.ones((10, 2, 4))))
