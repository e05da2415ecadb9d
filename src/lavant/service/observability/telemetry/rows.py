"""Rows of telemetry by column, until they are written."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lavant.core.telemetry import DURATION_US_MAX, TELEMETRY_SCHEMA, TELEMETRY_VERSION, ObservationKind, Outcome

NONE = -1
"""Stands for a missing duration."""
BLOCK_ROWS_MAX = 1 << 16
"""Rows converted to columns at once; columns of one value are made once and shared."""
_CODED = pa.dictionary(pa.int32(), pa.string())
"""Strings are written by code instead of one by one, which halves the cost of a file."""
SCHEMA = pa.schema([field.with_type(_CODED) if field.type == pa.string() else field for field in TELEMETRY_SCHEMA])
_CODES = {kind: code for code, kind in enumerate(ObservationKind)}

Integers: TypeAlias = NDArray[np.int64]


class _Block(NamedTuple):
    """Rows by column; a single number stands for a constant column."""

    kind: Integers | int
    time_us: Integers
    topic: Integers | int
    job_type: Integers | int = 0
    duration_us: Integers | int = NONE
    is_failed: Integers | int = 0
    publications: Integers | int = 0
    subscriptions: Integers | int = 0
    matches: Integers | int = 0

    def split(self) -> Iterator[_Block]:
        for start in range(0, len(self.time_us), BLOCK_ROWS_MAX):
            end = start + BLOCK_ROWS_MAX
            yield _Block._make(each if isinstance(each, int) else each[start:end] for each in self)


class Rows:
    """Rows to write: single rows in sequence, many of one kind as blocks; names by code.

    No step may take long or hold the GIL for long: the event loop would wait for it.
    """

    def __init__(self, host: str) -> None:
        self._host = _texts([host])
        self.clear()

    def __len__(self) -> int:
        return len(self._single) // len(_Block._fields) + sum(len(block.time_us) for block in self._blocks)

    def code(self, name: str) -> int:
        """The code of a topic or job type."""
        return self._names.setdefault(name, len(self._names))

    def add(self, kind: ObservationKind, times_us: Integers, topics: Integers | int, **columns: Integers) -> None:
        """Add many rows of one kind, with its counts or durations."""
        if len(times_us):
            self._blocks.append(_Block(_CODES[kind], times_us, topics, **columns))

    def arrival(self, time_us: int, topic: int, publications: int, *, job_type: int = 0) -> None:
        self._single.extend((_CODES[ObservationKind.ARRIVAL], time_us, topic, job_type, NONE, 0, publications, 0, 0))

    def timed(
        self,
        kind: ObservationKind,
        time_us: int,
        topic: int,
        duration_us: int,
        *,
        job_type: int = 0,
        is_ok: bool = True,
    ) -> None:
        self._single.extend((_CODES[kind], time_us, topic, job_type, duration_us, int(not is_ok), 0, 0, 0))

    def take(self) -> pa.Table:
        """Remove and return all rows."""
        singles = np.frombuffer(self._single, np.int64).reshape(-1, len(_Block._fields))
        blocks, names = [*self._blocks, _Block(*singles.T)], _texts(self._names)
        batches = [self._batch(part, names) for block in blocks for part in block.split()]
        self.clear()
        return pa.Table.from_batches(batches, SCHEMA)

    def clear(self) -> None:
        self._names: dict[str, int] = {"": 0}
        self._single = array("q")
        self._blocks: list[_Block] = []

    def _batch(self, rows: _Block, names: pa.Array) -> pa.RecordBatch:
        length = len(rows.time_us)

        def numbers(values: Integers | int, dtype: type = np.int64) -> pa.Array:
            return _numbers(_column(values, length, dtype))

        def coded(codes: Integers | int, texts: pa.Array) -> pa.Array:
            return pa.DictionaryArray.from_arrays(numbers(codes, np.int32), texts)

        columns = [
            numbers(TELEMETRY_VERSION, np.int16),
            numbers(rows.time_us),
            coded(rows.kind, _KINDS),
            coded(rows.job_type, names),
            coded(rows.topic, names),
            _durations(_column(rows.duration_us, length, np.int64)),
            coded(rows.is_failed, _OUTCOMES),
            numbers(rows.publications),
            numbers(rows.subscriptions),
            numbers(rows.matches),
            coded(0, self._host),
            pa.nulls(length, pa.int32()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _column(values: Integers | int, length: int, dtype: type) -> NDArray[Any]:
    if isinstance(values, int):
        return _constant(values, dtype)[:length]
    return np.ascontiguousarray(values, dtype)


@lru_cache(maxsize=32)
def _constant(value: int, dtype: type) -> NDArray[Any]:
    return np.full(BLOCK_ROWS_MAX, value, dtype)


# Not `pa.array`: it checks for objects of pandas and imports pandas, which blocks the event loop for a second or more.


def _numbers(values: NDArray[Any], valid: pa.Buffer | None = None) -> pa.Array:
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, pa.py_buffer(values)])


def _durations(values: Integers) -> pa.Array:
    there = values != NONE
    valid = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    return _numbers(np.minimum(values, DURATION_US_MAX), valid)


def _texts(texts: Iterable[str]) -> pa.Array:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


_KINDS, _OUTCOMES = _texts(ObservationKind), _texts((Outcome.OK, Outcome.FAILED))
