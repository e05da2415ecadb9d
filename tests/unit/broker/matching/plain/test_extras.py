"""Suffixes, contained parts and sets with holes, against Python's own string tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.filters.algebra.constraints import Pattern, PatternKind
from lavant.broker.matching.plain.extras import ExtraConstraints, extra_holds
from lavant.broker.matching.plain.literals import FoundLiterals, TextBatch, build_literals, find_literals
from lavant.broker.matching.plain.strings import StringTable
from lavant.broker.matching.plain.table import ConstraintKind, FilterTable
from lavant.core.kernels.kernels import kernel

TEXT = st.text(st.sampled_from("abé\0"), max_size=6)
PATTERNS = st.lists(st.builds(Pattern, st.sampled_from(PatternKind), TEXT, st.booleans()), max_size=3)
ENDS = st.integers(0, 9).map(float)
INTERVALS = st.lists(st.tuples(ENDS, ENDS), max_size=3)
ROWS = st.lists(st.tuples(INTERVALS, PATTERNS), min_size=1, max_size=5)


def extras_of(
    rows: list[tuple[list[tuple[float, float]], list[Pattern]]], predicates: list[int] | None = None
) -> ExtraConstraints:
    numbers = list(range(len(rows))) if predicates is None else predicates
    return ExtraConstraints.of(numbers, [intervals for intervals, _ in rows], [patterns for _, patterns in rows])


def holds(extras: ExtraConstraints, number: int, text: str, value: float = 0.0) -> bool:
    """The string stands in the middle of others, as it does in a batch."""
    before, middle, after = b"ab\xc3\xa9", text.encode(), b"aab"
    literals = build_literals(table_with(extras))
    has_patterns = len(literals.root_child) > 0
    texts = TextBatch(
        np.zeros((1, 1), np.int32) if has_patterns else np.empty((0, 1), np.int32),
        np.array([len(before)]),
        np.array([len(before) + len(middle)]),
        np.frombuffer(before + middle + after, np.uint8),
    )
    return bool(_holds(extras, literals.of_pattern, number, value, find_literals(literals, texts)))


@kernel
def _holds(extras: ExtraConstraints, of_pattern: Any, number: int, value: float, found: FoundLiterals) -> bool:
    return extra_holds(extras, of_pattern, number, value, found, 0)


def table_with(extras: ExtraConstraints) -> FilterTable:
    """A filter with a predicate for each number that the extras may name, all on one attribute."""
    count = 64
    ends = np.full(count, np.inf)
    rows = np.zeros(1, np.uint32)
    start = np.array([0, count], np.uint32)
    dimension = np.zeros(count, np.uint16)
    strings = StringTable.of([])
    return FilterTable(1, (("s", ConstraintKind.STRING),), strings, rows, start, dimension, -ends, ends, extras)


def expected(row: tuple[list[tuple[float, float]], list[Pattern]], text: str, value: float) -> bool:
    intervals, patterns = row
    inside = not intervals or any(low <= value <= high for low, high in intervals)
    return inside and all(pattern.holds(text) for pattern in patterns)


@given(ROWS, TEXT, ENDS)
def test_extras_hold_where_their_parts_do(
    rows: list[tuple[list[tuple[float, float]], list[Pattern]]], text: str, value: float
) -> None:
    extras = extras_of(rows)
    for number, row in enumerate(rows):
        assert holds(extras, number, text, value) == expected(row, text, value)


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize(
    ("kind", "literal", "text", "found"),
    [
        (PatternKind.SUFFIX, "", "", True),
        (PatternKind.SUFFIX, "", "ab", True),
        (PatternKind.SUFFIX, "b", "ab", True),
        (PatternKind.SUFFIX, "a", "ab", False),
        (PatternKind.SUFFIX, "ab", "ab", True),
        (PatternKind.SUFFIX, "aab", "ab", False),  # longer than the string, though the byte before would fit
        (PatternKind.SUFFIX, "é", "", False),  # what stands before the string
        (PatternKind.CONTAINS, "", "", True),
        (PatternKind.CONTAINS, "a", "", False),  # what stands after the string
        (PatternKind.CONTAINS, "ba", "ab", False),
        (PatternKind.CONTAINS, "ba", "abab", True),
        (PatternKind.CONTAINS, "b", "ab", True),
        (PatternKind.CONTAINS, "a", "ab", True),
        (PatternKind.CONTAINS, "abab", "ab", False),
        (PatternKind.CONTAINS, "\0", "a\0b", True),
    ],
)
def test_patterns_look_at_their_string_and_nothing_beside_it(
    kind: PatternKind, literal: str, text: str, found: bool, negated: bool
) -> None:
    extras = extras_of([([], [Pattern(kind, literal, negated)])])
    assert holds(extras, 0, text) is (found is not negated)


def test_intervals_are_closed_at_both_ends() -> None:
    extras = extras_of([([(1.0, 2.0), (4.0, 4.0)], [])])
    inside = [value for value in (0.9, 1.0, 1.5, 2.0, 2.1, 3.9, 4.0, 4.1) if holds(extras, 0, "", value)]
    assert inside == [1.0, 1.5, 2.0, 4.0]


def read_back(extras: ExtraConstraints) -> list[tuple[int, list[tuple[float, float]], list[Pattern]]]:
    numbers = range(len(extras.predicate))
    return [(int(extras.predicate[x]), extras.intervals_of(x), extras.patterns_of(x)) for x in numbers]


@given(ROWS)
def test_extras_can_be_read_back(rows: list[tuple[list[tuple[float, float]], list[Pattern]]]) -> None:
    numbers = [2 * number for number in range(len(rows))]
    assert read_back(extras_of(rows, numbers)) == [(n, *row) for n, row in zip(numbers, rows, strict=True)]


@given(ROWS, st.data())
def test_extras_are_taken_with_their_predicates(
    rows: list[tuple[list[tuple[float, float]], list[Pattern]]], data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.integers(0, 2 * len(rows)), max_size=6, unique=True))
    taken = extras_of(rows, [2 * number for number in range(len(rows))]).take(np.array(chosen, np.int64))
    assert read_back(taken) == [
        (place, *rows[predicate // 2])
        for place, predicate in enumerate(chosen)
        if predicate % 2 == 0 and predicate < 2 * len(rows)
    ]


@given(ROWS, ROWS)
def test_joined_extras_keep_their_predicates(
    left: list[tuple[list[tuple[float, float]], list[Pattern]]],
    right: list[tuple[list[tuple[float, float]], list[Pattern]]],
) -> None:
    joined = ExtraConstraints.concatenate([(extras_of(left), 10), (ExtraConstraints.none(), 5), (extras_of(right), 10)])
    assert read_back(joined) == [
        *((number, *row) for number, row in enumerate(left)),
        *((15 + number, *row) for number, row in enumerate(right)),
    ]


def test_no_extras_are_none_of_any_predicate() -> None:
    assert read_back(ExtraConstraints.none().take(np.arange(5))) == []
