"""Segments stay few, rebuilding stays cheap, and nothing is lost on the way."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from tests.unit.broker.matching.toy_matcher import ToyFilters, ToyMatcher, numbers

from lavant.broker.matching import segmented
from lavant.broker.matching.segmented import TIER_ROWS, TIER_WIDTH, as_ids
from lavant.core.errors import DuplicateSubscription, InvalidValue, UnknownSubscription


@pytest.fixture(autouse=True)
def nothing_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyMatcher, "rows_built", 0)


def segments_max(subscriptions: int) -> float:
    """Less than a full tier in each tier there can be."""
    return (TIER_WIDTH - 1) * (max(math.log(subscriptions / TIER_ROWS, TIER_WIDTH), 0) + 2)


def matched(matcher: ToyMatcher, *batch: int) -> list[list[int]]:
    matches = matcher.match(np.array(batch, np.int64)).sorted()
    return [matches.of(i).tolist() for i in range(len(batch))]


def add(matcher: ToyMatcher, start: int, count: int) -> None:
    matcher.add(np.arange(start, start + count), ToyFilters(np.arange(start, start + count)))


@pytest.mark.parametrize("step", [1, 3, 64, 65, 300])
def test_segments_stay_logarithmic_in_number(step: int) -> None:
    matcher = ToyMatcher()
    for start in range(0, 6000 if step > 1 else 1500, step):
        add(matcher, start, step)
        assert matcher.statistics().segments <= segments_max(len(matcher))


@pytest.mark.parametrize("large", [100, 300, 1500])
def test_a_small_segment_does_not_keep_larger_ones_from_merging(large: int) -> None:
    matcher = ToyMatcher()
    add(matcher, 0, 1)
    for i in range(40):
        add(matcher, 1 + i * large, large)
        assert matcher.statistics().segments <= segments_max(len(matcher))


def test_additions_of_all_sizes_leave_few_segments() -> None:
    random = np.random.default_rng(5)
    matcher, start = ToyMatcher(), 0
    for size in random.choice([1, 2, 10, 70, 300, 1100], 120):
        add(matcher, start, int(size))
        start += int(size)
        assert matcher.statistics().segments <= segments_max(start)
    assert len(matcher) == start


@pytest.mark.parametrize(("step", "count"), [(1, 3000), (7, 6000), (64, 20_000), (500, 40_000)])
def test_a_subscription_is_rebuilt_a_logarithmic_number_of_times(step: int, count: int) -> None:
    matcher = ToyMatcher()
    for start in range(0, count, step):
        add(matcher, start, step)
    in_lowest_tier = TIER_ROWS / (TIER_WIDTH - 1) / min(step, TIER_ROWS) / 2 + 2
    assert ToyMatcher.rows_built / count <= in_lowest_tier + math.log(count / TIER_ROWS, TIER_WIDTH) + 1


def test_a_segment_with_a_quarter_removed_is_built_anew() -> None:
    matcher = ToyMatcher()
    add(matcher, 0, 100)
    matcher.remove(np.arange(24))
    assert (ToyMatcher.rows_built, matcher.statistics().removed) == (100, 24)
    matcher.remove([99])
    assert (ToyMatcher.rows_built, matcher.statistics().removed) == (175, 0)
    assert matched(matcher, 0, 23, 24, 98, 99) == [[], [], [24], [98], []]


def test_a_segment_with_nothing_left_is_dropped() -> None:
    matcher = ToyMatcher()
    add(matcher, 0, 100)
    matcher.remove(np.arange(100))
    assert (ToyMatcher.rows_built, matcher.statistics().segments, len(matcher)) == (100, 0, 0)
    assert matched(matcher, 5) == [[]]


def test_only_worn_segments_are_built_anew() -> None:
    matcher = ToyMatcher()
    add(matcher, 0, 1000)
    add(matcher, 1000, 20)
    matcher.remove([*range(10), 1000, 1001, 1002, 1003, 1004])
    assert ToyMatcher.rows_built == 1020 + 15
    assert matcher.statistics().removed == 10


def test_removed_subscriptions_do_not_come_back_in_a_merge() -> None:
    matcher = ToyMatcher()
    add(matcher, 0, 50)
    matcher.remove([7])
    for start in (50, 60, 70):
        add(matcher, start, 10)
    assert matcher.statistics().segments == 1
    assert matched(matcher, 6, 7, 8, 75) == [[6], [], [8], [75]]
    matcher.add([7], numbers(75))
    assert matched(matcher, 7, 75) == [[], [7, 75]]


def test_all_rows_of_a_removed_subscription_are_dead() -> None:
    matcher = ToyMatcher()
    matcher.add(range(20), numbers(*[3] * 20))
    matcher.remove([4, 9])
    (placed,) = matcher._state.segments
    assert placed.dead is not None
    assert int(placed.dead.sum()) == 4
    assert matched(matcher, 3) == [[id for id in range(20) if id not in (4, 9)]]


def test_ids_are_found_after_many_mixed_operations() -> None:
    random = np.random.default_rng(3)
    matcher, expected, next_id = ToyMatcher(), dict[int, int](), 0
    for _ in range(250):
        count = int(random.integers(1, 60))
        ids = random.permutation(np.arange(next_id, next_id + count))
        values = random.integers(0, 50, count)
        matcher.add(ids, ToyFilters(values))
        expected.update(zip(ids.tolist(), values.tolist(), strict=True))
        next_id += count
        if random.random() < 0.6:
            gone = random.choice(sorted(expected), min(len(expected), int(random.integers(1, 80))), replace=False)
            matcher.remove(gone)
            for id in gone.tolist():
                del expected[id]
    assert len(matcher) == len(expected) == matcher.statistics().subscriptions
    assert all((id in matcher) == (id in expected) for id in range(next_id))
    assert matched(matcher, *range(50)) == [sorted(id for id, n in expected.items() if n == v) for v in range(50)]


def test_ids_may_come_in_any_order() -> None:
    matcher = ToyMatcher()
    matcher.add([30, 10, 20], numbers(3, 1, 2))
    assert matched(matcher, 1, 2, 3) == [[10], [20], [30]]


def test_the_callers_array_of_ids_may_be_used_again() -> None:
    matcher, copy = ToyMatcher(), ToyMatcher()
    ids = np.array([1, 2], np.uint32)
    matcher.add(ids, numbers(1, 2))
    ids[:] = 9
    copy.apply(matcher.delta(since=0))
    assert matched(copy, 1, 2) == matched(matcher, 1, 2) == [[1], [2]]


def test_a_refused_change_changes_nothing() -> None:
    matcher = ToyMatcher()
    add(matcher, 0, 10)
    before = matcher._state
    with pytest.raises(DuplicateSubscription, match="subscription 9 exists already; remove it first"):
        matcher.add([20, 9], numbers(1, 2))
    with pytest.raises(DuplicateSubscription, match="subscription 20 occurs twice among the additions"):
        matcher.add([20, 20], numbers(1, 2))
    with pytest.raises(UnknownSubscription, match="no subscription has id 10; nothing was removed"):
        matcher.remove([3, 10])
    with pytest.raises(InvalidValue, match="got 1 ids for 2 filters; give each filter one id"):
        matcher.add([20], numbers(1, 2))
    assert matcher._state is before


def test_changes_of_nothing_are_no_version() -> None:
    matcher = ToyMatcher()
    matcher.add([], numbers())
    matcher.remove([])
    assert (matcher.version, matcher.statistics().segments) == (0, 0)


def test_a_removed_id_cannot_be_removed_twice_but_used_again() -> None:
    matcher = ToyMatcher()
    add(matcher, 0, 10)
    matcher.remove([3, 3])
    with pytest.raises(UnknownSubscription):
        matcher.remove([3])
    matcher.add([3], numbers(5))
    assert matched(matcher, 3, 5) == [[], [3, 5]]


def test_a_snapshot_keeps_what_was_removed(tmp_path: Path) -> None:
    matcher = ToyMatcher()
    add(matcher, 0, 100)
    matcher.remove([7, 8])
    matcher.snapshot(tmp_path)
    copy = ToyMatcher.open(tmp_path)
    assert (copy.version, len(copy), copy.statistics()) == (2, 98, matcher.statistics())
    assert matched(copy, 6, 7, 9) == [[6], [], [9]]
    assert 7 not in copy
    with pytest.raises(UnknownSubscription):
        copy.remove([7])


def test_an_opened_matcher_has_no_deltas_of_before(tmp_path: Path) -> None:
    matcher = ToyMatcher()
    add(matcher, 0, 10)
    matcher.snapshot(tmp_path)
    copy = ToyMatcher.open(tmp_path)
    with pytest.raises(InvalidValue, match="version 0 is not between 1 and 1"):
        copy.delta(since=0)
    add(copy, 10, 1)
    matcher.apply(copy.delta(since=1))
    assert matched(matcher, 10) == [[10]]


def test_the_memory_of_an_empty_matcher_is_nothing() -> None:
    matcher = ToyMatcher()
    assert matcher.statistics().memory_bytes == 0
    add(matcher, 0, 10)
    assert matcher.statistics().memory_bytes > 10 * (4 + 8)


@pytest.mark.parametrize(
    ("subscriptions", "tier"), [(1, 0), (64, 0), (65, 1), (256, 1), (259, 1), (260, 2), (1036, 2), (1040, 3)]
)
def test_four_segments_of_a_tier_make_one_of_a_higher(subscriptions: int, tier: int) -> None:
    assert segmented._tier(subscriptions) == tier


@pytest.mark.parametrize("ids", [[0, 2**32 - 1], np.array([5], np.uint64), np.array([5], np.int8), range(3), []])
def test_ids_within_range_are_taken(ids: list[int]) -> None:
    assert as_ids(ids).dtype == np.uint32
    assert as_ids(ids).tolist() == list(ids)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([-1], "a subscription id lies between 0 and 4294967295, got -1"),
        ([5, 2**32], "a subscription id lies between 0 and 4294967295, got 4294967296"),
        ([1.0], "subscription ids must be a flat array of integers, got float64 of 1 axes"),
        ([True], "must be a flat array of integers, got bool"),
        ([[1]], "must be a flat array of integers, got int64 of 2 axes"),
        (["1"], "must be a flat array of integers, got <U1"),
        (7, "must be a flat array of integers, got int64 of 0 axes"),
    ],
)
def test_what_cannot_be_an_id_is_refused(ids: list[int], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        as_ids(ids)


def test_joined_segments_match_the_same_and_count_as_no_change() -> None:
    matcher = ToyMatcher()
    for start in range(0, 900, 50):
        add(matcher, start, 50)
    matcher.remove(np.arange(100, 110))
    before = matcher.statistics()
    take_effect = matcher.joining()
    assert take_effect is not None
    assert matcher.statistics() == before
    take_effect()
    after = matcher.statistics()
    assert (after.segments, after.removed, after.subscriptions, after.version) == (1, 0, 890, before.version)
    assert matched(matcher, 0, 99, 100, 109, 110, 899, 900) == [[0], [99], [], [], [110], [899], []]
    assert matcher.joining() is None


@pytest.mark.parametrize("is_added", [True, False])
def test_what_changed_while_segments_were_joined_is_not_undone(is_added: bool) -> None:
    matcher = ToyMatcher()
    add(matcher, 0, 300)
    add(matcher, 300, 70)
    take_effect = matcher.joining()
    assert take_effect is not None
    if is_added:
        add(matcher, 1000, 1)
    else:
        matcher.remove([0])
    take_effect()
    assert matched(matcher, 0, 1000) == ([[0], [1000]] if is_added else [[], []])
    assert matcher.statistics().segments > 1


def test_there_is_nothing_to_join_in_one_segment_or_none() -> None:
    matcher = ToyMatcher()
    assert matcher.joining() is None
    add(matcher, 0, 10)
    assert matcher.joining() is None
