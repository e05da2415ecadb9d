"""Rows into groups: the right form, few groups, and no two keys taken for one."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.broker.matching.plain.brute_force import Row, assert_index_agrees, expected, matched, matcher_of

from lavant.broker.matching.plain import groups as grouping
from lavant.broker.matching.plain.encoder import encode_filters
from lavant.broker.matching.plain.extras import ExtraConstraints
from lavant.broker.matching.plain.groups import (
    ALL,
    AT_LEAST,
    AT_MOST,
    GROUP_ROWS_MIN,
    GROUPS_FEW,
    GROUPS_MAX,
    LITERAL,
    MIXED,
    LiteralKeys,
    RowGroup,
    choose_literals,
    key_values,
    mix,
)
from lavant.broker.matching.plain.literals import build_literals
from lavant.broker.matching.plain.strings import StringTable
from lavant.broker.matching.plain.table import ConstraintKind, FilterTable

# Two sets of dimensions whose hashes, sums of mixed numbers, are the same 64 bits (found by a generalised birthday
# search): nobody meets them by chance, but whoever picks attribute names on purpose might.
TWIN_KEYS = (
    (0, 142, 837, 951, 1111, 1421, 1767, 1986),
    (2303, 2356, 2646, 2894, 3189, 3367, 3722, 3926),
)


def literal_keys(table: FilterTable) -> LiteralKeys:
    return choose_literals(table, build_literals(table))


def group_rows(table: FilterTable) -> list[RowGroup]:
    return grouping.group_rows(table, literal_keys(table))


def forms(*texts: str) -> list[tuple[int, tuple[int, ...], int]]:
    return [(group.form, group.key, group.bound_dimension) for group in group_rows(encode_filters(texts))]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("a = 1", (ALL, (0,), -1)),
        ("true", (ALL, (), -1)),
        ("exists(a)", (ALL, (0,), -1)),
        ("a > 1", (AT_LEAST, (), 0)),
        ("a >= 'x'", (AT_LEAST, (), 0)),
        ("a <= 1", (AT_MOST, (), 0)),
        ("a = 1 and b > 1", (AT_LEAST, (0,), 1)),
        ("a = 1 and b < 1 and c = 'x'", (AT_MOST, (0, 2), 1)),
        ("a between 1 and 2", (MIXED, (), -1)),
        ("a > 1 and b > 1", (MIXED, (), -1)),
        ("a = 1 and b != 1", (MIXED, (0,), -1)),
        ("a != 1", (MIXED, (), -1)),
        ("a like '%x'", (ALL, (LITERAL,), -1)),
        ("a like '%x%' and b > 1", (AT_LEAST, (LITERAL,), 1)),
        ("a like '%x' and b = 1", (ALL, (LITERAL, 1), -1)),
        ("a like '%x' and b like '%y%'", (MIXED, (LITERAL,), -1)),
        ("a like 'w%' and a like '%x'", (MIXED, (LITERAL,), -1)),
        ("a >= 'x' and a like '%y'", (MIXED, (LITERAL,), -1)),
        ("not a like '%x'", (MIXED, (), -1)),
        ("a in (true, false)", (MIXED, (), -1)),
    ],
)
def test_a_row_has_the_form_of_what_its_equalities_leave(text: str, form: tuple[int, tuple[int, ...], int]) -> None:
    assert forms(text) == [form]


def test_one_position_between_two_strings_is_many_strings() -> None:
    """What lies between 'a' and 'b' is a single position here, but a pattern tells its strings apart."""
    texts = ["s > 'a' and s < 'b' and s like '%x'", "s > 'a' and s < 'b'"]
    assert forms(*texts) == [(ALL, (0,), -1), (MIXED, (LITERAL,), -1)]
    assert_index_agrees(texts, [{"s": text} for text in ("a", "ax", "ay", "b", "bx", "x")])


def test_every_row_is_in_one_group_and_groups_are_ordered_by_form() -> None:
    texts = ["a = 1", "a > 1", "a < 1", "a != 1", "b = 1", "a = 1 and b = 2", "b = 2 and a = 1", "b = 1 and a > 3"] * 3
    groups = group_rows(encode_filters(texts))
    assert sorted(int(row) for group in groups for row in group.rows) == list(range(len(texts)))
    assert [group.form for group in groups] == sorted(group.form for group in groups)
    assert len(groups) == 7


def test_key_values_stand_in_the_order_of_the_dimensions() -> None:
    table = encode_filters(["a = 1 and b = 2", "b = 4 and a = 3"])
    (group,) = group_rows(table)
    assert key_values(table, literal_keys(table), group).tolist() == [[1.0, 2.0], [3.0, 4.0]]


def table_of_keys(*keys: tuple[int, ...]) -> FilterTable:
    """A filter for each key: each of its dimensions equals its own number."""
    dimension = np.array([d for key in keys for d in key], np.uint16)
    return FilterTable(
        len(keys),
        tuple((f"a{d}", ConstraintKind.NUMBER) for d in range(4096)),
        StringTable.of([]),
        np.arange(len(keys), dtype=np.uint32),
        np.cumsum([0, *map(len, keys)]).astype(np.uint32),
        dimension,
        dimension.astype(np.float64),
        dimension.astype(np.float64),
        ExtraConstraints.none(),
    )


def test_two_keys_with_one_hash_are_told_apart() -> None:
    hashes = [sum(int(mix(np.uint64(d + 0x9E3779B97F4A7C15))) for d in key) % 2**64 for key in TWIN_KEYS]
    assert hashes[0] == hashes[1]
    order = (TWIN_KEYS[0], TWIN_KEYS[1], TWIN_KEYS[0], TWIN_KEYS[1])
    table = table_of_keys(*order)
    groups = group_rows(table)
    assert sorted(int(row) for group in groups for row in group.rows) == [0, 1, 2, 3]
    for group in groups:
        assert all(set(group.key) <= set(order[row]) for row in group.rows)
    rows = [{f"a{d}": d for d in key} for key in TWIN_KEYS]
    almost = [{name: value for name, value in row.items() if name not in ("a951", "a3189")} for row in rows]
    assert matched(matcher_of(table), [*rows, {**rows[0], **rows[1]}, *almost]) == [
        [0, 2],
        [1, 3],
        [0, 1, 2, 3],
        [],
        [],
    ]


def small_groups(count: int, rows: int) -> list[str]:
    return [f"a{i} = {r % 3} and b = {r}" for i in range(count) for r in range(rows)]


def keyed(groups: list[RowGroup]) -> list[tuple[int, ...]]:
    return [group.key for group in groups]


def test_few_groups_may_be_small() -> None:
    groups = group_rows(encode_filters(small_groups(GROUPS_FEW, 1)))
    assert len(groups) == GROUPS_FEW
    assert {group.form for group in groups} == {ALL}


def test_among_many_groups_the_small_ones_share_one_key() -> None:
    groups = group_rows(encode_filters(small_groups(GROUPS_FEW + 1, GROUP_ROWS_MIN - 1)))
    assert len(groups) == 1
    table = encode_filters(small_groups(GROUPS_FEW + 1, GROUP_ROWS_MIN - 1))
    assert (groups[0].form, keyed(groups)) == (MIXED, [(table.dimensions.index(("b", ConstraintKind.NUMBER)),)])


def test_among_many_groups_the_large_ones_keep_their_form() -> None:
    groups = group_rows(encode_filters(small_groups(GROUPS_FEW + 1, GROUP_ROWS_MIN)))
    assert len(groups) == GROUPS_FEW + 1
    assert {group.form for group in groups} == {ALL}


def test_there_is_a_bound_on_large_groups_too() -> None:
    groups = group_rows(encode_filters(small_groups(GROUPS_MAX + 6, GROUP_ROWS_MIN)))
    assert len(groups) == GROUPS_MAX + 1
    assert [len(group.rows) for group in groups if group.form == MIXED] == [6 * GROUP_ROWS_MIN]


def test_rows_without_an_equality_go_without_a_key() -> None:
    texts = [f"a{i} > {i}" for i in range(GROUPS_FEW + 4)]
    (group,) = group_rows(encode_filters(texts))
    assert (group.form, group.key) == (MIXED, ())


def test_demoted_rows_match_as_before() -> None:
    texts = [
        *small_groups(GROUPS_FEW + 4, 3),
        *(f"a{i} > {i}" for i in range(20)),
        *(f"b = {i} and a{i} <= 2 and c like '%x'" for i in range(20)),
    ]
    rows: list[Row] = [
        {"b": b, f"a{i}": a, "c": "yx"} for b in range(4) for i in range(0, 20, 3) for a in range(0, 21, 4)
    ]
    assert_index_agrees(texts, rows)


def test_rows_of_which_the_key_decides_everything_match_alone_even_when_demoted() -> None:
    """Their bucket is large enough for bitmaps but has nothing to put into them."""
    texts = [f"a{i} = 1" for i in range(GROUPS_MAX + 2) for _ in range(100 if i < GROUPS_MAX else 70)]
    segment = assert_index_agrees(texts, [{"a65": 1}, {"a64": 1}, {"a0": 1}, {"a65": 2}])
    assert MIXED in segment.index.group_form
    assert len(segment.bitmaps.rows) == 0


def test_the_row_that_a_mixed_filter_always_matches_is_found_among_many() -> None:
    texts = ["true"] * 70 + [f"a{i} = 1 and b{i} > {i}" for i in range(GROUPS_MAX + 5) for _ in range(71)]
    matcher = matcher_of(texts)
    assert matched(matcher, [{}, {"a3": 1, "b3": 9}]) == expected(texts, [{}, {"a3": 1, "b3": 9}])


def test_a_table_without_rows_has_no_groups() -> None:
    assert group_rows(encode_filters(["false"])) == []
    assert group_rows(encode_filters([])) == []
