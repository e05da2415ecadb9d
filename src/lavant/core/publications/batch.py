"""Publications by column, the form that matchers take.

A `PublicationBatch` is an Arrow record batch. Three columns carry the envelope (`@id`, `@time_ms`, `@payload`); every
other column is an attribute, with null where a publication does not have it. An attribute with several types in
one batch has a column for each type, all of the same name. Attribute names cannot start with '@', so none collides.

The same flat shape is the row form: `{"symbol": "YHOO", "volume": 300, "@id": "7"}` as a dict or a line of JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lavant.core.errors import InvalidValue
from lavant.core.ids import PublicationId
from lavant.core.publications.columns import (
    BOOLEAN,
    ENVELOPE,
    FLOAT,
    INTEGER,
    checked_columns,
    columns_of_rows,
    is_string,
)
from lavant.core.publications.publication import ID, PAYLOAD, TIME, Publication, time_ms_of
from lavant.core.seconds import SECOND_MS


class StringColumn(NamedTuple):
    """Dictionary-encoded strings: publication i has string number `codes[i]`, or none if that is -1.

    String number c is the UTF-8 text `data[offsets[c]:offsets[c + 1]]`. A dictionary from outside may hold a string
    twice, or one that no publication uses.
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
        """Checks names, types and numbers; copies columns only if it must."""
        self.records = checked_columns(records)

    @cached_property
    def _by_name(self) -> dict[str, list[pa.Array]]:
        by_name: dict[str, list[pa.Array]] = {}
        for name, column in zip(self.records.schema.names, self.records.columns, strict=True):
            if name not in ENVELOPE:
                by_name.setdefault(name, []).append(column)
        return by_name

    @classmethod
    def from_dicts(cls, rows: Sequence[Mapping[str, Any]]) -> PublicationBatch:
        """Makes a batch from flat dicts; `@id`, `@time_ms` and `@payload` are optional, and None means absent."""
        try:
            return cls(columns_of_rows(rows))
        except (TypeError, AttributeError):  # of something else; a check of every row would cost more than this
            if isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
                raise
            raise InvalidValue(f"publications are a list of dicts, got {rows!r:.60}") from None

    @classmethod
    def from_publications(cls, publications: Iterable[Publication]) -> PublicationBatch:
        return cls.from_dicts(
            [{**p.attributes, ID: p.id, TIME: time_ms_of(p), PAYLOAD: p.payload} for p in publications],
        )

    def __len__(self) -> int:
        return int(self.records.num_rows)

    def __repr__(self) -> str:
        return f"PublicationBatch({len(self)} publications, attributes: {', '.join(self.attributes)})"

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names that occur, in order of appearance."""
        return tuple(self._by_name)

    def slice(self, start: int, length: int) -> PublicationBatch:
        """Returns a part of the batch without copying."""
        part = PublicationBatch.__new__(PublicationBatch)
        part.records = self.records.slice(start, length)
        return part

    # ---- rows -------------------------------------------------------------------------------------------------------

    def to_dicts(self) -> list[dict[str, Any]]:
        """Returns flat dicts without absent values."""
        rows: list[dict[str, Any]] = [{} for _ in range(len(self))]
        for name, column in zip(self.records.schema.names, self.records.columns, strict=True):
            for row, value in zip(rows, column.to_pylist(), strict=True):
                if value is not None:
                    row[name] = value
        return rows

    def to_publications(self) -> Iterator[Publication]:
        for row in self.to_dicts():
            id, time_ms, payload = row.pop(ID, ""), row.pop(TIME, 0), row.pop(PAYLOAD, None)
            yield Publication(id=PublicationId(id), time_s=time_ms / SECOND_MS, payload=payload, attributes=row)

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
        """1.0 where attribute `name` is present, of any type, else 0.0."""
        present = np.zeros(len(self))
        for column in self._by_name.get(name, ()):
            present += column.is_valid().to_numpy(zero_copy_only=False)
        return present

    def strings(self, name: str) -> StringColumn | None:
        """Strings of attribute `name`, by code; None if no publication has it as a string."""
        return self._string_columns.get(name)

    @cached_property
    def _string_columns(self) -> dict[str, StringColumn]:
        # Cached for all segments of a matcher: encoding costs more than a lookup.
        return {
            name: _encode_strings(column)
            for name, columns in self._by_name.items()
            for column in columns
            if is_string(column.type)
        }


def _encode_strings(column: pa.Array) -> StringColumn:
    if len(column) == 1 and not pa.types.is_dictionary(column.type):  # a dictionary of one string costs much more
        ends, blob = _texts_of(column)
        return StringColumn(np.zeros(1, np.int32) - column.null_count, ends - ends[0], blob[ends[0] : ends[1]])
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    codes = encoded.indices.cast(pa.int32())
    if codes.null_count:
        codes = codes.fill_null(-1)
    return StringColumn(codes.to_numpy(), *_texts_of(encoded.dictionary))


def _texts_of(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Where texts begin and end in their bytes, and these bytes."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return ends, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


def _as_doubles(column: pa.Array) -> NDArray[np.float64]:
    doubles: NDArray[np.float64]
    if column.null_count:
        column = column.cast(FLOAT).fill_null(float("nan"))
    doubles = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    return doubles


def check_batch(batch: PublicationBatch) -> None:
    """Raise if it is something else, such as a list of dicts."""
    if not isinstance(batch, PublicationBatch):
        raise InvalidValue(
            f"a batch is a lavant.PublicationBatch, as PublicationBatch.from_dicts makes it, got {batch!r:.40}"
        )
