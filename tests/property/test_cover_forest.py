"""The forest of covered filters against comparing each filter with all others."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.filters import CoverForest, Filter, covers
from lavant.core.ids import SubscriptionId

TEXTS = [
    *("true", "x > 2", "x > 4", "x < 3", "x >= 2 and x <= 5", "y = 'a'", "y = 'b'", "x > 4 and y = 'a'", "x = 3"),
    *("x > 2 and y = 'a'", "y like 'a%'", "y like '%a'", "x in (1, 6)", "not exists(y)", "x > 3 and x < 2"),
    *("z = 1", "z = 1 and y = 'a'", "z = 1 and y = 'a' and x > 9", "z = 2 or y = 'b'"),
]
FILTERS = [Filter.parse(text) for text in TEXTS]


def largest(filters: dict[SubscriptionId, Filter]) -> set[Filter]:
    """The filters that nothing covers, without those that match nothing."""
    return {
        filter
        for filter in filters.values()
        if filter.conjunctions
        and not any(covers(other, filter) and not covers(filter, other) for other in filters.values())
    }


@given(seed=st.integers(0, 1 << 32))
def test_roots_are_the_filters_that_nothing_covers(seed: int) -> None:
    source = random.Random(seed)
    forest = CoverForest()
    filters: dict[SubscriptionId, Filter] = {}
    told: set[SubscriptionId] = set()
    for number in range(1, 60):
        if filters and source.random() < 0.4:
            id = source.choice(sorted(filters))
            was_root = forest.is_root(id)
            assert was_root is (id in told)
            change = forest.remove(id)
            del filters[id]
            told -= {id}
        else:
            id = SubscriptionId(number)
            filters[id] = source.choice(FILTERS)
            change = forest.add(id, filters[id])
        assert not set(change.uncovered) & told
        assert set(change.covered) <= told
        told = (told | set(change.uncovered)) - set(change.covered)
        assert told == set(forest.roots())
        assert len(told) == len({filters[id] for id in told}), "equal filters are told once"
        assert {filters[id] for id in told} == largest(filters)
        assert len(forest) == len(filters)
