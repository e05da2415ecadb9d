"""SQL functions: `lavant_match` matches a table, `lavant_matches` evaluates one filter.

SELECT * FROM lavant_match(TABLE(events), 'alerts')
SELECT * FROM events WHERE lavant_matches('symbol = ''IBM'' and price > 3', struct(*))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udf, udtf  # type: ignore[attr-defined]
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    CalendarIntervalType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from lavant.broker.matching import PlainMatcher
from lavant.broker.slices import SliceReader
from lavant.core.errors import InvalidValue
from lavant.pipeline.internals.worker_errors import refusals_in_one_line
from lavant.pipeline.operators.open_slices import SlicePlace
from lavant.pipeline.stream.records import POINT, accept, compared_columns
from lavant.pipeline.tables.columns import (
    ColumnLeaf,
    TableAttribute,
    attribute_columns,
    attributes_of,
    leaves_of,
    points_of,
)
from lavant.pipeline.tables.indexes import NUMBERS, TableIndex, dimensions_of, keep_registered, shipped
from lavant.pipeline.tables.match import check_names, result_schema
from lavant.pipeline.tables.subscriptions import Subscriptions, index_of
from lavant.pipeline.tables.tasks import RowMatches, TableMatcher

ROWS_AT_ONCE = 4096
"""Rows that `lavant_match` collects before it matches them."""
FILTERS_KNOWN = 256
"""Filters that `lavant_matches` keeps parsed in a Python worker."""


def register(spark: SparkSession, subscriptions: Mapping[str, Subscriptions] | None = None) -> None:
    """Registers `lavant_match` and `lavant_matches` in this session.

    `subscriptions` gives names to subscriptions: stores, DataFrames or tables, as for `match`. They are indexed now. In
    SQL, any other name is that of a store that the driver and the executors reach.
    """
    named = {name: shipped(index_of(spark, given, groups=1), spark) for name, given in (subscriptions or {}).items()}
    keep_registered(spark, named.values())
    spark.udtf.register("lavant_match", udtf(_table_function(named), useArrow=False))  # type: ignore[arg-type]
    spark.udf.register("lavant_matches", arrow_udf(lavant_matches, BooleanType()))


# ---- lavant_match ---------------------------------------------------------------------------------------------------


@dataclass
class MatchPlan(AnalyzeResult):
    """What was found out when the query was analyzed, for its tasks."""

    source: TableIndex | SlicePlace | None = None
    version: int | None = None
    attributes: tuple[TableAttribute, ...] = ()
    types: tuple[pa.DataType, ...] = ()
    explode: bool = False


def _table_function(named: Mapping[str, TableIndex]) -> type:
    class LavantMatch:
        """Collects rows, and matches them in batches."""

        def __init__(self, plan: MatchPlan) -> None:
            self._plan = plan
            self._events = StructType(plan.schema.fields[:-2])
            self._holds_moments = holds_moments(self._events)
            self._rows: list[Any] = []
            self._matcher: TableMatcher | None = None

        @staticmethod
        def analyze(
            events: AnalyzeArgument, subscriptions: AnalyzeArgument, explode: AnalyzeArgument | None = None
        ) -> MatchPlan:
            with refusals_in_one_line():
                return plan_match(events, subscriptions, explode, named)

        def eval(self, events: Any, subscriptions: str, explode: bool = False) -> Iterator[tuple[Any, ...]]:
            self._rows.append(events)  # one row: arguments have the names that SQL calls them by
            if len(self._rows) == ROWS_AT_ONCE:
                yield from self._flush()

        def terminate(self) -> Iterator[tuple[Any, ...]]:
            if self._rows:
                yield from self._flush()

        def _flush(self) -> Iterator[tuple[Any, ...]]:
            plan, rows, self._rows = self._plan, self._rows, []
            with refusals_in_one_line():
                if self._matcher is None:
                    inside = [attribute._replace(path=(attribute.name,)) for attribute in plan.attributes]
                    assert plan.source is not None
                    self._matcher = TableMatcher(plan.source, inside, version=plan.version)
                found = self._matcher.match(_columns(rows, plan))
            if self._holds_moments:
                rows = [exact(row, self._events) for row in rows]
            yield from result_rows(rows, found, explode=plan.explode)

    return LavantMatch


def plan_match(
    events: AnalyzeArgument,
    subscriptions: AnalyzeArgument,
    explode: AnalyzeArgument | None,
    named: Mapping[str, TableIndex],
) -> MatchPlan:
    """The columns of the result, and all that tasks need."""
    if not events.isTable or not isinstance(events.dataType, StructType):
        raise InvalidValue("the first argument of lavant_match is a table: lavant_match(TABLE(events), 'store')")
    if not subscriptions.isConstantExpression or not isinstance(subscriptions.value, str):
        raise InvalidValue("the second argument of lavant_match is a constant text: a store, or a name for register()")
    if explode is not None and explode.value not in (True, False, None):
        raise InvalidValue("the argument explode of lavant_match is true or false")
    is_exploded = explode is not None and bool(explode.value)
    check_names(events.dataType.names, explode=is_exploded)
    for field in events.dataType.fields:
        _check_types(field.dataType, field.name)
    source: TableIndex | SlicePlace
    if subscriptions.value in named:
        source, version = named[subscriptions.value], None
        scheme, dimensions, lists = source.scheme, source.dimensions, source.lists
    else:
        store = SliceReader(subscriptions.value)
        latest = store.version()
        source, version = SlicePlace(store.address, store.identity, store.settings.scheme), latest.number
        slices = [store.matcher(number, latest) for number in range(len(latest.slices))]
        scheme, dimensions, lists = source.scheme, dimensions_of(slices), NUMBERS
    leaves = leaves_of(events.dataType)
    attributes = points_of(events.dataType) if scheme == "encrypted" else attributes_of(leaves, dimensions)
    return MatchPlan(
        schema=result_schema(events.dataType, lists, explode=is_exploded),
        source=source,
        version=version,
        attributes=tuple(attributes),
        types=tuple(_arrow_type(attribute, events.dataType) for attribute in attributes),
        explode=is_exploded,
    )


def _check_types(type: DataType, column: str) -> None:
    """Raises for types that Spark's table functions cannot take, or not return."""
    if isinstance(type, YearMonthIntervalType | CalendarIntervalType):
        raise InvalidValue(
            f"column {column!r} is of type {type.simpleString()}, which Spark does not pass to a table function; leave "
            "it out, cast it to string, or use match() in Python"
        )
    for inside in _inside(type):
        _check_types(inside, column)


