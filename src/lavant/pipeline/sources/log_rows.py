"""Publications of a log as rows of a table, in one of two forms.

    json       offset, publication            each publication as the text of a JSON object
    columns    offset, a column each          `@id`, `@time_ms`, `@payload` or `@point`, and one for each attribute

A column's type is string, boolean, bigint, int or double (binary for the payload, array<double> for the point). A value
of another kind than its column, or that the column's type cannot hold, is null; a column of strings shows all values
as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lavant.core.errors import InvalidValue
from lavant.core.publications.publication import ID, PAYLOAD, POINT, TIME

OFFSET = "offset"
"""Name of the column of offsets, unless option `offsetColumn` gives another."""
PUBLICATION = "publication"
ARROW_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "array<double>": pa.list_(pa.field("element", pa.float64())),
}

LogRows = Callable[[int, pa.RecordBatch], pa.RecordBatch]
"""The rows of consecutive publications, given the offset of the first."""


def json_schema(offset: str = OFFSET) -> StructType:
    return StructType([StructField(offset, LongType()), StructField(PUBLICATION, StringType())])


def column_schema(schemas: Iterable[pa.Schema], offset: str = OFFSET) -> str:
    """The columns of all attributes that occur in blocks with these schemas."""
    kinds: dict[str, set[str]] = {}
    for schema in schemas:
        for field in schema:
            kinds.setdefault(field.name, set()).add(_kind(field.type))
    envelope = [name for name in (ID, TIME, PAYLOAD, POINT) if name in kinds]
    names = [*envelope, *(name for name in kinds if name not in envelope)]
    known: dict[str, str] = {offset.lower(): offset}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name or name == offset:
            raise InvalidValue(
                f"the log has an attribute {name!r} and a column {other!r}, which Spark does not tell apart; give "
                "another offsetColumn or a schema, or read the publications as JSON"
            )
    return ", ".join([f"{_quoted(offset)} bigint", *(f"{_quoted(name)} {_type_of(kinds[name])}" for name in names)])


def rows_of(schema: StructType, offset: str = OFFSET, form: str | None = None) -> LogRows:
    """The function that turns publications into rows of this schema, in the form that is asked for or else fits it."""
    wanted = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    others = [name for name, _ in wanted if not _is_offset(name, offset) and name != PUBLICATION]
    if form == "json" and others:
        raise InvalidValue(
            f"rows=json has the columns {offset!r} and {PUBLICATION!r}, and the schema has {others[0]!r}; "
            "leave out the schema, or option rows"
        )
    is_json = form == "json" or (form is None and not others and PUBLICATION in schema.names)
    for name, type in wanted:
        allowed = list(ARROW_TYPES)
        if _is_offset(name, offset):
            allowed = ["bigint"]
        elif is_json:
            allowed = ["string"]
        if type not in allowed:
            raise InvalidValue(f"column {name!r} of a log cannot be of type {type}; use {', '.join(allowed)}")
    fields = [pa.field(each.name, ARROW_TYPES[each.dataType.simpleString()], each.nullable) for each in schema.fields]
    values = _json_texts if is_json else _column
    return lambda first, records: _rows(first, records, pa.schema(fields), offset, values)


def _is_offset(name: str, offset: str) -> bool:
    """Spark's names have no case."""
    return name.lower() == offset.lower()


def _kind(type: pa.DataType) -> str:
    if pa.types.is_dictionary(type):
        return _kind(type.value_type)
    for kind, is_kind in (
        ("boolean", pa.types.is_boolean),
        ("integer", pa.types.is_integer),
        ("float", pa.types.is_floating),
        ("binary", lambda type: pa.types.is_binary(type) or pa.types.is_large_binary(type)),
        ("list", lambda type: pa.types.is_list(type) or pa.types.is_fixed_size_list(type)),
    ):
        if is_kind(type):
            return kind
    return "string"


def _type_of(kinds: set[str]) -> str:
    if kinds == {"integer"}:
        return "bigint"
    if kinds <= {"integer", "float"}:
        return "double"
    only = next(iter(kinds)) if len(kinds) == 1 else "string"
    return "array<double>" if only == "list" else only


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _offsets(first: int, records: pa.RecordBatch) -> pa.Array:
    return pa.array(range(first, first + records.num_rows), pa.int64())


def _rows(
    first: int,
    records: pa.RecordBatch,
    schema: pa.Schema,
    offset: str,
    values: Callable[[pa.RecordBatch, str, pa.DataType], pa.Array],
) -> pa.RecordBatch:
    columns = [
        _offsets(first, records) if _is_offset(field.name, offset) else values(records, field.name, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _json_texts(records: pa.RecordBatch, name: str, wanted: pa.DataType) -> pa.Array:
    rows: list[dict[str, Any]] = [{} for _ in range(records.num_rows)]
    for attribute, column in zip(records.schema.names, records.columns, strict=True):
        for row, value in zip(rows, column.to_pylist(), strict=True):
            if value is not None:  # an attribute of several types has a column for each
                row[attribute] = value
    return pa.array([msgspec.json.encode(row).decode() for row in rows], wanted)


def _column(records: pa.RecordBatch, name: str, wanted: pa.DataType) -> pa.Array:
    """The values of an attribute, which may have a column for each of its types."""
    given = (column for has, column in zip(records.schema.names, records.columns, strict=True) if has == name)
    parts = [_converted(column, wanted) for column in given]
    return reduce(pc.coalesce, parts) if parts else pa.nulls(records.num_rows, wanted)


def _converted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    numeric = ("integer", "float")
    have, want = _kind(column.type), _kind(wanted)
    if want == "list" and have == "list":
        return column.cast(wanted)
    if want == "string" and have not in ("list", "binary"):
        return column.cast(pa.string())
    if want in numeric and have in numeric:
        cast = column.cast(wanted, safe=False)
        same = pc.equal(cast.cast(column.type, safe=False), column)
        return pc.if_else(pc.fill_null(same, False), cast, pa.scalar(None, wanted))
    return column.cast(wanted) if have == want else pa.nulls(len(column), wanted)
