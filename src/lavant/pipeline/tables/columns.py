"""The columns of a table as attributes: which of them filters compare, and their values in the types of filters.

| column                                   | attribute                                                          |
| ---------------------------------------- | ------------------------------------------------------------------ |
| string, boolean, integers, float, double | as it is                                                           |
| decimal                                  | a number, if it has at most 15 significant digits or is an integer |
|                                          | up to ±2^53: such decimals and their doubles are ordered alike     |
| date, timestamp                          | text as Spark casts it, `2026-01-02 03:04:05.25`, in the time zone |
|                                          | of the session; years 1 to 9999, whose texts are ordered like time |
| struct                                   | an attribute for each field: `quote.price`                         |
| anything else                            | only its presence                                                  |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lavant.broker.matching.plain.table import ConstraintKind, Dimension
from lavant.core.errors import InvalidValue
from lavant.core.publications.attributes import INTEGER_MAX
from lavant.pipeline.stream.records import POINT

COMPARABLE = (
    StringType,
    BooleanType,
    IntegralType,
    FloatType,
    DoubleType,
    DecimalType,
    DateType,
    TimestampType,
    TimestampNTZType,
    NullType,
)
DIGITS_MAX = 15
"""Decimals of so many significant digits have doubles of their own, in the same order."""
_POWERS = np.array([float(10**exponent) for exponent in range(23)])
"""Powers of ten that are doubles: a product or quotient with one is rounded once."""
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::(\d{2}))?")
_FIRST_DAY, _LAST_DAY = -719162, 2932896
"""0001-01-01 and 9999-12-31, in days since 1970."""


class TableAttribute(NamedTuple):
    """An attribute and where its values are: a column, or a field of a struct in it."""

    name: str
    path: tuple[str, ...]
    is_comparable: bool
    """Otherwise only its presence is visible."""


class ColumnLeaf(NamedTuple):
    """A column or a field of a struct."""

    path: tuple[str, ...]
    is_comparable: bool
    type: str


class AttributeColumns(NamedTuple):
    """The attributes of some rows, and why other rows cannot be compared."""

    records: pa.RecordBatch
    rejected: dict[int, str]


def attributes_of(leaves: Mapping[str, ColumnLeaf], dimensions: Collection[Dimension] | None) -> list[TableAttribute]:
    """The attributes that filters of these dimensions see; without dimensions, all that a filter could.

    Raises if filters compare a column whose type has no values that they could compare.
    """
    names = leaves if dimensions is None else dict.fromkeys(sorted(name for name, _ in dimensions))
    compared = {name for name, kind in dimensions or () if kind is not ConstraintKind.PRESENCE}
    attributes = []
    for name in names:
        if name not in leaves:
            continue
        path, is_comparable, type = leaves[name]
        if name in compared and not is_comparable:
            raise InvalidValue(
                f"filters compare column {name!r}, which is of type {type}; "
                "cast it to string, a number, a date, a timestamp or boolean, or leave it out"
            )
        attributes.append(TableAttribute(name, path, is_comparable and (dimensions is None or name in compared)))
    return attributes


def leaves_of(schema: StructType) -> dict[str, ColumnLeaf]:
    """Columns and fields of structs, by the name that a filter calls them."""
    fields = sorted(_fields(schema), key=lambda field: -len(field[0]))  # a column named `a.b` is before a field of `a`
    return {
        ".".join(path): ColumnLeaf(path, isinstance(kind, COMPARABLE), kind.simpleString()) for path, kind in fields
    }


def points_of(schema: StructType) -> list[TableAttribute]:
    """The column of encrypted publications."""
    if POINT not in schema.names or not isinstance(schema[POINT].dataType, ArrayType):
        raise InvalidValue(
            f"the subscriptions are encrypted, so the table needs a column {POINT!r} of type array<double>; "
            f"its columns are {', '.join(schema.names)}"
        )
    return [TableAttribute(POINT, (POINT,), is_comparable=True)]


def quoted(column: str) -> str:
    """A column's name as Spark takes it for one, whatever is in it.

    >>> quoted("a.`b`")
    '`a.``b```'
    """
    return "`" + column.replace("`", "``") + "`"


def attribute_columns(
    rows: pa.RecordBatch, attributes: list[TableAttribute], dimensions: Collection[Dimension] | None
) -> AttributeColumns:
    """The values of the attributes that filters of these dimensions see, in the types of filters."""
    columns: dict[str, pa.Array] = {}
    rejected: dict[int, str] = {}
    for attribute in attributes:
        kinds = None if dimensions is None else {kind for name, kind in dimensions if name == attribute.name}
        if kinds is not None and not kinds:
            continue
        column = rows.column(attribute.path[0])
        if len(attribute.path) > 1:
            column = pc.struct_field(column, list(attribute.path[1:]))
        columns[attribute.name], refused = _values(attribute, column, kinds)
        rejected = {**refused, **rejected}
    if not columns:  # Arrow counts rows by columns, so there is at least one
        columns = {"none": pa.nulls(rows.num_rows, pa.bool_())}
    return AttributeColumns(pa.RecordBatch.from_pydict(columns), rejected)


def _values(
    attribute: TableAttribute, column: pa.Array, kinds: Collection[ConstraintKind] | None
) -> tuple[pa.Array, dict[int, str]]:
    """What filters see of a column; only what they compare can be a reason to refuse a row."""
    if not attribute.is_comparable:
        refused = {}
        if kinds is not None and kinds != {ConstraintKind.PRESENCE}:
            reason = f"attribute {attribute.name!r} is of a type that filters cannot compare; cast the column to string"
            refused = dict.fromkeys(np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist(), reason)
        return _constant(column, True), refused
    for is_type, kind, convert in _CONVERSIONS:
        if is_type(column.type):
            if kinds is None or kind in kinds:
                return convert(attribute.name, column)
            return _constant(column, "" if kind is ConstraintKind.STRING else 0), {}
    return column, {}


def _constant(column: pa.Array, value: str | int | bool) -> pa.Array:
    """One value for all that there are: only their presence is visible."""
    constant = pa.scalar(value)
    return pc.if_else(column.is_valid(), constant, pa.scalar(None, constant.type))


def _fields(schema: StructType, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], DataType]]:
    for field in schema.fields:
        path = (*above, field.name)
        yield path, field.dataType
        if isinstance(field.dataType, StructType):
            yield from _fields(field.dataType, path)


# ---- time -----------------------------------------------------------------------------------------------------------


def dates(name: str, column: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """`2026-01-02`."""
    days = column.cast(pa.date32())
    return _in_years(name, days, days.cast(pa.int32()))


def timestamps(name: str, column: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """`2026-01-02 03:04:05.25` in the column's time zone: no zeros at the end of a fraction, none without one."""
    local = (column if column.type.tz is None else _local(column)).cast(pa.timestamp("us"))
    days = local.cast(pa.int64()).fill_null(0).to_numpy() // 86_400_000_000
    texts, refused = _in_years(name, local, pa.array(days))
    return pc.replace_substring_regex(texts, r"\.?0*$", ""), refused


