"""The encrypted matcher as a whole: beside the conformance suite, what is its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lavant.broker.matching import container
from lavant.broker.matching.encrypted.matcher import EncryptedMatcher
from lavant.broker.matching.encrypted.values import EncryptedBatch, EncryptedFilters
from lavant.core.errors import InvalidValue

RANDOM = np.random.default_rng(11)
TESTS = RANDOM.normal(size=(3000, 3, 4))
POINTS = RANDOM.normal(size=(50, 4))
TRUTH = np.einsum("rti,pi->prt", TESTS, POINTS).min(axis=2) >= 0


def ids(*values: int) -> NDArray[np.uint32]:
    return np.array(values, np.uint32)


def matcher_of(rows: NDArray[np.intp]) -> EncryptedMatcher:
    matcher = EncryptedMatcher()
    for part in np.array_split(rows, 7):
        matcher.add(part.astype(np.uint32), EncryptedFilters(TESTS[part]))
    return matcher


def matrix_of(matcher: EncryptedMatcher) -> NDArray[np.bool_]:
    matches = matcher.match(EncryptedBatch(POINTS))
    result = np.zeros(TRUTH.shape, np.bool_)
    result[np.repeat(np.arange(len(POINTS)), np.diff(matches.offsets)), matches.ids] = True
    assert result.sum() == len(matches.ids)
    return result


def test_additions_in_any_order_and_removals_give_what_brute_force_gives() -> None:
    matcher = matcher_of(RANDOM.permutation(3000))
    assert np.array_equal(matrix_of(matcher), TRUTH)
    gone = RANDOM.permutation(3000)[:500]
    matcher.remove(gone.astype(np.uint32))
    expected = TRUTH.copy()
    expected[:, gone] = False
    assert np.array_equal(matrix_of(matcher), expected)


def test_a_snapshot_opens_to_the_same_matcher_and_holds_the_doubles_once(tmp_path: Path) -> None:
    matcher = matcher_of(np.arange(3000))
    matcher.remove(ids(5, 6, 7))
    before = matrix_of(matcher)
    matcher.snapshot(tmp_path)
    opened = EncryptedMatcher.open(tmp_path)
    assert np.array_equal(matrix_of(opened), before)
    names = [name for file in tmp_path.glob("segment-*") for name in container.map_file(file)[1]]
    assert sum(name.endswith("tests") for name in names) == len(list(tmp_path.glob("segment-*")))


def test_an_opened_matcher_decides_close_calls_in_double_too(tmp_path: Path) -> None:
    tests = np.array([[[1.0, -1.0 + 1e-9]], [[1.0, -1.0 - 1e-9]]])
    matcher = EncryptedMatcher()
    matcher.add(ids(1, 2), EncryptedFilters(tests))
    matcher.snapshot(tmp_path)
    for one in (matcher, EncryptedMatcher.open(tmp_path)):
        assert one.match(EncryptedBatch(np.ones((1, 2)))).ids.tolist() == [1]


def test_a_delta_brings_a_copy_up_to_date() -> None:
    matcher, copy = matcher_of(np.arange(1000)), matcher_of(np.arange(1000))
    version = matcher.version
    matcher.add(np.arange(1000, 1500, dtype=np.uint32), EncryptedFilters(TESTS[1000:1500]))
    matcher.remove(ids(3, 1200))
    copy.apply(matcher.delta(version))
    assert np.array_equal(matrix_of(copy), matrix_of(matcher))


def test_a_delta_with_vectors_that_are_none_is_refused() -> None:
    matcher = matcher_of(np.arange(10))
    version = matcher.version
    poisoned = TESTS[10:20].copy()
    filters = EncryptedFilters(poisoned)
    matcher.add(np.arange(10, 20, dtype=np.uint32), filters)
    poisoned[3, 1] = np.nan
    delta = matcher.delta(version)
    with pytest.raises(InvalidValue, match="test vector of encrypted filter 3"):
        matcher_of(np.arange(10)).apply(delta)


def test_filters_of_another_shape_cannot_join() -> None:
    matcher = matcher_of(np.arange(10))
    with pytest.raises(InvalidValue, match=r"\(3, 5\) cannot join those of \(3, 4\); use one schema and key"):
        matcher.add(ids(100), EncryptedFilters(np.ones((1, 3, 5))))
    with pytest.raises(InvalidValue, match=r"\(2, 4\) cannot join"):
        matcher.add(ids(100), EncryptedFilters(np.ones((1, 2, 4))))
    assert len(matcher) == 10


def test_publications_of_another_dimension_are_refused() -> None:
    with pytest.raises(InvalidValue, match="encrypt both with one key"):
        matcher_of(np.arange(10)).match(EncryptedBatch(np.ones((2, 5))))


def test_a_matcher_without_subscriptions_matches_nothing() -> None:
    assert EncryptedMatcher().match(EncryptedBatch(POINTS)).offsets.tolist() == [0] * 51
    emptied = matcher_of(np.arange(10))
    emptied.remove(np.arange(10, dtype=np.uint32))
    assert len(emptied.match(EncryptedBatch(POINTS)).ids) == 0


def test_several_threads_match_at_once() -> None:
    matcher = matcher_of(np.arange(3000))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: matrix_of(matcher), range(16)))
    assert all(np.array_equal(result, TRUTH) for result in results)
