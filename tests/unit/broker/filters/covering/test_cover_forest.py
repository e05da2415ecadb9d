"""How much work the forest of covered filters does."""

from __future__ import annotations

import math

import pytest

from lavant.broker.filters import CoverForest, Filter, covers
from lavant.broker.filters.covering import cover_forest
from lavant.core.ids import SubscriptionId

NESTED = 400


@pytest.mark.parametrize("chains", [1, 4])
def test_removing_nested_filters_from_the_outside_compares_few_of_them(
    monkeypatch: pytest.MonkeyPatch, chains: int
) -> None:
    compared = 0

    def count(outer: Filter, inner: Filter) -> bool:
        nonlocal compared
        compared += 1
        return covers(outer, inner)

    forest = CoverForest()
    everything = SubscriptionId(NESTED)
    forest.add(everything, Filter.parse("true"))
    for number in range(NESTED):
        forest.add(SubscriptionId(number), Filter.parse(f"chain = {number % chains} and volume > {number}"))
    monkeypatch.setattr(cover_forest, "covers", count)
    assert forest.remove(everything).uncovered == tuple(range(chains))
    for number in range(NESTED - chains):
        assert forest.remove(SubscriptionId(number)).uncovered == (number + chains,)
    assert compared < 3 * NESTED * math.log2(NESTED)
