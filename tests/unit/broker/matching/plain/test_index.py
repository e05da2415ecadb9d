"""Keys are found again, whatever they hash to."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.broker.matching.plain.brute_force import assert_index_agrees, matcher_of, segment_of

from lavant.broker.matching.plain.encoder import encode_filters
from lavant.broker.matching.plain.groups import ALL, AT_LEAST, AT_MOST, MIXED
from lavant.broker.matching.plain.index import EMPTY, _distinct_lines, _hash_slots, build_index
from lavant.broker.matching.plain.literals import build_literals


def test_equal_lines_have_one_number() -> None:
    lines = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [1.0, 1.0], [2.0, 1.0]])
    distinct, number = _distinct_lines(lines)
    assert np.array_equal(distinct[number], lines)
    assert len(distinct) == 3


def test_lines_without_columns_are_all_equal() -> None:
    distinct, number = _distinct_lines(np.empty((3, 0)))
    assert (len(distinct), number.tolist()) == (1, [0, 0, 0])


@pytest.mark.parametrize("count", [1, 2, 3, 100, 1000])
def test_a_hash_table_is_at_most_half_full_and_holds_every_bucket_once(count: int) -> None:
    slots = _hash_slots(np.arange(2.0 * count).reshape(count, 2))
    assert len(slots) >= 2 * count
    assert sorted(slots[slots != EMPTY].tolist()) == list(range(count))


@pytest.mark.parametrize("count", [1, 2, 3, 17, 500])
def test_every_key_is_found_and_no_other(count: int) -> None:
    texts = [f"a = {i} and s = 'x{i % 7}'" for i in range(count)]
    assert_index_agrees(texts, [{"a": i, "s": f"x{i % 7}"} for i in range(-1, count + 20)])
    assert_index_agrees(texts, [{"a": i, "s": f"x{(i + 1) % 7}"} for i in range(count)])
    assert_index_agrees(texts, [{"a": 1}, {"s": "x1"}, {"a": "1", "s": "x1"}, {"a": True, "s": "x1"}])


def test_rows_of_a_bucket_are_sorted_by_bound() -> None:
    random = np.random.default_rng(1)
    texts = [f"k = {i % 3} and v {operator} {b}" for operator in "<>" for i, b in enumerate(random.permutation(30))]
    index = segment_of(matcher_of(texts)).index
    assert index.group_form.tolist() == [AT_LEAST, AT_MOST]
    for start, end in zip(index.bucket_start, index.bucket_start[1:], strict=False):
        bounds = index.bound[start:end]
        assert (np.diff(bounds) > 0).all()
        assert len(bounds) == 10


def test_rows_of_one_subscription_share_a_number_and_single_rows_have_none() -> None:
    table = encode_filters(["a = 1", "a = 2 or b = 3", "c in (1, 2, 3)", "b > 1"])
    index, *_ = build_index(np.array([10, 11, 12, 13], np.uint32), table, build_literals(table))
    twins = {id: set(index.row_twin[index.row_ids == id].tolist()) for id in (10, 11, 12, 13)}
    assert twins == {10: {-1}, 11: {0}, 12: {1}, 13: {-1}}


def test_checks_hold_what_the_key_does_not_decide() -> None:
    table = encode_filters(["k = 1 and a between 1 and 2 and b != 3"])
    index, checks, *_ = build_index(np.array([5], np.uint32), table, build_literals(table))
    assert index.group_form.tolist() == [MIXED]
    assert [table.dimensions[d][0] for d in checks.dimension] == ["a", "b"]
    assert checks.bounds.tolist() == [[1.0, 2.0], [-np.inf, np.inf]]
    assert checks.extra.tolist() == [-1, 0]


def test_groups_stand_in_the_order_of_their_forms() -> None:
    texts = ["a != 1", "a = 1", "a < 1", "a > 1", "b between 1 and 2", "b = 1"]
    assert segment_of(matcher_of(texts)).index.group_form.tolist() == [AT_LEAST, AT_MOST, ALL, ALL, MIXED]
