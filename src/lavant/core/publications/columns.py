"""Arrow columns of publications: made from rows, and checked when they come from outside.

An attribute is a column of strings (plain or dictionary-encoded), int64, float64 or booleans; other Arrow types are
cast where that changes no value, and refused where it would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.publications.attributes import ATTRIBUTES_MAX, INTEGER_MAX, STRING_BYTES_MAX, check_name
from lavant.core.publications.publication import (
    ID,
    PAYLOAD,
    PAYLOAD_BYTES_MAX,
    PUBLICATION_ID_LENGTH_MAX,
    TIME,
    check_envelope,
)

ENVELOPE = {ID: pa.string(), TIME: pa.int64(), PAYLOAD: pa.binary()}
ATTRIBUTES_OF_A_BATCH_MAX = 4096
STRING, INTEGER, FLOAT, BOOLEAN = pa.string(), pa.int64(), pa.float64(), pa.bool_()


def columns_of_rows(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Makes a column for each name and type that occurs in the rows."""
    names = dict.fromkeys(name for row in rows for name in row)
    fields: list[tuple[str, pa.Array]] = []
    for name in names:
        values = [row.get(name) for row in rows]
        fields += _envelope_column(name, values) if name in ENVELOPE else _attribute_columns(name, values)
    if not fields:  # Arrow counts rows by columns, so publications without attributes still need an id
        fields = _envelope_column(ID, [None] * len(rows))
    return pa.RecordBatch.from_arrays([array for _, array in fields], names=[name for name, _ in fields])


