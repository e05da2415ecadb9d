"""Encodes filters as columns, and decodes them again; encodes publications as numbers for the search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.broker.filters import Conjunction, Filter, filter_of
from lavant.broker.filters.algebra.constraints import Absent, Booleans, Constraint, Numbers, Pattern, Present, Strings
from lavant.broker.filters.algebra.intervals import Intervals
from lavant.broker.matching.plain.extras import ExtraConstraints
from lavant.broker.matching.plain.literals import FoundLiterals
from lavant.broker.matching.plain.strings import StringTable
from lavant.broker.matching.plain.table import ConstraintKind, Dimension, FilterTable, check_dimensions
from lavant.broker.matching.plain.templates import TEXTS_OF_SHAPE_MIN, encode_texts


class SearchBatch(NamedTuple):
    """Publications as numbers: values, cells of bitmaps, and the literals in their texts where patterns need them."""

    values: NDArray[np.float64]
    """By publication and dimension: a row's check reads several values of one publication."""
    cells: NDArray[np.uint8]
    """By width of cells, dimension and publication; empty if the segment has no bitmaps."""
    text: NDArray[np.int32]
    """By root and publication, as in `TextBatch`."""
    found: FoundLiterals


LIST_ROWS_MAX = 16
"""A list of at most this many values becomes a row for each; a longer one is tested as a set."""

Ends = tuple[float, float]


def encode_filters(filters: Sequence[Filter | str]) -> FilterTable:
    """A table of the filters, given as filters or texts, in their order."""
    tables, rest = encode_texts(filters) if len(filters) >= TEXTS_OF_SHAPE_MIN else ([], list(range(len(filters))))
    others = _Encoder([filter_of(each) for each in map(filters.__getitem__, rest)])
    if not tables:
        return others.table()
    places = np.concatenate([*(numbers for numbers, _ in tables), np.array(rest, np.int64)])
    return FilterTable.concatenate([*(table for _, table in tables), others.table()]).take(np.argsort(places))


class _Encoder:
    """Collects rows; strings get their sorted positions at the end, when all are known."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        self.count = len(filters)
        self.strings = {text: place for place, text in enumerate(sorted(_strings_of(filters)))}
        self.dimensions: dict[Dimension, int] = {}
        self.row_filter: list[int] = []
        self.row_start: list[int] = [0]
        self.dimension: list[int] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.extra_predicate: list[int] = []
        self.extra_intervals: list[Sequence[Ends]] = []
        self.extra_patterns: list[Sequence[Pattern]] = []
        for number, filter in enumerate(filters):
            for conjunction in filter.conjunctions:
                self._add_conjunction(number, conjunction)

    def table(self) -> FilterTable:
        check_dimensions(len(self.dimensions))
        return FilterTable(
            self.count,
            tuple(self.dimensions),
            StringTable.of([text.encode() for text in self.strings]),
            np.array(self.row_filter, np.uint32),
            np.array(self.row_start, np.uint32),
            np.array(self.dimension, np.uint16),
            np.array(self.low, np.float64),
            np.array(self.high, np.float64),
            ExtraConstraints.of(self.extra_predicate, self.extra_intervals, self.extra_patterns),
        )

    def _add_conjunction(self, number: int, conjunction: Conjunction) -> None:
        predicates = [self._predicate(name, constraint) for name, constraint in conjunction.constraints]
        lists = [place for place, (_, intervals, patterns) in enumerate(predicates) if _is_list(intervals, patterns)]
        if not lists:
            self._add_row(number, predicates)
            return
        # Expand only one list: the rows of two would be all pairs of their values.
        dimension, intervals, patterns = predicates[lists[0]]
        for interval in intervals:
            predicates[lists[0]] = (dimension, [interval], patterns)
            self._add_row(number, predicates)

    def _add_row(self, number: int, predicates: list[tuple[int, list[Ends], tuple[Pattern, ...]]]) -> None:
        for dimension, intervals, patterns in predicates:
            if len(intervals) > 1 or patterns:
                self.extra_predicate.append(len(self.low))
                self.extra_intervals.append(intervals if len(intervals) > 1 else ())
                self.extra_patterns.append(patterns)
            self.dimension.append(dimension)
            self.low.append(intervals[0][0])
            self.high.append(intervals[-1][1])
        self.row_filter.append(number)
        self.row_start.append(len(self.low))

    def _predicate(self, name: str, constraint: Constraint) -> tuple[int, list[Ends], tuple[Pattern, ...]]:
        match constraint:
            case Numbers(intervals):
                return self._code(name, ConstraintKind.NUMBER), _closed_numbers(intervals), ()
            case Strings(intervals, patterns):
                return self._code(name, ConstraintKind.STRING), self._positions(intervals), patterns
            case Booleans(allowed):
                return self._code(name, ConstraintKind.BOOLEAN), [(float(allowed[0]), float(allowed[-1]))], ()
            case Present():
                return self._code(name, ConstraintKind.PRESENCE), [(1.0, 1.0)], ()
            case Absent():
                return self._code(name, ConstraintKind.PRESENCE), [(0.0, 0.0)], ()

    def _code(self, name: str, kind: ConstraintKind) -> int:
        return self.dimensions.setdefault((name, kind), len(self.dimensions))

    def _positions(self, intervals: Intervals[str]) -> list[Ends]:
        ends = []
        for low, high in intervals:
            first = -math.inf if low is None else 2.0 * self.strings[_entry(low)] + (2 if low.endswith("\0") else 1)
            last = math.inf if high is None else 2.0 * self.strings[_entry(high)] + (1 if high.endswith("\0") else 0)
            ends.append((first, last))
        return ends


def _strings_of(filters: Sequence[Filter]) -> set[str]:
    return {
        _entry(end)
        for filter in filters
        for conjunction in filter.conjunctions
        for _, constraint in conjunction.constraints
        if isinstance(constraint, Strings)
        for interval in constraint.intervals
        for end in interval
        if end is not None
    }


def _entry(end: str) -> str:
    """The string that represents an interval's end: s + NUL comes right after s, so s with "above" means the same."""
    return end[:-1] if end.endswith("\0") else end


