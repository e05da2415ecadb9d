"""Encodes millions of filters at once: the same predicates with different values, column by column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lavant.broker.matching.plain.extras import ExtraConstraints
from lavant.broker.matching.plain.strings import StringTable
from lavant.broker.matching.plain.table import ConstraintKind, Dimension, FilterTable
from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.publications.attributes import INTEGER_MAX, check_name

OPERATORS = ("=", "<", "<=", ">", ">=")


class Column(NamedTuple):
    """One predicate of each filter: `attribute operator value`, with a value for each filter."""

    attribute: str
    operator: str
    values: Sequence[str] | NDArray[Any]


def encode_template(columns: Sequence[Column]) -> FilterTable:
    """The filters `columns[0] and columns[1] and …`, one for each line of values.

    >>> table = encode_template([Column("symbol", "=", ["IBM", "YHOO"]), Column("volume", ">", np.array([300, 500]))])
    >>> len(table), table.low.tolist()
    (2, [1.0, 300.00000000000006, 3.0, 500.00000000000006])
    """
    count = _common_length(columns)
    texts = [column for column in columns if not _is_numeric(column.values)]
    strings, codes = _string_table(texts)
    code_of = dict(zip(map(id, texts), codes, strict=True))
    dimensions: list[Dimension] = []
    low = np.empty((count, len(columns)))
    high = np.empty((count, len(columns)))
    for place, column in enumerate(columns):
        kind = ConstraintKind.NUMBER if _is_numeric(column.values) else ConstraintKind.STRING
        dimensions.append((check_name(column.attribute), kind))
        if kind is ConstraintKind.NUMBER:
            below, above, points = _number_ends(column)
        else:
            entry = code_of[id(column)]
            below = 2.0 * entry.astype(np.float64)
            points, above = below + 1, below + 2
        low[:, place], high[:, place] = _interval(column, below, above, points)
    if len(set(dimensions)) < len(dimensions):
        raise InvalidValue("a template compares each attribute once; join both ends of a range in a filter's text")
    return FilterTable(
        count,
        tuple(dimensions),
        strings,
        np.arange(count, dtype=np.uint32),
        np.arange(count + 1, dtype=np.uint32) * np.uint32(len(columns)),
        np.tile(np.arange(len(columns), dtype=np.uint16), count),
        low.ravel(),
        high.ravel(),
        ExtraConstraints.none(),
    )


def _interval(
    column: Column, below: NDArray[np.float64], above: NDArray[np.float64], points: NDArray[np.float64]
) -> tuple[Any, Any]:
    match column.operator:
        case "=":
            return points, points
        case "<":
            return -math.inf, below
        case "<=":
            return -math.inf, points
        case ">":
            return above, math.inf
        case ">=":
            return points, math.inf
        case other:
            raise InvalidValue(f"operator {other!r} of {column.attribute!r} is none of {', '.join(OPERATORS)}")


def _number_ends(column: Column) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    values = np.asarray(column.values)
    if values.dtype.kind in "iu" and len(values) and max(int(values.max()), -int(values.min())) > INTEGER_MAX:
        raise LimitExceeded(f"integers of {column.attribute!r} are beyond ±2^53, where doubles skip integers")
    points = values.astype(np.float64) + 0.0
    if not np.isfinite(points).all():
        raise InvalidValue(f"the values of {column.attribute!r} hold NaN or an infinity; leave those filters out")
    with np.errstate(over="ignore"):  # beyond the largest double is an infinity, which no value reaches
        return np.nextafter(points, -np.inf) + 0.0, np.nextafter(points, np.inf) + 0.0, points


def _string_table(columns: Sequence[Column]) -> tuple[StringTable, list[NDArray[np.int64]]]:
    arrays = [_as_texts(column).cast(pa.large_binary()) for column in columns]
    if not arrays:
        return StringTable.of([]), []
    distinct = pc.unique(pa.chunked_array(arrays))
    merged = distinct.take(pc.array_sort_indices(distinct))
    return StringTable.from_arrow(merged), [
        pc.index_in(array, value_set=merged).to_numpy().astype(np.int64) for array in arrays
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