def checked_columns(records: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the records with all columns cast to the types of batches, or raises with the column and the value."""
    if not isinstance(records, pa.RecordBatch):
        raise InvalidValue(f"a PublicationBatch is made of a pyarrow.RecordBatch, got {type(records).__name__}")
    names = records.schema.names
    if len(names) > ATTRIBUTES_OF_A_BATCH_MAX:
        raise LimitExceeded(
            f"a batch has {len(names)} columns, at most {ATTRIBUTES_OF_A_BATCH_MAX} are allowed; "
            "send smaller batches or fewer distinct attribute names"
        )
    columns = [checked_column(name, column) for name, column in zip(names, records.columns, strict=True)]
    if len(set(names)) < len(names):
        _check_repeated(names, columns)
    if len(names) > ATTRIBUTES_MAX:
        _check_attribute_counts(names, columns)
    return pa.RecordBatch.from_arrays(columns, names=names) if columns else records


def checked_column(name: str, column: pa.Array) -> pa.Array:
    """Returns one column cast to the type of batches, or raises with its first bad value."""
    return _checked_envelope(name, column) if name in ENVELOPE else _checked_attribute(check_name(name), column)


def is_string(type: pa.DataType) -> bool:
    """Whether a column of this type holds strings."""
    return bool(pa.types.is_string(type) or pa.types.is_dictionary(type))


def _attribute_columns(name: str, values: list[Any]) -> list[tuple[str, pa.Array]]:
    types = set(map(type, values)) - {type(None)}
    columns: list[tuple[str, pa.Array]] = []
    for kind, arrow_type in ((str, STRING), (int, INTEGER), (float, FLOAT), (bool, BOOLEAN)):
        if kind in types:
            types.remove(kind)
            check_name(name)
            mine = values if not (types or columns) else [v if type(v) is kind else None for v in values]
            columns.append((name, _to_arrow(name, mine, arrow_type)))
    if types:
        odd = next(value for value in values if type(value) in types)
        raise InvalidValue(
            f"attribute {name!r} is of type {type(odd).__name__}; "
            "use a string, an integer, a float or a boolean (and the payload for anything else)"
        )
    return columns


def _envelope_column(name: str, values: list[Any]) -> list[tuple[str, pa.Array]]:
    if name == PAYLOAD and not any(value is not None for value in values):
        return []
    default = {ID: "", TIME: 0, PAYLOAD: None}[name]
    return [(name, _to_arrow(name, [default if value is None else value for value in values], ENVELOPE[name]))]


def _to_arrow(name: str, values: list[Any], type: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidValue(f"column {name!r} does not hold {type} values: {reason}") from None


def _checked_envelope(name: str, column: pa.Array) -> pa.Array:
    if column.type != ENVELOPE[name]:
        raise InvalidValue(f"column {name!r} is of type {column.type}, expected {ENVELOPE[name]}")
    if name == TIME:
        earliest = pc.min(column).as_py()
        if earliest is not None and earliest < 0:
            raise InvalidValue(early(earliest))
        return column
    return _checked_ids(column) if name == ID else _checked_size(name, column, PAYLOAD_BYTES_MAX)


def _checked_attribute(name: str, column: pa.Array) -> pa.Array:
    kind = column.type
    if kind == BOOLEAN:
        return column
    if kind == STRING:
        return _checked_size(name, column, STRING_BYTES_MAX)
    if pa.types.is_dictionary(kind) and (kind.value_type == STRING or pa.types.is_large_string(kind.value_type)):
        return _checked_dictionary(name, column)
    if kind == pa.uint64():  # refused here: the error of the cast would name neither the attribute nor a remedy
        _checked_integers(name, column)
    if pa.types.is_integer(kind):
        return _checked_integers(name, column if kind == INTEGER else column.cast(INTEGER))
    if pa.types.is_floating(kind):
        return _checked_floats(name, column if kind == FLOAT else column.cast(FLOAT))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _checked_size(name, column.cast(STRING), STRING_BYTES_MAX)
    raise InvalidValue(
        f"column {name!r} is of type {kind}; cast it to string, integer, float or boolean, or leave it out"
    )


def _checked_size(name: str, column: pa.Array, bytes_max: int) -> pa.Array:
    largest = pc.max(pc.binary_length(column)).as_py()
    if largest is not None and largest > bytes_max:
        raise LimitExceeded(too_large(name, largest, bytes_max))
    return column


def _checked_ids(column: pa.Array) -> pa.Array:
    _, ends, data = column.buffers()
    first, last = np.frombuffer(ends, np.int32)[[column.offset, column.offset + len(column)]] if len(column) else (0, 0)
    longest = pc.max(pc.utf8_length(column)).as_py()
    together = (
        b"" if data is None else memoryview(data)[first:last].tobytes()
    )  # the joined text is printable if each id is
    if (longest is not None and longest > PUBLICATION_ID_LENGTH_MAX) or not together.decode().isprintable():
        for id in column.drop_null().to_pylist():
            check_envelope(id=id, time_ms=0, payload=None)
    return column


def _checked_dictionary(name: str, column: pa.Array) -> pa.Array:
    texts = _checked_size(name, column.dictionary, STRING_BYTES_MAX)
    if texts.null_count:  # a null entry would make values absent, which only indices may do
        return column.cast(texts.type).cast(STRING).dictionary_encode()
    return column if texts.type == STRING else pa.DictionaryArray.from_arrays(column.indices, texts.cast(STRING))


def _check_repeated(names: list[str], columns: list[pa.Array]) -> None:
    """Raise unless columns of one name are of different types, and no publication has a value in two of them."""
    for name in dict.fromkeys(names):
        values = count_values(name, names, columns)
        if np.any(values > 1):
            raise InvalidValue(repeated(name, int(np.max(values)), f" of publication {np.argmax(values)}"))


def count_values(name: str, names: list[str], columns: list[pa.Array]) -> NDArray[np.int64]:
    """For each publication, the number of columns of this name that hold a value; raises if two are of one type."""
    mine = [column for other, column in zip(names, columns, strict=True) if other == name]
    types = {STRING if is_string(column.type) else column.type for column in mine}
    if len(types) < len(mine):
        raise InvalidValue(f"{len(mine)} columns are named {name!r} and two are of one type; join them into one")
    return _count_valid(mine)


def _check_attribute_counts(names: list[str], columns: list[pa.Array]) -> None:
    counts = count_attributes(names, columns)
    if np.any(counts > ATTRIBUTES_MAX):
        raise LimitExceeded(many_attributes(int(np.max(counts)), f"publication {np.argmax(counts)}"))


def count_attributes(names: list[str], columns: list[pa.Array]) -> NDArray[np.int64]:
    """For each publication, the number of attributes it has."""
    return _count_valid([column for name, column in zip(names, columns, strict=True) if name not in ENVELOPE])


def _count_valid(columns: list[pa.Array]) -> NDArray[np.int64]:
    counts = np.zeros(len(columns[0]) if columns else 0, np.int64)
    for column in columns:
        counts += column.is_valid().to_numpy(zero_copy_only=False)
    return counts


def _checked_integers(name: str, column: pa.Array) -> pa.Array:
    for value in pc.min_max(column).as_py().values():
        if value is not None and abs(value) > INTEGER_MAX:
            raise LimitExceeded(wide(name, value))
    return column


def _checked_floats(name: str, column: pa.Array) -> pa.Array:
    finite = pc.is_finite(column)
    if not pc.all(finite, min_count=0).as_py():
        row = pc.index(finite, pa.scalar(False)).as_py()
        raise InvalidValue(not_finite(name, column[row].as_py(), f" of publication {row}"))
    return column


# ---- what is wrong with a value: here for a whole batch, in `refusals` for each of its rows --------------------------


def early(time_ms: int) -> str:
    return f"@time_ms must be milliseconds since 1970, got {time_ms}"


def too_large(name: str, size_bytes: int, bytes_max: int) -> str:
    return f"{name!r} has a value of {size_bytes} bytes, at most {bytes_max} are allowed"


def wide(name: str, value: int) -> str:
    return f"integer {value} of attribute {name!r} is beyond ±2^53, where doubles skip integers; send it as a string"


def not_finite(name: str, value: float, whose: str = "") -> str:
    return f"attribute {name!r}{whose} is {value}; leave the attribute out where there is no number"


def repeated(name: str, values: int, whose: str = "") -> str:
    return f"attribute {name!r}{whose} has a value in {values} columns; leave null in all but one"


def many_attributes(count: int, who: str = "a publication") -> str:
    return f"{who} has {count} attributes, at most {ATTRIBUTES_MAX} are allowed; use the payload"
