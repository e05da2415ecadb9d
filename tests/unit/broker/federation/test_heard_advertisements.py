"""Advertisements of a neighbour: an index finds the same ones as comparing all, with few comparisons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.federation.routes import heard_advertisements
from lavant.broker.federation.routes.heard_advertisements import HeardAdvertisements
from lavant.broker.filters import Filter, intersects

TERMS = ["a = 1", "a = 1.0", "a = 2", "a = '1'", "a > 1", "a != 1", "a in (1, 2)", "b = 1", "b = true", "b > 0"]
FILTERS = st.lists(st.lists(st.sampled_from(TERMS), min_size=1, max_size=3), min_size=1, max_size=2).map(
    lambda groups: Filter.parse(" or ".join(f"({' and '.join(terms)})" for terms in groups))
)


@given(st.lists(FILTERS, unique=True, max_size=6), FILTERS, st.integers(0, 6))
def test_the_index_finds_what_comparing_all_finds(advertised: list[Filter], subscribed: Filter, ended: int) -> None:
    heard = HeardAdvertisements()
    for filter in advertised:
        heard.add(filter)
    for filter in advertised[:ended]:
        heard.remove(filter)
    left = advertised[ended:]
    assert len(heard) == len(left)
    assert heard.intersect(subscribed) == any(intersects(each, subscribed) for each in left)


def test_of_a_thousand_advertisements_few_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def counted(one: Filter, other: Filter) -> bool:
        nonlocal compared
        compared += 1
        return intersects(one, other)

    monkeypatch.setattr(heard_advertisements, "intersects", counted)
    heard = HeardAdvertisements()
    for number in range(1000):
        heard.add(Filter.parse(f"symbol = 's{number}' and price > 0"))
    assert heard.intersect(Filter.parse("symbol = 's7' and price > 5"))
    assert not heard.intersect(Filter.parse("symbol = 'none'"))
    assert compared == 1
