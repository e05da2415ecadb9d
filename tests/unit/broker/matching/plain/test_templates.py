"""Filters by template mean what the same filters mean as texts."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.broker.filters.oracle import write_value
from tests.unit.broker.matching.plain.brute_force import expected, matched, matcher_of

from lavant.broker.matching.plain.templates import OPERATORS, Column, encode_template
from lavant.core.errors import InvalidValue, LimitExceeded

NUMBERS = st.sampled_from([-2.5, -0.0, 0.0, 5e-324, 1.0, math.nextafter(1.0, 2.0), 2.0, 1e300])
STRINGS = st.sampled_from(["", "a", "a\0", "ab", "b", "é", "\U0010ffff"])
ROWS = st.lists(
    st.fixed_dictionaries({}, optional={name: st.one_of(NUMBERS, STRINGS, st.booleans()) for name in "xyz"}),
    min_size=1,
    max_size=6,
)


@st.composite
def templates(draw: st.DrawFn) -> list[Column]:
    count = draw(st.integers(1, 5))
    names = draw(st.lists(st.sampled_from("xyz"), min_size=1, max_size=3, unique=True))
    columns = []
    for name in names:
        operator = draw(st.sampled_from(OPERATORS))
        values: Any = draw(
            st.one_of(
                st.lists(NUMBERS, min_size=count, max_size=count).map(np.array),
                st.lists(STRINGS, min_size=count, max_size=count),
            )
        )
        columns.append(Column(name, operator, values))
    return columns


def texts_of(columns: list[Column]) -> list[str]:
    lines = zip(*(np.asarray(column.values, object) for column in columns), strict=True)
    return [
        " and ".join(f"{c.attribute} {c.operator} {write_value(v)}" for c, v in zip(columns, line, strict=True))
        for line in lines
    ]


@given(templates(), ROWS)
def test_a_template_matches_like_the_texts_of_its_filters(columns: list[Column], rows: list[dict[str, Any]]) -> None:
    assert matched(matcher_of(encode_template(columns)), rows) == expected(texts_of(columns), rows)


def test_integers_are_numbers_too() -> None:
    table = encode_template([Column("x", ">=", np.array([1, 2, 3], np.int8))])
    assert matched(matcher_of(table), [{"x": 2}, {"x": 2.5}]) == [[0, 1], [0, 1]]


@pytest.mark.parametrize(("operator", "value"), [(">", sys.float_info.max), ("<", -sys.float_info.max)])
def test_beyond_the_largest_number_there_is_nothing(operator: str, value: float) -> None:
    table = encode_template([Column("x", operator, np.array([value]))])
    assert matched(matcher_of(table), [{"x": value}, {"x": 0}, {}]) == [[], [], []]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "all columns of a template have the same length and there is at least one"),
        ([Column("x", "=", ["a"]), Column("y", "=", ["a", "b"])], "all columns of a template have the same length"),
        ([Column("x", "!=", ["a"])], "operator '!=' of 'x' is none of =, <, <=, >, >="),
        ([Column("x", "<", ["a"]), Column("x", ">", ["b"])], "a template compares each attribute once"),
        ([Column("x", "=", np.array([1.0, np.nan]))], "the values of 'x' hold NaN or an infinity"),
        ([Column("x", "=", np.array([np.inf]))], "the values of 'x' hold NaN or an infinity"),
        ([Column("x", "=", np.array([2**53 + 1]))], "integers of 'x' are beyond ±2^53"),
        ([Column("x", "=", np.array([-(2**53) - 1]))], "integers of 'x' are beyond ±2^53"),
        ([Column("x", "=", np.array([2**64 - 1], np.uint64))], "integers of 'x' are beyond ±2^53"),
        ([Column("@x", "=", ["a"])], "attribute name '@x' starts with '@'"),
        ([Column("x", "=", ["a", None])], "the values of 'x' hold None"),  # type: ignore[list-item]
        ([Column("x", "=", [1])], "the values of 'x' are neither strings nor an array of numbers"),  # type: ignore[list-item]
        ([Column("x", "=", np.array([True]))], "the values of 'x' are neither strings nor an array of numbers"),
        ([Column("x", "=", ["\ud800"])], "the values of 'x' are neither strings nor an array of numbers"),
    ],
)
def test_a_template_that_cannot_be_is_refused(columns: list[Column], message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        encode_template(columns)
    assert message in str(refused.value)


def test_integers_up_to_two_to_the_53rd_are_kept() -> None:
    assert encode_template([Column("x", "=", np.array([2**53, -(2**53)]))]).low.tolist() == [2.0**53, -(2.0**53)]
    assert issubclass(LimitExceeded, InvalidValue)


def test_no_filters_are_an_empty_table() -> None:
    table = encode_template([Column("x", "=", np.empty(0)), Column("s", "=", [])])
    assert (len(table), table.rows) == (0, 0)
