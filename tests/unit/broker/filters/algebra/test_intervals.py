"""Where the orders of numbers and strings end."""

from __future__ import annotations

import sys

import pytest

from lavant.broker.filters.algebra.intervals import number_successor, prefix_end, union


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        ("Ya", "Yb"),
        ("a\U0010ffff", "b"),
        ("\U0010ffff", None),
        ("", None),
        ("\ud7ff", "\ue000"),  # surrogates in between are not characters
    ],
)
def test_a_prefix_ends_at_the_next_string_that_does_not_have_it(prefix: str, end: str | None) -> None:
    assert prefix_end(prefix) == end


def test_the_successor_of_a_number_is_the_next_double() -> None:
    assert number_successor(0.0) == 5e-324
    assert number_successor(sys.float_info.max) is None
    assert str(number_successor(-5e-324)) == "0.0"


def test_a_union_joins_what_overlaps_or_touches() -> None:
    assert union([(5.0, 6.0), (1.0, 2.0), (2.0, 3.0), (5.5, 5.6)]) == ((1.0, 3.0), (5.0, 6.0))
    assert union([(3.0, None), (None, 1.0), (4.0, 5.0), (None, 0.0)]) == ((None, 1.0), (3.0, None))
