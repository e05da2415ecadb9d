"""Subscriptions and advertisements that intersect: an index leaves none out, and few others in."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.federation.routes.filter_index import FilterIndex
from lavant.broker.federation.routes.known_filters import KnownFilters
from lavant.broker.filters import Filter, intersects

TERMS = ["a = 1", "a = 1.0", "a = 2", "a = '1'", "a > 1", "a != 1", "a in (1, 2)", "b = 1", "b = true", "b > 0"]
FILTERS = st.lists(st.lists(st.sampled_from(TERMS), min_size=1, max_size=3), min_size=1, max_size=2).map(
    lambda groups: Filter.parse(" or ".join(f"({' and '.join(terms)})" for terms in groups))
)


@given(st.lists(FILTERS, unique=True, max_size=6), FILTERS, st.integers(0, 6))
def test_all_that_intersect_are_found(filters: list[Filter], sought: Filter, ended: int) -> None:
    index = FilterIndex[Filter]()
    for filter in filters:
        index.add(filter, filter)
    for filter in filters[:ended]:
        index.remove(filter)
    left = filters[ended:]
    assert len(index) == len(left)
    assert {each for each in left if intersects(each, sought)} <= set(index.may_intersect(sought)) <= set(left)


@given(st.lists(st.tuples(st.sampled_from("xy"), FILTERS), max_size=8), FILTERS, st.integers(0, 8))
def test_known_filters_are_found_whenever_the_index_is_made(
    added: list[tuple[str, Filter]], sought: Filter, made_after: int
) -> None:
    known = KnownFilters(count(1))
    for place, (source, filter) in enumerate(added):
        if place == made_after:
            known.may_intersect(sought)
        known.add(source, filter)
    found = known.may_intersect(sought)
    assert [each.id for each in found] == sorted({each.id for each in found})
    wanted = {pair for pair in added if intersects(pair[1], sought)}
    assert wanted <= {(each.source, each.filter) for each in found}
    for source, filter in added:
        known.remove(source, filter)
    assert known.may_intersect(sought) == []


def test_of_a_thousand_filters_few_are_candidates() -> None:
    index = FilterIndex[int]()
    for number in range(1000):
        index.add(number, Filter.parse(f"symbol = 's{number}' and price > 0"))
    assert list(index.may_intersect(Filter.parse("symbol = 's7' and price > 5"))) == [7]
    assert list(index.may_intersect(Filter.parse("symbol = 'none'"))) == []
