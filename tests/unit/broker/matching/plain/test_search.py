"""The search at its edges: bounds that are met exactly, absent values, several rows, dead rows, many of everything."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.unit.broker.matching.plain.brute_force import (
    Row,
    assert_index_agrees,
    expected,
    matched,
    matcher_of,
    segment_of,
)

from lavant.broker.matching.plain.bitmaps import BLOCK_ROWS, BUCKET_ROWS_MIN
from lavant.broker.matching.plain.mixed_search import CHUNK
from lavant.core.publications.batch import PublicationBatch

NEAR = [3.0, math.nextafter(3.0, 4.0), math.nextafter(3.0, 2.0), 2.0, 4.0, -1e300, 1e300]


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">=", "=", "!="])
def test_bounds_are_exact(operator: str) -> None:
    texts = [f"a {operator} {bound!r}" for bound in [*NEAR, 3.0, 3.0]]
    assert_index_agrees(texts, [{"a": value} for value in NEAR])


@pytest.mark.parametrize("count", [3, BUCKET_ROWS_MIN, BUCKET_ROWS_MIN + 1, 3 * BUCKET_ROWS_MIN])
def test_ranges_are_exact_in_small_and_in_large_buckets(count: int) -> None:
    texts = [f"a between {i} and {i + 2} and b between {i % 5} and {i % 5 + 1}" for i in range(count)]
    rows: list[Row] = [{"a": a, "b": b} for a in (0, 1, 1.5, 2, 3, 4, count + 1, count + 2) for b in (0, 1, 2.5, 5, 6)]
    segment = assert_index_agrees(texts, [*rows, {"a": math.nextafter(2.0, 3.0), "b": math.nextafter(0.0, -1.0)}])
    assert (len(segment.bitmaps.rows) > 0) is (count > BUCKET_ROWS_MIN)


def test_what_is_absent_or_of_another_type_matches_nothing() -> None:
    ranges = [f"a between {i} and {i + 50} and b between {i} and {i + 50}" for i in range(100)]
    texts = [
        "a = 1",
        "a > 0",
        "a < 9",
        "a != 5",
        "a between 0 and 9 and b = 1",
        *ranges,
        "a in (1, 2)",
        "not exists(a)",
    ]
    rows: list[Row] = [
        {"a": 1},
        {"b": 1},
        {},
        {"a": "1"},
        {"a": True, "b": True},
        {"a": 1, "b": 1},
        {"a": 60, "b": "x"},
    ]
    assert_index_agrees(texts, rows)


def test_a_subscription_with_several_matching_rows_is_found_once() -> None:
    texts = ["a = 1 or b = 1", "a in (1, 2) or b > 0 or c between 0 and 1", "a > 0 or a >= 1 and b = 1", "a = 1"]
    matcher = matcher_of(texts)
    rows: list[Row] = [{"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 1}, {"b": 1}, {"a": 1, "b": 1, "c": 1}]
    assert matched(matcher, rows) == expected(texts, rows)
    assert matcher.match(PublicationBatch.from_dicts(rows)).offsets.tolist() == [0, 4, 7, 9, 13]


@pytest.mark.parametrize(
    "texts",
    [
        ["a = 1", "a = 1", "a = 1", "a = 2", "a = 1"],
        ["a > 1", "a > 2", "a > 3", "a > 4", "a > 5"],
        ["a < 7", "a < 8", "a < 9", "a < 8", "a < 9"],
        [f"a between {i} and 9 and b between 0 and 9" for i in range(5)],
        [f"a between {i % 4} and 9 and b between 0 and 9" for i in range(200)],
        [f"a in ({i % 4}, 6) or b = 1" for i in range(40)],
    ],
    ids=["equal", "at least", "at most", "mixed", "bitmaps", "several rows"],
)
def test_the_rows_of_removed_subscriptions_are_dead(texts: list[str]) -> None:
    matcher = matcher_of(texts)
    rows: list[Row] = [{"a": 6, "b": 1}, {"a": 1, "b": 1}, {"a": 2, "b": 1}]
    gone = {1, 30, 31, 77, 150} & set(range(len(texts)))
    matcher.remove(sorted(gone))
    assert segment_of(matcher) is not None
    assert matcher.statistics().removed == len(gone)
    assert matched(matcher, rows) == [[i for i in ids if i not in gone] for ids in expected(texts, rows)]


@pytest.mark.parametrize("publications", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_any_number_of_publications_goes_through_the_bitmaps(publications: int) -> None:
    random = np.random.default_rng(publications)
    texts = [
        " and ".join(f"a{d} between {low} and {low + 6}" for d, low in enumerate(line))
        for line in random.integers(0, 10, (150, 6)).tolist()
    ]
    rows: list[Row] = [
        {f"a{d}": v for d, v in enumerate(line)} for line in random.integers(0, 16, (publications, 6)).tolist()
    ]
    segment = assert_index_agrees(texts, rows)
    assert len(segment.bitmaps.rows) == 1
    assert any(expected(texts, rows)) or publications == 1


@pytest.mark.parametrize("rows", [BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 2 * BLOCK_ROWS + 70])
def test_more_matches_than_there_was_room_for_are_all_kept(rows: int) -> None:
    texts = [f"a between {i} and 5000 and b between 0 and {i + 1}" for i in range(rows)]
    assert_index_agrees(texts, [{"a": 4000, "b": 0}, {"a": 10, "b": 5}, {"a": 4000, "b": 300}])


def test_more_matches_of_small_buckets_than_there_was_room_for_are_all_kept() -> None:
    texts = [f"k = {i % 4} and a between 0 and {i + 5} and b between 0 and 9" for i in range(4 * BUCKET_ROWS_MIN)]
    assert_index_agrees(texts, [{"k": i % 4, "a": 3, "b": 3} for i in range(8)])


def test_publications_of_different_buckets_keep_their_own_matches() -> None:
    texts = [f"k = {i % 5} and a between {i} and {i + 40} and b != {i}" for i in range(600)]
    assert_index_agrees(texts, [{"k": i % 7, "a": 13 * i % 620, "b": 13 * i % 620} for i in range(60)])


def test_patterns_are_checked_in_small_and_in_large_buckets() -> None:
    words = ["", "a", "ab", "ba", "bab", "é", "éa"]
    kinds = ["s like '%{}'", "s like '%{}%'", "not s like '%{}'", "not s like '%{}%'", "s like 'b%' and s like '%{}'"]
    few = [kind.format(word) for kind in kinds for word in words]
    many = [f"{text} and n between {i} and 9" for i in range(9) for text in few]
    rows: list[Row] = [{"s": s, "n": n} for s in ["", "a", "ab", "abab", "bé", "éa", "b"] for n in (0, 2)]
    assert_index_agrees(few, rows)
    assert len(assert_index_agrees(many, [*rows, {"n": 5}, {"s": 5, "n": 5}]).bitmaps.rows) > 0


def test_a_batch_without_publications_has_no_matches() -> None:
    matcher = matcher_of(["a = 1", "a between 1 and 2", "true"])
    assert matcher.match(PublicationBatch.from_dicts([])).offsets.tolist() == [0]


def test_filters_that_name_no_attribute_match_everything_or_nothing() -> None:
    assert_index_agrees(["true", "false", "true"], [{}, {"a": 1}])
