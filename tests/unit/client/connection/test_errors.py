"""From refusals to errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.filters import Filter
from lavant.broker.protocol.queues import Refused
from lavant.broker.queues.validation import refusal
from lavant.client.connection.errors import error_of
from lavant.core.errors import FilterSyntaxError, InvalidValue, LavantError


@pytest.mark.parametrize("code", ["NoSuchError", "PartlyRefused", "_point_at", "annotations", ""])
def test_a_refusal_that_names_no_error_of_ours_is_told_nevertheless(code: str) -> None:
    error = error_of(Refused(code, "what was wrong"))
    assert (type(error), str(error)) == (LavantError, f"{code}: what was wrong")


@given(st.text(max_size=200), st.integers(0, 200), st.text(min_size=1, max_size=30))
def test_a_mistake_in_a_filter_looks_here_as_it_did_there(text: str, position: int, problem: str) -> None:
    there = FilterSyntaxError(text, min(position, len(text)), problem)
    here = error_of(refusal(there))
    assert isinstance(here, FilterSyntaxError)
    assert str(here) == str(there)


def test_a_mistake_in_a_filter_says_where_it_is() -> None:
    with pytest.raises(FilterSyntaxError) as raised:
        Filter.parse("price >> 5 and symbol = 'IBM'")
    error = error_of(refusal(raised.value))
    assert isinstance(error, FilterSyntaxError)
    assert (error.text, error.position, error.problem) == (
        raised.value.text,
        raised.value.position,
        raised.value.problem,
    )


def test_a_mistake_without_a_place_is_an_invalid_value() -> None:
    error = error_of(Refused("FilterSyntaxError", "what was wrong"))
    assert (type(error), str(error)) == (InvalidValue, "what was wrong")
