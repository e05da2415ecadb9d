"""Encrypted publications match where the plain ones lie in the plain ranges."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lavant.broker.matching import EncryptedMatcher
from lavant.simulation.workloads.synthetic import STEPS, EncryptedWorkload


@pytest.mark.parametrize("attributes", [1, 4, 6])
def test_the_matcher_finds_what_the_plain_ranges_hold(attributes: int) -> None:
    workload = EncryptedWorkload(attributes=attributes, subscriptions=700, match_probability=0.03, seed=attributes)
    matcher = EncryptedMatcher()
    matcher.add(np.arange(700), workload.filters())
    matches = matcher.match(workload.publications(60)).sorted()
    low, high = workload.ranges()
    points = np.stack(list(workload.plain_publications(60).values()), axis=1)
    inside = np.all((low <= points[:, None]) & (points[:, None] < high), axis=2)
    assert [matches.of(i).tolist() for i in range(60)] == [np.flatnonzero(inside[i]).tolist() for i in range(60)]
    assert inside.any()


def test_a_range_holds_its_low_end_and_not_its_high_end() -> None:
    workload = EncryptedWorkload(attributes=2, subscriptions=50, match_probability=0.05, seed=9)
    low, high = workload.ranges()
    matcher = EncryptedMatcher()
    matcher.add(np.arange(50), workload.filters())
    one_below, one_less = np.array([1, 0]), np.array([0, 1])
    for corner, own in ((low, True), (high - 1, True), (low - one_below, False), (high - one_less, False)):
        kept = ((corner >= 0) & (corner <= STEPS)).all(axis=1)
        numbers = np.flatnonzero(kept)
        columns = {f"a{i}": corner[kept, i].astype(np.int64) for i in range(2)}
        matches = matcher.match(workload.key.encrypt_publications(columns))
        assert [number in matches.of(i) for i, number in enumerate(numbers)] == [own] * len(numbers)


def test_a_publication_matches_a_subscription_with_the_wanted_probability() -> None:
    workload = EncryptedWorkload(attributes=4, subscriptions=20_000, match_probability=0.01, seed=1)
    low, high = workload.ranges()
    points = np.stack(list(workload.plain_publications(20_000).values()), axis=1)
    found = int(((low <= points) & (points < high)).all(axis=1).sum())
    assert abs(found - 200) < 4 * math.sqrt(20_000 * 0.01 * 0.99)


def test_a_part_of_a_batch_is_that_part() -> None:
    workload = EncryptedWorkload(subscriptions=5)
    batch = workload.publications(10)
    assert np.array_equal(workload.part(batch, 3, 4).points, batch.points[3:7])


def test_streams_differ_and_repeat() -> None:
    workload = EncryptedWorkload(subscriptions=5)
    one, other, again = (workload.plain_publications(5, stream=stream) for stream in (0, 1, 0))
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert not all(np.array_equal(one[name], other[name]) for name in one)