def _local(column: pa.Array) -> pa.Array:
    """Times of the day in the column's time zone, which Spark may call by a name that Arrow does not know."""
    zone = column.type.tz
    try:
        return pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, arrow_zone(zone))))
    except pa.ArrowInvalid:
        raise InvalidValue(
            f"the time zone {zone!r} of the session is none that Arrow knows; set spark.sql.session.timeZone to a "
            "region, such as Europe/Berlin, or an offset, such as +01:00"
        ) from None


def arrow_zone(zone: str) -> str:
    """A time zone of Spark as Arrow writes it.

    >>> [arrow_zone(each) for each in ("GMT+3", "UTC-01:30", "+5", "Z", "Europe/Berlin")]
    ['+03:00', '-01:30', '+05:00', 'UTC', 'Europe/Berlin']
    """
    if zone == "Z":
        return "UTC"
    offset = _OFFSET.fullmatch(zone)
    return zone if offset is None else f"{offset[1]}{int(offset[2]):02d}:{offset[3] or '00'}"


def _in_years(name: str, values: pa.Array, days: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    outside = pc.or_(pc.less(days, _FIRST_DAY), pc.greater(days, _LAST_DAY)).fill_null(False)
    if not pc.any(outside, min_count=0).as_py():
        return values.cast(pa.string()), {}
    rows = np.flatnonzero(outside.to_numpy(zero_copy_only=False)).tolist()
    reason = f"attribute {name!r} is outside the years 1 to 9999, where texts and times are ordered alike"
    kept = pc.if_else(outside, pa.scalar(None, values.type), values)
    return kept.cast(pa.string()), dict.fromkeys(rows, reason)


# ---- decimals -------------------------------------------------------------------------------------------------------


def decimals(name: str, column: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """The nearest doubles, where they are ordered like the decimals."""
    present = column.is_valid().to_numpy(zero_copy_only=False)
    words = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)[column.offset : column.offset + len(column)]
    unscaled = np.where(present, words[:, 0], 0)
    is_narrow = np.where(present, (words[:, 1] == words[:, 0] >> 63) & (np.abs(unscaled) >= 0), True)
    scale = np.full(len(column), column.type.scale)
    while (zeros := is_narrow & (np.abs(unscaled) >= 10**DIGITS_MAX) & (unscaled % 10 == 0)).any():
        unscaled[zeros] //= 10
        scale[zeros] -= 1
    is_short = is_narrow & (np.abs(unscaled) < 10**DIGITS_MAX) & (np.abs(scale) < len(_POWERS))
    power = _POWERS[np.where(is_short, np.abs(scale), 0)]
    doubles = np.where(scale >= 0, unscaled / power, unscaled * power)
    refused: dict[int, str] = {}
    for row in np.flatnonzero(present & ~is_short).tolist():  # wide integers, and decimals of scales that are rare
        value = column[row].as_py()
        doubles[row] = float(value)
        if not _has_double(value):
            present[row] = False
            refused[row] = (
                f"decimal {value} of attribute {name!r} has more than {DIGITS_MAX} significant digits, "
                "and no double holds it; cast the column to string or to fewer digits"
            )
    return pa.array(doubles, mask=~present), refused


def _has_double(value: Decimal) -> bool:
    digits = "".join(map(str, value.as_tuple().digits)).strip("0")
    return len(digits) <= DIGITS_MAX or (value == int(value) and abs(value) <= INTEGER_MAX)


def _absent(name: str, column: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    return column.cast(pa.bool_()), {}


_Conversion = Callable[[str, pa.Array], tuple[pa.Array, dict[int, str]]]
_CONVERSIONS: tuple[tuple[Callable[[pa.DataType], bool], ConstraintKind, _Conversion], ...] = (
    (pa.types.is_decimal, ConstraintKind.NUMBER, decimals),
    (pa.types.is_timestamp, ConstraintKind.STRING, timestamps),
    (pa.types.is_date, ConstraintKind.STRING, dates),
    (pa.types.is_null, ConstraintKind.BOOLEAN, _absent),
)
"""Types that filters do not have: what they are compared as, and how."""
