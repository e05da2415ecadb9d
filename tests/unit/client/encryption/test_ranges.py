"""Filters of the language as ranges, and filters that encryption cannot express."""

from __future__ import annotations

import math

import pytest

from lavant.broker.filters import Filter
from lavant.client.encryption import NumericAttribute, Schema
from lavant.client.encryption.ranges import ranges_of
from lavant.core.errors import InvalidValue

SCHEMA = Schema.of(NumericAttribute("price", 0, 1000, 0.01), NumericAttribute("volume", 0, 10_000_000, 1))


def test_a_conjunction_of_ranges_becomes_one_half_open_range_by_attribute() -> None:
    low, high = ranges_of(SCHEMA, [Filter.parse("price >= 10 and price < 20"), Filter.parse("volume > 300000")])
    assert low.tolist() == [[10.0, -math.inf], [-math.inf, math.nextafter(300000.0, math.inf)]]
    assert high.tolist() == [[20.0, math.inf], [math.inf, math.inf]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("price < 10 or volume > 5", "has 2 alternatives; .* each alternative a subscription of its own"),
        ("price != 10", "allows 2 ranges of 'price'; .* each range a subscription of its own"),
        ("price in (10, 20)", "allows 2 ranges of 'price'"),
        ("price = 'ten'", "does not compare 'price' with numbers; an encrypted filter is one conjunction"),
        ("exists(price)", "does not compare 'price' with numbers"),
        ("price < 10 and symbol = 'IBM'", "names attribute 'symbol', .* it has price, volume"),
        ("price < 10 and price > 20", "matches nothing"),
    ],
)
def test_what_cannot_be_expressed_is_refused_with_what_can(text: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        ranges_of(SCHEMA, [Filter.parse(text)])