def holds_moments(type: DataType) -> bool:
    """Whether there are timestamps in values of a type."""
    return isinstance(type, TimestampType) or any(map(holds_moments, _inside(type)))


def _inside(type: DataType) -> list[DataType]:
    if isinstance(type, StructType):
        return [field.dataType for field in type.fields]
    if isinstance(type, ArrayType):
        return [type.elementType]
    return [type.keyType, type.valueType] if isinstance(type, MapType) else []


def exact(value: Any, type: DataType) -> Any:
    """A value whose timestamps return to Spark as they came.

    Python's have no time zone, and Spark takes all those in the hour that a clock repeats in autumn for one of the two.
    """
    if value is None or not holds_moments(type):
        return value
    if isinstance(type, StructType):
        return tuple(exact(item, field.dataType) for item, field in zip(value, type.fields, strict=True))
    if isinstance(type, ArrayType):
        return [exact(item, type.elementType) for item in value]
    if isinstance(type, MapType):
        return {exact(key, type.keyType): exact(item, type.valueType) for key, item in value.items()}
    return value.astimezone() if 1 < value.year < 9999 else value  # beyond, that might overflow


def _arrow_type(attribute: TableAttribute, events: StructType) -> pa.DataType:
    """The type of an attribute's column; presence has that of a boolean."""
    if attribute.name == POINT:
        return pa.list_(pa.float64())
    if not attribute.is_comparable:
        return pa.bool_()
    kind: Any = events
    for name in attribute.path:
        kind = kind[name].dataType
    if isinstance(kind, TimestampType):
        raise InvalidValue(
            f"filters compare column {attribute.name!r}, a timestamp, which Spark passes to a table function without "
            "its time zone; cast it to string in the query, or use match() in Python"
        )
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    types: tuple[tuple[Any, pa.DataType], ...] = (
        (StringType, pa.string()),
        (IntegralType, pa.int64()),
        (FractionalType, pa.float64()),
        (DateType, pa.date32()),
        (TimestampNTZType, pa.timestamp("us")),
        (NullType, pa.null()),
    )
    return next((arrow for spark, arrow in types if isinstance(kind, spark)), pa.bool_())


