"""PRESS: Table 4.1 of the thesis, and bit vectors against sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.control.balancing.press import Candidates, PressSample, bit_count, pack
from lavant.core.errors import InvalidValue

STOCK, OVER_15, OVER_150, SPORTS = range(4)
"""Candidates of Table 4.1a, by row."""


def table_4_1() -> PressSample:
    """Publications in their order: volumes 0, 10 and 20, racing, volumes 100 and 500."""
    return PressSample.of(
        subscriptions=["stock", "over 15", "over 150", "sports"],
        matches=[
            (0, [STOCK]),
            (1, [STOCK]),
            (2, [STOCK, OVER_15]),
            (3, [SPORTS]),
            (4, [STOCK, OVER_15]),
            (5, [STOCK, OVER_15, OVER_150]),
        ],
        peers={"B2": [0, 4, 5]},
        publications=6,
        input_rate_per_s=3,
    )


def test_the_vectors_are_those_of_table_4_1() -> None:
    sample = table_4_1()
    assert [f"{int(vector[0]):06b}" for vector in sample.vectors] == ["110111", "110100", "100000", "001000"]
    assert f"{int(sample.peers['B2'][0]):06b}" == "110001"


def test_the_rates_are_those_of_table_4_1() -> None:
    sample = table_4_1()
    assert sample.rate_per_s(sample.vectors).tolist() == [2.5, 1.5, 0.5, 0.5]
    assert sample.rate_per_s(sample.vectors & ~sample.peers["B2"]).tolist() == [1.0, 0.5, 0.0, 0.5]


def test_a_moved_subscription_joins_the_covering_set_of_its_broker() -> None:
    sample = table_4_1()
    merged = sample.peers["B2"] | sample.vectors[STOCK]
    assert f"{int(merged[0]):06b}" == "110111"


def test_the_covering_set_grows_when_a_covering_subscription_leaves() -> None:
    candidates = Candidates(table_4_1())
    names = [candidates.sample.subscriptions[rows[0]] for rows in candidates.members]

    def covering() -> list[str]:
        return [name for name, covers in zip(names, candidates.covering(), strict=True) if covers]

    assert covering() == ["stock", "sports"]
    assert candidates.take(0, 1) == ["stock"]
    assert covering() == ["over 15", "sports"]


def test_a_sample_without_publications_has_no_rates() -> None:
    sample = PressSample.of(subscriptions=["a"], matches=[], peers={"B2": []}, publications=0, input_rate_per_s=5.0)
    assert sample.rate_per_s(sample.vectors).tolist() == [0.0]
    assert Candidates(sample).reducible_per_s().tolist() == [0.0]


def test_a_broker_without_subscriptions_has_no_candidates() -> None:
    sample = PressSample.of(subscriptions=[], matches=[], peers={"B2": [0]}, publications=2, input_rate_per_s=1.0)
    assert len(Candidates(sample)) == 0


def test_a_sample_has_a_bound() -> None:
    with pytest.raises(InvalidValue, match="a sample has 0 to 10000 publications, got 10001"):
        PressSample.of(subscriptions=[], matches=[], peers={}, publications=10_001, input_rate_per_s=1.0)


matrices = st.integers(1, 90).flatmap(
    lambda width: st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=1, max_size=12)
)


@given(matrices, st.data())
def test_bit_vectors_agree_with_sets(rows: list[list[bool]], data: st.DataObject) -> None:
    sets = [{number for number, bit in enumerate(row) if bit} for row in rows]
    width = len(rows[0])
    sample = PressSample(
        subscriptions=[str(number) for number in range(len(rows))],
        vectors=pack(np.array(rows)),
        peers={},
        publications=width,
        input_rate_per_s=float(width),
    )
    assert bit_count(sample.vectors).tolist() == [len(each) for each in sets]
    candidates = Candidates(sample)
    left = set(range(len(rows)))
    while left:
        groups = {group: frozenset(sets[rows[0]]) for group, rows in enumerate(candidates.members) if rows}
        for group, bits in groups.items():
            others = [other for number, other in groups.items() if number != group]
            assert candidates.covering()[group] == (not any(bits < other for other in others))
            alone = bits - frozenset().union(*others)
            assert candidates.reducible_per_s()[group] == pytest.approx(len(alone))
        group = data.draw(st.sampled_from(sorted(groups)))
        count = data.draw(st.integers(1, len(candidates.members[group])))
        left -= {int(name) for name in candidates.take(group, count)}
    assert int(candidates.sizes.sum()) == 0


@pytest.mark.parametrize("rate_per_s", [float("nan"), float("inf"), -1.0])
def test_a_sample_has_a_rate_that_can_be(rate_per_s: float) -> None:
    with pytest.raises(
        InvalidValue, match=f"input_rate_per_s of a sample must be a number from 0 on, got {rate_per_s}"
    ):
        PressSample.of(subscriptions=["s"], matches=[(0, [0])], peers={}, publications=1, input_rate_per_s=rate_per_s)
