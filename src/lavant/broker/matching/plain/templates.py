"""Encodes many filters at once: the same predicates with different values, column by column.

The values are given by column, or come from texts that differ only in their constants.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lavant.broker.filters import FILTER_LIMITS, Filter
from lavant.broker.filters.algebra.constraints import PatternKind
from lavant.broker.filters.algebra.intervals import prefix_end
from lavant.broker.filters.language.ast import Between, Compare, ComparisonOperator, Like, LikeKind, Value
from lavant.broker.filters.language.templates import Shape, TemplateTerm, cut, template_of
from lavant.broker.matching.plain.extras import ExtraConstraints
from lavant.broker.matching.plain.strings import StringTable
from lavant.broker.matching.plain.table import ConstraintKind, Dimension, FilterTable
from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.publications.attributes import INTEGER_MAX, check_name

TEXTS_OF_SHAPE_MIN = 16
"""Fewer texts of one shape are cheaper one by one than by column."""
_LAST = chr(sys.maxunicode)

OPERATORS = ("=", "<", "<=", ">", ">=")


class Column(NamedTuple):
    """One predicate of each filter: `attribute operator value`, with a value for each filter."""

    attribute: str
    operator: str
    values: Sequence[str] | NDArray[Any]


class _Texts(NamedTuple):
    """Ends of intervals of strings: by how much they lie after the positions of entries of the string table."""

    values: Sequence[str]
    after: int


_Ends = NDArray[np.float64] | _Texts | None


class _Predicates(NamedTuple):
    """One predicate of each filter: the value lies in a closed interval, and passes the pattern if there is one."""

    dimension: Dimension
    low: _Ends
    high: _Ends
    pattern: tuple[PatternKind, Sequence[str]] | None = None


def encode_template(columns: Sequence[Column]) -> FilterTable:
    """The filters `columns[0] and columns[1] and …`, one for each line of values.

    >>> table = encode_template([Column("symbol", "=", ["IBM", "YHOO"]), Column("volume", ">", np.array([300, 500]))])
    >>> len(table), table.low.tolist()
    (2, [1.0, 300.00000000000006, 3.0, 500.00000000000006])
    """
    count = _common_length(columns)
    predicates = []
    for column in columns:
        name = check_name(column.attribute)
        if column.operator not in OPERATORS:
            raise InvalidValue(f"operator {column.operator!r} of {name!r} is none of {', '.join(OPERATORS)}")
        if _is_numeric(column.values):
            predicates.append(_compared_numbers(name, column.operator, _points(column)))
        else:
            predicates.append(_compared_strings(name, column.operator, _as_texts(column)))
    if len({each.dimension for each in predicates}) < len(predicates):
        raise InvalidValue("a template compares each attribute once; join both ends of a range in a filter's text")
    return _table(count, predicates)


def encode_texts(texts: Sequence[Filter | str]) -> tuple[list[tuple[NDArray[np.int64], FilterTable]], list[int]]:
    """Tables of the texts that share their shape with many others, with their numbers; and the numbers of the rest."""
    rest: list[int] = []
    shapes: dict[Shape, tuple[list[int], list[list[Value]]]] = {}
    for number, text in enumerate(texts):
        parts = None if not isinstance(text, str) or "''" in text or "\0" in text else cut(text, FILTER_LIMITS)
        if parts is None:
            rest.append(number)
            continue
        shape, line = parts
        numbers, lines = shapes.setdefault(shape, ([], []))
        numbers.append(number)
        lines.append(line)
    tables: list[tuple[NDArray[np.int64], FilterTable]] = []
    for shape, (numbers, lines) in shapes.items():
        terms = template_of(shape, FILTER_LIMITS) if len(numbers) >= TEXTS_OF_SHAPE_MIN else None
        if terms is None or not all(term.is_positive for term in terms):
            rest += numbers
            continue
        for kinds, chosen in _by_kinds(terms, lines).items():
            places = np.array(numbers)[chosen]
            table = None if kinds is None else _table_of_lines(terms, [lines[number] for number in chosen], kinds)
            if table is None:
                rest += places.tolist()
            else:
                tables.append((places, table))
    return tables, sorted(rest)


def _by_kinds(
    terms: Sequence[TemplateTerm], lines: Sequence[list[Value]]
) -> dict[tuple[LikeKind, ...] | None, list[int]]:
    """Numbers of the lines by the kinds of their patterns; None is for patterns that the parser reads."""
    slots = [term.slot for term in terms if isinstance(term.example, Like)]
    if not slots:
        return {(): list(range(len(lines)))}
    groups: dict[tuple[LikeKind, ...] | None, list[int]] = {}
    for number, line in enumerate(lines):
        kinds = tuple([_kind_of_pattern(line[slot]) for slot in slots])
        groups.setdefault(None if None in kinds else kinds, []).append(number)  # type: ignore[arg-type]
    return groups


def _kind_of_pattern(pattern: Any) -> LikeKind | None:
    literal = pattern.strip("%")
    if not literal or "%" in literal or "_" in literal or "\\" in literal or literal[-1] == _LAST:
        return None
    if pattern[0] == "%":
        return LikeKind.CONTAINS if pattern[-1] == "%" else LikeKind.SUFFIX
    return LikeKind.PREFIX if pattern[-1] == "%" else None


def _table_of_lines(
    terms: Sequence[TemplateTerm], lines: Sequence[list[Value]], kinds: Sequence[LikeKind]
) -> FilterTable | None:
    """A table of the filters with these constants; None if it takes more than columns."""
    columns: list[Any] = list(zip(*lines, strict=True))
    kind = iter(kinds)
    together: dict[str, _Predicates] = {}
    for term in terms:
        predicates = _predicates(term, columns, kind)
        if predicates is None:
            return None
        name = predicates.dimension[0]
        joined = predicates if name not in together else _join(together[name], predicates)
        if joined is None:
            return None
        together[name] = joined
    return _table(len(lines), list(together.values()))


def _predicates(term: TemplateTerm, columns: Sequence[Any], kinds: Iterator[LikeKind]) -> _Predicates | None:
    """A predicate of the template with the constants of each filter."""
    slot = term.slot
    match term.example:
        case Compare(name, operator, float()):
            if operator is ComparisonOperator.NE:
                return None
            return _compared_numbers(name, operator, np.array(columns[slot]))
        case Compare(name, operator, str()):
            return None if operator is ComparisonOperator.NE else _compared_strings(name, operator, columns[slot])
        case Between(name, float()):
            low, high = np.array(columns[slot]), np.array(columns[slot + 1])
            return _Predicates((name, ConstraintKind.NUMBER), low, high) if (low <= high).all() else None
        case Like(name):
            kind, literals = next(kinds), [pattern.strip("%") for pattern in columns[slot]]
            dimension = (name, ConstraintKind.STRING)
            if kind is LikeKind.PREFIX:
                ends = [prefix_end(literal) or "" for literal in literals]
                return _Predicates(dimension, _Texts(literals, 1), _Texts(ends, 0))
            pattern_kind = PatternKind.SUFFIX if kind is LikeKind.SUFFIX else PatternKind.CONTAINS
            return _Predicates(dimension, None, None, (pattern_kind, literals))
    return None


def _join(one: _Predicates, other: _Predicates) -> _Predicates | None:
    """The lower end of one and the upper end of the other, if they are numbers and nothing is empty."""
    if one.low is None:
        one, other = other, one
    low, high = one.low, other.high
    if one.high is not None or other.low is not None or one.dimension != other.dimension:
        return None
    if not isinstance(low, np.ndarray) or not isinstance(high, np.ndarray) or not (low <= high).all():
        return None
    return _Predicates(one.dimension, low, high)


def _compared_numbers(name: str, operator: str, points: NDArray[np.float64]) -> _Predicates:
    low = high = None
    with np.errstate(over="ignore"):  # beyond the largest double is an infinity, which no value reaches
        match operator:
            case "=":
                low = high = points
            case "<":
                high = np.nextafter(points, -np.inf) + 0.0
            case "<=":
                high = points
            case ">":
                low = np.nextafter(points, np.inf) + 0.0
            case ">=":
                low = points
    return _Predicates((name, ConstraintKind.NUMBER), low, high)


def _compared_strings(name: str, operator: str, values: Sequence[str]) -> _Predicates:
    before, at, behind = (_Texts(values, place) for place in range(3))
    low, high = {"=": (at, at), "<": (None, before), "<=": (None, at), ">": (behind, None), ">=": (at, None)}[operator]
    return _Predicates((name, ConstraintKind.STRING), low, high)


def _table(count: int, predicates: Sequence[_Predicates]) -> FilterTable:
    texts = {id(e.values): e.values for p in predicates for e in (p.low, p.high) if isinstance(e, _Texts)}
    strings, codes = _string_table(list(texts.values()))
    entry_of = dict(zip(texts, codes, strict=True))
    low = np.empty((count, len(predicates)))
    high = np.empty((count, len(predicates)))
    for place, each in enumerate(predicates):
        for target, ends, unbounded in ((low, each.low, -math.inf), (high, each.high, math.inf)):
            if isinstance(ends, _Texts):
                target[:, place] = 2.0 * entry_of[id(ends.values)] + ends.after
            else:
                target[:, place] = unbounded if ends is None else ends
    return FilterTable(
        count,
        tuple(each.dimension for each in predicates),
        strings,
        np.arange(count, dtype=np.uint32),
        np.arange(count + 1, dtype=np.uint32) * np.uint32(len(predicates)),
        np.tile(np.arange(len(predicates), dtype=np.uint16), count),
        low.ravel(),
        high.ravel(),
        _extras(count, predicates),
    )


def _extras(count: int, predicates: Sequence[_Predicates]) -> ExtraConstraints:
    patterns = [(place, *each.pattern) for place, each in enumerate(predicates) if each.pattern is not None]
    if not patterns:
        return ExtraConstraints.none()
    places = np.array([place for place, _, _ in patterns])
    number = count * len(places)
    literals = [
        literal.encode() for line in zip(*(values for _, _, values in patterns), strict=True) for literal in line
    ]
    starts = np.zeros(number + 1, np.uint32)
    np.cumsum([len(literal) for literal in literals], out=starts[1:])
    return ExtraConstraints(
        (np.arange(count)[:, None] * len(predicates) + places).ravel().astype(np.uint32),
        np.zeros(number + 1, np.uint32),
        np.empty(0),
        np.empty(0),
        np.arange(number + 1, dtype=np.uint32),
        np.tile(np.array([kind for _, kind, _ in patterns], np.uint8), count),
        starts,
        np.frombuffer(b"".join(literals), np.uint8),
    )


def _points(column: Column) -> NDArray[np.float64]:
    values = np.asarray(column.values)
    if values.dtype.kind in "iu" and len(values) and max(int(values.max()), -int(values.min())) > INTEGER_MAX:
        raise LimitExceeded(f"integers of {column.attribute!r} are beyond ±2^53, where doubles skip integers")
    points = values.astype(np.float64) + 0.0
    if not np.isfinite(points).all():
        raise InvalidValue(f"the values of {column.attribute!r} hold NaN or an infinity; leave those filters out")
    return points


def _string_table(columns: Sequence[Any]) -> tuple[StringTable, list[NDArray[np.float64]]]:
    """All values of the columns, and for each column the entries of its values."""
    arrays = [pa.array(column, pa.large_string()).cast(pa.large_binary()) for column in columns]
    if not arrays:
        return StringTable.of([]), []
    distinct = pc.unique(pa.chunked_array(arrays))
    merged = distinct.take(pc.array_sort_indices(distinct))
    return StringTable.from_arrow(merged), [
        pc.index_in(array, value_set=merged).to_numpy().astype(np.float64) for array in arrays
    ]


def _as_texts(column: Column) -> pa.Array:
    try:
        texts = pa.array(column.values, pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError) as error:
        raise InvalidValue(
            f"the values of {column.attribute!r} are neither strings nor an array of numbers: {error}"
        ) from None
    if texts.null_count:
        raise InvalidValue(f"the values of {column.attribute!r} hold None; leave those filters out")
    return texts


def _is_numeric(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.kind in "iuf"


def _common_length(columns: Sequence[Column]) -> int:
    lengths = {len(column.values) for column in columns}
    if len(lengths) != 1:
        raise InvalidValue(f"all columns of a template have the same length and there is at least one, got {lengths}")
    return lengths.pop()
