"""Rows of telemetry by column, until they are written."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lavant.core.telemetry import DURATION_US_MAX, TELEMETRY_SCHEMA, TELEMETRY_VERSION, Kind, Outcome

_CODES = {kind: code for code, kind in enumerate(Kind)}
NONE = -1
"""In place of a duration that is not there."""

Integers = NDArray[np.int64]


class _Block(NamedTuple):
    """Rows by column; a single number stands for all of them."""

    kind: Integers | int
    time_us: Integers
    topic: Integers
    job_type: Integers | int = 0
    duration_us: Integers | int = NONE
    is_failed: Integers | int = 0
    publications: Integers | int = 0
    subscriptions: Integers | int = 0
    matches: Integers | int = 0


class Rows:
    """Single rows one after the other, many of one kind as blocks; names by code.

    Nothing here may take long at once, or hold the GIL for long: the server's loop would wait for it.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self.clear()

    def __len__(self) -> int:
        return len(self._single) // len(_Block._fields) + sum(len(block.time_us) for block in self._blocks)

    def code(self, name: str) -> int:
        """Of a topic or job type."""
        return self._names.setdefault(name, len(self._names))

    def arrival(self, time_us: int, topic: int, publications: int, *, job_type: int = 0) -> None:
        self._single.extend((_CODES[Kind.ARRIVAL], time_us, topic, job_type, NONE, 0, publications, 0, 0))

    def arrivals(self, times_us: Integers, topics: Integers, publications: Integers) -> None:
        if len(times_us):
            self._blocks.append(_Block(_CODES[Kind.ARRIVAL], times_us, topics, publications=publications))

    def match(self, time_us: int, topic: int, *, publications: int, subscriptions: int, matches: int) -> None:
        row = (_CODES[Kind.MATCH], time_us, topic, 0, NONE, 0, publications, subscriptions, matches)
        self._single.extend(row)

    def timed(
        self, kind: Kind, time_us: int, topic: int, duration_us: int, *, job_type: int = 0, is_ok: bool = True
    ) -> None:
        self._single.extend((_CODES[kind], time_us, topic, job_type, duration_us, int(not is_ok), 0, 0, 0))

    def timed_many(self, kind: Kind, times_us: Integers, topics: Integers, durations_us: Integers) -> None:
        if len(times_us):
            self._blocks.append(_Block(_CODES[kind], times_us, topics, duration_us=durations_us))

    def take(self) -> pa.RecordBatch:
        """All rows, which are gone then."""
        singles = np.frombuffer(self._single, np.int64).reshape(-1, len(_Block._fields))
        blocks = [*self._blocks, _Block(*singles.T)]
        kind, time_us, topic, job_type, duration_us, is_failed, *counts = (
            np.concatenate(
                [np.broadcast_to(column, len(block.time_us)) for block, column in zip(blocks, parts, strict=True)]
            )
            for parts in zip(*blocks, strict=True)
        )
        names = list(self._names)
        columns = [
            _numbers(np.full(len(time_us), TELEMETRY_VERSION, np.int16)),
            _numbers(time_us),
            _texts(kind, [str(each) for each in Kind]),
            _texts(job_type, names),
            _texts(topic, names),
            _numbers(np.minimum(duration_us, DURATION_US_MAX), there=duration_us >= 0),
            _texts(is_failed, [str(Outcome.OK), str(Outcome.FAILED)]),
            *map(_numbers, counts),
            _texts(np.zeros_like(time_us), [self._host]),
            pa.nulls(len(time_us), pa.int32()),
        ]
        self.clear()
        return pa.RecordBatch.from_arrays(columns, schema=TELEMETRY_SCHEMA)

    def clear(self) -> None:
        self._names: dict[str, int] = {"": 0}
        self._single = array("q")
        self._blocks: list[_Block] = []


# Not by `pa.array`: it looks whether it was given something of pandas', and imports that for a second or more, during
# which the server's loop comes to nothing.


def _numbers(values: NDArray[Any], *, there: NDArray[np.bool_] | None = None) -> pa.Array:
    valid = None if there is None else pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, pa.py_buffer(values)])


def _texts(codes: Integers, texts: Sequence[str]) -> pa.Array:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    distinct = pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))
    return distinct.take(_numbers(codes))
