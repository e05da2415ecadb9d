"""Publications by column: the form in which they flow through matching.

A `PublicationBatch` is an Arrow record batch. Three columns carry the envelope (`@id`, `@time_ms`, `@payload`); every
other column is an attribute, with null where a publication does not have it. An attribute that is of several types in
one batch has a column for each type, all of the same name. Attribute names cannot start with '@', so nothing collides.

The same flat shape is the row form: `{"symbol": "YHOO", "volume": 300, "@id": "7"}` as a dict or a line of JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lavant.core.attributes import INTEGER_MAX, AttributeValue, check_name
from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.ids import PublicationId
from lavant.core.publications import Publication

ID, TIME, PAYLOAD = "@id", "@time_ms", "@payload"
ENVELOPE = (ID, TIME, PAYLOAD)
ATTRIBUTES_OF_A_BATCH_MAX = 4096
STRING, INTEGER, FLOAT, BOOLEAN = pa.string(), pa.int64(), pa.float64(), pa.bool_()


class StringColumn(NamedTuple):
    """Strings by code: publication i has string number `codes[i]`, or none where that is -1.

    String number c is the UTF-8 text `data[offsets[c]:offsets[c + 1]]`; no string is there twice.
    """

    codes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]


class PublicationBatch:
    """Many publications, by column.

    >>> batch = PublicationBatch.from_dicts([{"symbol": "YHOO", "volume": 300}, {"symbol": "IBM"}])
    >>> len(batch), batch.attributes
    (2, ('symbol', 'volume'))
    >>> batch.to_dicts()[1]
    {'symbol': 'IBM'}
    """

    def __init__(self, records: pa.RecordBatch) -> None:
        """Take columns as they are, after a check of names, types and numbers; nothing is copied without need."""
        self.records = _normalise(records)
        self._by_name: dict[str, list[pa.Array]] = {}
        for name, column in zip(self.records.schema.names, self.records.columns, strict=True):
            if name not in ENVELOPE:
                self._by_name.setdefault(name, []).append(column)

    @classmethod
    def from_dicts(cls, rows: Sequence[Mapping[str, Any]]) -> PublicationBatch:
        """Publications from flat dicts; `@id`, `@time_ms` and `@payload` are optional. A value of None is absent."""
        names = dict.fromkeys(name for row in rows for name in row)
        if len(names) > ATTRIBUTES_OF_A_BATCH_MAX:
            raise LimitExceeded(
                f"a batch names {len(names)} attributes, at most {ATTRIBUTES_OF_A_BATCH_MAX} are allowed; "
                "send smaller batches or fewer distinct names"
            )
        fields: list[tuple[str, pa.Array]] = []
        for name in names:
            values = [row.get(name) for row in rows]
            fields += _envelope_column(name, values) if name in ENVELOPE else _attribute_columns(name, values)
        records = pa.RecordBatch.from_arrays([array for _, array in fields], names=[name for name, _ in fields])
        return cls(records if fields else _without_columns(len(rows)))

    @classmethod
    def from_publications(cls, publications: Iterable[Publication]) -> PublicationBatch:
        return cls.from_dicts(
            [{**p.attributes, ID: p.id, TIME: p.time_ms, PAYLOAD: p.payload} for p in publications],
        )

    def __len__(self) -> int:
        return int(self.records.num_rows)

    def __repr__(self) -> str:
        return f"PublicationBatch({len(self)} publications, attributes: {', '.join(self.attributes)})"

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names that occur, in the order in which they came."""
        return tuple(self._by_name)

    def slice(self, start: int, length: int) -> PublicationBatch:
        """A part of the batch; nothing is copied."""
        part = PublicationBatch.__new__(PublicationBatch)
        part.records = self.records.slice(start, length)
        part._by_name = {
            name: [c.slice(start, length) for c in columns] for name, columns in self._by_name.items()
        }
        return part

    # ---- rows -------------------------------------------------------------------------------------------------------

    def to_dicts(self) -> list[dict[str, Any]]:
        """Flat dicts, without what is absent."""
        rows: list[dict[str, Any]] = [{} for _ in range(len(self))]
        for name, column in zip(self.records.schema.names, self.records.columns, strict=True):
            for row, value in zip(rows, column.to_pylist(), strict=True):
                if value is not None:
                    row[name] = value
        return rows

    def to_publications(self) -> Iterator[Publication]:
        for row in self.to_dicts():
            id, time_ms, payload = row.pop(ID, ""), row.pop(TIME, 0), row.pop(PAYLOAD, None)
            yield Publication(id=PublicationId(id), time_ms=time_ms, payload=payload, attributes=row)

    # ---- columns for kernels: NaN where absent or of another type, since NaN is never a value ----------------------

    def numbers(self, name: str) -> NDArray[np.float64] | None:
        """Integers and floats of attribute `name` as doubles; None if no publication has it as a number."""
        columns = [c for c in self._by_name.get(name, ()) if c.type in (INTEGER, FLOAT)]
        if not columns:
            return None
        merged = [_as_doubles(column) for column in columns]
        return merged[0] if len(merged) == 1 else np.where(np.isnan(merged[0]), merged[1], merged[0])

    def booleans(self, name: str) -> NDArray[np.float64] | None:
        """1.0 for true, 0.0 for false; None if no publication has attribute `name` as a boolean."""
        for column in self._by_name.get(name, ()):
            if column.type == BOOLEAN:
                return _as_doubles(column.cast(pa.int8()))
        return None

    def presence(self, name: str) -> NDArray[np.float64]:
        """1.0 where attribute `name` is there, of whatever type, else 0.0."""
        present = np.zeros(len(self))
        for column in self._by_name.get(name, ()):
            present += column.is_valid().to_numpy(zero_copy_only=False)
        return present

    def strings(self, name: str) -> StringColumn | None:
        """Strings of attribute `name`, each distinct one once; None if no publication has it as a string."""
        return self._string_columns.get(name)

    @cached_property
    def _string_columns(self) -> dict[str, StringColumn]:
        # Made once a batch for all segments of a matcher: encoding costs more than looking up.
        return {
            name: _encode_strings(column)
            for name, columns in self._by_name.items()
            for column in columns
            if _is_string(column.type)
        }