def _columns(rows: list[Any], plan: MatchPlan) -> pa.RecordBatch:
    """The attributes of rows, by column."""
    arrays = []
    for attribute, type in zip(plan.attributes, plan.types, strict=True):
        values = rows
        for name in attribute.path:
            values = [None if value is None else value[name] for value in values]
        if not attribute.is_comparable:
            values = [None if value is None else True for value in values]
        arrays.append(pa.array(values, type))
    if not arrays:
        return pa.RecordBatch.from_arrays([pa.nulls(len(rows))], names=["none"])
    return pa.RecordBatch.from_arrays(arrays, names=[attribute.name for attribute in plan.attributes])


def result_rows(rows: list[Any], found: RowMatches, *, explode: bool) -> Iterator[tuple[Any, ...]]:
    """The rows that match anything or are refused, each with its list or with a copy for each match."""
    ids = found.ids.to_pylist()
    ends = np.cumsum(found.counts).tolist()
    start = 0
    for number, (row, end) in enumerate(zip(rows, ends, strict=True)):
        reason = found.rejected.get(number)
        if not explode and (end > start or reason is not None):
            yield (*row, ids[start:end], reason)
        elif explode:
            for id in ids[start:end]:
                yield (*row, id, None)
            if reason is not None:
                yield (*row, None, reason)
        start = end


# ---- lavant_matches -------------------------------------------------------------------------------------------------

_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_null)


def lavant_matches(filter: pa.Array, row: pa.Array) -> pa.Array:
    """Whether the filter matches the row, a struct; null where there is no filter or the row cannot be compared."""
    with refusals_in_one_line():
        if not pa.types.is_struct(row.type):
            raise InvalidValue(f"the second argument of lavant_matches is a struct: struct(*), got {row.type}")
        if not any(is_type(filter.type) for is_type in _TEXTS):
            raise InvalidValue(f"the first argument of lavant_matches is a filter, a text, got {filter.type}")
        fields = dict(zip([field.name for field in row.type], row.flatten(), strict=True))
        rows = pa.RecordBatch.from_pydict(fields or {"none": pa.nulls(len(row))})  # Arrow counts rows by columns
        result = np.full(len(rows), None, object)
        for text in filter.unique().drop_null().to_pylist():
            mine = np.flatnonzero(pa.compute.equal(filter, text).fill_null(False).to_numpy(zero_copy_only=False))
            result[mine] = _evaluated(text, rows.take(pa.array(mine)))
    return pa.array(result, pa.bool_())


def _evaluated(text: str, rows: pa.RecordBatch) -> Any:
    matcher = _single(text)
    dimensions = matcher.dimensions
    records, rejected = attribute_columns(rows, attributes_of(_leaves(rows.schema), dimensions), dimensions)
    accepted = accept("plain", compared_columns(records, dimensions))
    found = np.full(rows.num_rows, None, object)
    if len(accepted.rows):
        found[accepted.rows] = np.diff(matcher.match(accepted.batch).offsets) > 0
    found[list(rejected)] = None
    return found


@lru_cache(maxsize=FILTERS_KNOWN)
def _single(text: str) -> PlainMatcher:
    matcher = PlainMatcher()
    try:
        matcher.add([0], [text])
    except InvalidValue as error:
        raise InvalidValue(f"{str(error).splitlines()[0]}; the filter is {text!r:.200}") from None
    return matcher


def _leaves(schema: Any, above: tuple[str, ...] = ()) -> dict[str, ColumnLeaf]:
    """Columns and fields of structs, by Arrow's types."""
    known: dict[str, ColumnLeaf] = {}
    for field in schema:
        path = (*above, field.name)
        if pa.types.is_struct(field.type):
            known = {**_leaves(field.type, path), **known}
        known[".".join(path)] = ColumnLeaf(path, _is_comparable(field.type), str(field.type))
    return known


def _is_comparable(type: pa.DataType) -> bool:
    tests = ("string", "large_string", "boolean", "integer", "floating", "decimal", "date", "timestamp", "null")
    return any(getattr(pa.types, f"is_{test}")(type) for test in tests)
