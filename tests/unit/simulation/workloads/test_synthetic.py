"""Ranges are matched as often as was asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lavant.broker.matching import PlainMatcher
from lavant.simulation.workloads.synthetic import PREDICATES_MAX, PREDICATES_MIN, SyntheticWorkload


def deviations(found: int, *, tries: int, probability: float) -> float:
    return (found - tries * probability) / math.sqrt(tries * probability * (1 - probability))


@pytest.mark.parametrize("probability", [0.001, 0.01, 0.1])
def test_a_publication_matches_a_subscription_with_the_wanted_probability(probability: float) -> None:
    """All pairs would not be independent, so each publication is asked about one subscription of its own."""
    count = 4000
    workload = SyntheticWorkload(attributes=20, subscriptions=count, match_probability=probability, seed=2)
    matcher = PlainMatcher()
    matcher.add(np.arange(count), workload.filters())
    found = tries = 0
    for stream in range(3):
        matches = matcher.match(workload.publications(count, stream=stream))
        found += sum(number in matches.of(number) for number in range(count))
        tries += count
    assert abs(deviations(found, tries=tries, probability=probability)) < 4


def test_a_subscription_has_five_to_seven_ranges_on_distinct_attributes() -> None:
    table = SyntheticWorkload(attributes=8, subscriptions=3000, seed=1).filters()
    lengths = np.diff(table.row_start)
    counts = np.bincount(lengths)
    assert set(lengths.tolist()) == set(range(PREDICATES_MIN, PREDICATES_MAX + 1))
    for length in range(PREDICATES_MIN, PREDICATES_MAX + 1):
        assert abs(deviations(int(counts[length]), tries=len(lengths), probability=1 / 3)) < 4
    for start, end in zip(table.row_start, table.row_start[1:], strict=False):
        assert len(set(table.dimension[start:end].tolist())) == end - start


def test_ranges_lie_within_what_publications_have() -> None:
    workload = SyntheticWorkload(attributes=8, subscriptions=500, seed=1)
    table = workload.filters()
    assert (table.low >= 0).all()
    assert (table.high <= 1 + 1e-12).all()
    assert workload.publications(10).attributes == tuple(f"a{i}" for i in range(8))


def test_streams_differ_and_repeat() -> None:
    workload = SyntheticWorkload(attributes=8, subscriptions=5)
    one, other, again = (workload.publications(5, stream=stream).to_dicts() for stream in (0, 1, 0))
    assert one == again
    assert one != other