def _is_string(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_dictionary(type))


def _encode_strings(column: pa.Array) -> StringColumn:
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    codes = encoded.indices
    if codes.null_count:
        codes = codes.fill_null(-1)
    texts = encoded.dictionary
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    blob = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return StringColumn(codes.to_numpy().astype(np.int32, copy=False), ends, blob)


def _as_doubles(column: pa.Array) -> NDArray[np.float64]:
    doubles: NDArray[np.float64]
    if column.null_count:
        column = column.cast(FLOAT).fill_null(float("nan"))
    doubles = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    return doubles


# ---- rows into columns ----------------------------------------------------------------------------------------------


def _attribute_columns(name: str, values: list[Any]) -> list[tuple[str, pa.Array]]:
    """A column for each type that occurs."""
    check_name(name)
    types = set(map(type, values)) - {type(None)}
    columns: list[tuple[str, pa.Array]] = []
    for kind, arrow_type in ((str, STRING), (int, INTEGER), (float, FLOAT), (bool, BOOLEAN)):
        if kind in types:
            types.remove(kind)
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
    if name == TIME:
        return [(name, _to_arrow(name, [0 if v is None else v for v in values], INTEGER))]
    if name == PAYLOAD:
        return [(name, _to_arrow(name, values, pa.binary()))] if any(v is not None for v in values) else []
    return [(name, _to_arrow(name, ["" if v is None else v for v in values], STRING))]


def _to_arrow(name: str, values: list[Any], type: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidValue(f"column {name!r} does not hold {type} values: {reason}") from None


# ---- columns from outside -------------------------------------------------------------------------------------------


def _normalise(records: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with every attribute as string, int64, float64 or boolean; an error where that would change a value."""
    if not isinstance(records, pa.RecordBatch):
        raise InvalidValue(f"a PublicationBatch is made of a pyarrow.RecordBatch, got {type(records).__name__}")
    names = records.schema.names
    columns = [
        column if name in ENVELOPE else _normalise_attribute(check_name(name), column)
        for name, column in zip(names, records.columns, strict=True)
    ]
    if not columns:
        return records
    return pa.RecordBatch.from_arrays(columns, names=names)


def _normalise_attribute(name: str, column: pa.Array) -> pa.Array:
    kind = column.type
    if kind == STRING or kind == BOOLEAN:
        return column
    if pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type):
        return column.unify_dictionaries() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_integer(kind):
        return _check_integers(name, column.cast(INTEGER))
    if pa.types.is_floating(kind):
        return _check_floats(name, column.cast(FLOAT))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(STRING)
    raise InvalidValue(
        f"column {name!r} is of type {kind}; cast it to string, integer, float or boolean, or leave it out"
    )


def _check_integers(name: str, column: pa.Array) -> pa.Array:
    extremes = pc.min_max(column).as_py()
    for value in extremes.values():
        if value is not None and abs(value) > INTEGER_MAX:
            raise LimitExceeded(
                f"integer {value} of attribute {name!r} is beyond ±2^53, where doubles skip integers; "
                "send it as a string"
            )
    return column


def _check_floats(name: str, column: pa.Array) -> pa.Array:
    finite = pc.is_finite(column)
    if not pc.all(finite, min_count=0).as_py():
        row = pc.index(finite, pa.scalar(False)).as_py()
        raise InvalidValue(
            f"attribute {name!r} of publication {row} is {column[row].as_py()}; "
            "leave the attribute out where there is no number"
        )
    return column


def _without_columns(rows: int) -> pa.RecordBatch:
    """Arrow counts rows by its columns, so publications without any attribute still carry an id column."""
    return pa.RecordBatch.from_arrays([pa.array([""] * rows, STRING)], names=[ID])


AttributeRow = Mapping[str, AttributeValue]
