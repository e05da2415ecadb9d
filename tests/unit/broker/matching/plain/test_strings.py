"""Positions of strings follow Python's order of strings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.matching.plain.strings import StringTable, compare_bytes, remap_high, remap_low
from lavant.core.publications.batch import PublicationBatch

TEXT = st.one_of(
    st.text(st.sampled_from("ab\0\x7f\x80éz\ud7ff\ue000\U0010ffff"), max_size=4),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
)
TEXTS = st.lists(TEXT, max_size=12)


def table_of(texts: list[str]) -> StringTable:
    return StringTable.of([text.encode() for text in sorted(set(texts))])


def entries(table: StringTable) -> list[str]:
    return [table.data[a:b].tobytes().decode() for a, b in zip(table.offsets, table.offsets[1:], strict=False)]


def positions(table: StringTable, texts: list[str | None]) -> list[float]:
    column = PublicationBatch.from_dicts([{"s": text} for text in texts]).strings("s")
    assert column is not None
    return [float(position) for position in table.positions(column)]


@given(TEXTS, TEXTS.filter(bool))
def test_positions_follow_the_order_of_strings(known: list[str], asked: list[str]) -> None:
    table, ordered = table_of(known), sorted(set(known))
    texts = [*asked, *known]
    for text, position in zip(texts, positions(table, [*texts]), strict=True):
        below = sum(entry < text for entry in ordered)
        assert position == 2 * below + (text in ordered)


def test_an_absent_string_has_no_position() -> None:
    found = positions(table_of(["IBM", "YHOO"]), ["AIG", None, "IBM", "SPY", "YHOO", None, "ZZ"])
    assert np.array_equal(found, [0, np.nan, 1, 2, 3, np.nan, 4], equal_nan=True)


def test_an_empty_table_has_one_position() -> None:
    assert positions(StringTable.of([]), ["", "x"]) == [0.0, 0.0]


def test_the_empty_string_can_be_an_entry() -> None:
    assert positions(table_of(["", "a"]), ["", "\0", "a"]) == [1.0, 2.0, 3.0]


@given(TEXT, TEXT)
def test_bytes_compare_like_strings(left: str, right: str) -> None:
    a, b = (np.frombuffer(b"?" + text.encode() + b"?", np.uint8) for text in (left, right))
    order = compare_bytes(a, 1, len(a) - 1, b, 1, len(b) - 1)
    assert np.sign(order) == (left > right) - (left < right)


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_a_union_holds_every_entry_once_and_says_where(parts: list[list[str]]) -> None:
    tables = [table_of(part) for part in parts]
    union, maps = StringTable.union(tables)
    assert entries(union) == sorted({text for part in parts for text in part})
    for table, numbers in zip(tables, maps, strict=True):
        assert [entries(union)[n] for n in numbers] == entries(table)


@given(TEXTS.filter(bool), TEXTS, TEXTS.filter(bool))
def test_intervals_hold_the_same_strings_after_a_remap(mine: list[str], other: list[str], asked: list[str]) -> None:
    table = table_of(mine)
    union, (numbers, _) = StringTable.union([table, table_of(other)])
    entry = np.arange(table.entries)
    old, new = positions(table, [*asked]), positions(union, [*asked])
    for low in (2 * entry + 1, 2 * entry + 2):  # at least, above
        remapped = remap_low(low.astype(np.float64), numbers)
        assert [[o >= end for end in low] for o in old] == [[n >= end for end in remapped] for n in new]
    for high in (2 * entry, 2 * entry + 1):  # below, at most
        remapped = remap_high(high.astype(np.float64), numbers)
        assert [[o <= end for end in high] for o in old] == [[n <= end for end in remapped] for n in new]


@given(TEXTS, st.data())
def test_kept_entries_stay_in_order(texts: list[str], data: st.DataObject) -> None:
    table = table_of(texts)
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=table.entries, max_size=table.entries)), np.bool_)
    assert entries(table.keep(chosen)) == [text for text, kept in zip(entries(table), chosen, strict=True) if kept]


@pytest.mark.parametrize("texts", [[], ["a"], ["", "é", "\U0010ffff"]])
def test_a_table_survives_arrow(texts: list[str]) -> None:
    table = table_of(texts)
    assert entries(StringTable.from_arrow(table.to_arrow())) == entries(table)
    if texts:
        assert entries(StringTable.from_arrow(table.to_arrow().slice(1))) == entries(table)[1:]