def _closed_numbers(intervals: Intervals[float]) -> list[Ends]:
    return [
        (-math.inf if low is None else low, math.inf if high is None else math.nextafter(high, -math.inf) + 0.0)
        for low, high in intervals
    ]


def _is_list(intervals: list[Ends], patterns: Iterable[Pattern]) -> bool:
    return 1 < len(intervals) <= LIST_ROWS_MAX and not patterns and all(low == high for low, high in intervals)


def decode_filters(table: FilterTable) -> list[Filter]:
    """The filters of a table, in their order, as equal to those that were encoded as their normal form allows.

    >>> [str(filter) for filter in decode_filters(encode_filters(["b > 1 and a in ('x', 'y')", "not exists(c)"]))]
    ["a in ('x', 'y') and b > 1", 'not exists(c)']
    """
    decoder = _Decoder(table)
    conjunctions: list[list[Conjunction]] = [[] for _ in range(len(table))]
    for row, number in enumerate(table.row_filter.tolist()):
        conjunctions[number].append(decoder.conjunction(row))
    return [Filter.of(each) for each in conjunctions]


class _Decoder:
    def __init__(self, table: FilterTable) -> None:
        self.dimensions = table.dimensions
        self.row_start = table.row_start.tolist()
        self.dimension = table.dimension.tolist()
        self.low, self.high = table.low.tolist(), table.high.tolist()
        self.strings = [text.decode() for text in table.strings.to_arrow().to_pylist()]
        self.extras = table.extras
        self.extra_of = {predicate: extra for extra, predicate in enumerate(table.extras.predicate.tolist())}

    def conjunction(self, row: int) -> Conjunction:
        constraints = [self._constraint(place) for place in range(self.row_start[row], self.row_start[row + 1])]
        return Conjunction(tuple(sorted(constraints)))

    def _constraint(self, place: int) -> tuple[str, Constraint]:
        name, kind = self.dimensions[self.dimension[place]]
        ends = [(self.low[place], self.high[place])]
        patterns: tuple[Pattern, ...] = ()
        extra = self.extra_of.get(place)
        if extra is not None:
            ends = self.extras.intervals_of(extra) or ends
            patterns = tuple(self.extras.patterns_of(extra))
        match kind:
            case ConstraintKind.NUMBER:
                return name, Numbers(tuple(map(_half_open, ends)))
            case ConstraintKind.STRING:
                return name, Strings(tuple(map(self._strings_between, ends)), patterns)
            case ConstraintKind.BOOLEAN:
                return name, Booleans(tuple(value for value in (False, True) if ends[0][0] <= value <= ends[0][1]))
        return name, Present() if ends[0][0] else Absent()

    def _strings_between(self, ends: Ends) -> tuple[str | None, str | None]:
        """2i + 1 is at entry i, 2i + 2 right after it; as upper ends, 2i is right before entry i."""
        low, high = ends
        first = None if low == -math.inf else self.strings[int(low - 1) // 2] + ("" if low % 2 else "\0")
        last = None if high == math.inf else self.strings[int(high) // 2] + ("\0" if high % 2 else "")
        return first, last


def _half_open(ends: Ends) -> tuple[float | None, float | None]:
    low, high = ends
    return None if low == -math.inf else low, None if high == math.inf else math.nextafter(high, math.inf) + 0.0
