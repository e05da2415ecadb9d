"""Texts into columns: closed intervals, lists into rows, and what is left to extras."""

from __future__ import annotations

import math
import sys

import pytest
from tests.unit.broker.matching.plain.brute_force import assert_index_agrees

from lavant.broker.filters import Filter
from lavant.broker.matching.plain.encoder import LIST_ROWS_MAX, encode_filters
from lavant.broker.matching.plain.table import ConstraintKind

UP = math.nextafter(5.0, math.inf)
DOWN = math.nextafter(5.0, -math.inf)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("x = 5", (5.0, 5.0)),
        ("x > 5", (UP, math.inf)),
        ("x >= 5", (5.0, math.inf)),
        ("x < 5", (-math.inf, DOWN)),
        ("x <= 5", (-math.inf, 5.0)),
        ("x between 4 and 5", (4.0, 5.0)),
        ("x < 0", (-math.inf, -5e-324)),
        (f"x <= {sys.float_info.max!r}", (-math.inf, math.inf)),
        ("b = true", (1.0, 1.0)),
        ("b = false", (0.0, 0.0)),
        ("b in (true, false)", (0.0, 1.0)),
        ("exists(x)", (1.0, 1.0)),
        ("not exists(x)", (0.0, 0.0)),
        ("s = 'm'", (1.0, 1.0)),
        ("s >= 'm'", (1.0, math.inf)),
        ("s > 'm'", (2.0, math.inf)),
        ("s < 'm'", (-math.inf, 0.0)),
        ("s <= 'm'", (-math.inf, 1.0)),
        ("s like 'm%'", (1.0, 2.0)),
    ],
)
def test_a_predicate_becomes_a_closed_interval(text: str, ends: tuple[float, float]) -> None:
    table = encode_filters([text])
    assert (table.low.tolist(), table.high.tolist()) == ([ends[0]], [ends[1]])
    assert not len(table.extras.predicate)


def test_types_of_one_attribute_are_different_dimensions() -> None:
    table = encode_filters(["x = 1", "x = 'a'", "x = true", "exists(x)", "x = 2"])
    assert table.dimensions == (
        ("x", ConstraintKind.NUMBER),
        ("x", ConstraintKind.STRING),
        ("x", ConstraintKind.BOOLEAN),
        ("x", ConstraintKind.PRESENCE),
    )
    assert table.dimension.tolist() == [0, 1, 2, 3, 0]


@pytest.mark.parametrize("values", [2, LIST_ROWS_MAX, LIST_ROWS_MAX + 1])
@pytest.mark.parametrize("quote", ["", "'"])
def test_a_short_list_becomes_rows_and_a_long_one_a_set(values: int, quote: str) -> None:
    listed = ", ".join(f"{quote}{2 * i}{quote}" for i in range(values))
    table = encode_filters([f"x in ({listed})"])
    short = values <= LIST_ROWS_MAX
    assert table.rows == (values if short else 1)
    assert len(table.extras.predicate) == (0 if short else 1)
    rows = [{"x": str(i) if quote else i} for i in range(2 * values + 1)]
    assert_index_agrees([f"x in ({listed})"], rows)


def test_only_one_of_two_lists_becomes_rows() -> None:
    text = "x in (1, 2, 3) and y in (4, 5)"
    assert encode_filters([text]).rows in (2, 3)
    assert_index_agrees([text], [{"x": x, "y": y} for x in range(5) for y in range(3, 7)])


def test_filters_keep_their_order_and_one_that_never_holds_has_no_row() -> None:
    table = encode_filters(["a = 1 or b = 2", "false", Filter.parse("c = 3"), "true"])
    assert (len(table), table.row_filter.tolist()) == (4, [0, 0, 2, 3])
    assert table.row_start.tolist() == [0, 1, 2, 3, 3]


def test_a_hole_is_left_to_extras_and_the_hull_to_the_interval() -> None:
    table = encode_filters(["x != 5"])
    assert (table.low.tolist(), table.high.tolist()) == ([-math.inf], [math.inf])
    assert table.extras.intervals_of(0) == [(-math.inf, DOWN), (UP, math.inf)]


def test_strings_with_nuls_are_compared_exactly() -> None:
    texts = [
        f"s {operator} '{text}'" for operator in ("=", "<", "<=", ">", ">=", "!=") for text in ("a", "a\0", "", "\0")
    ]
    assert_index_agrees(texts, [{"s": text} for text in ("", "\0", "\0\0", "a", "a\0", "a\0\0", "a\x01", "b")])


def test_zero_has_no_sign() -> None:
    texts = ["x = 0", "x = -0.0", "x >= 0", "x <= -0.0", "x < 0", "x > 0", "x != 0", "x between -0.0 and 0"]
    others = [f"x = {i}" for i in range(1, 60)]  # so that a key of other bits would be looked for in another place
    assert_index_agrees([*texts, *others], [{"x": 0}, {"x": 0.0}, {"x": -0.0}, {"x": 5e-324}, {"x": -5e-324}])
