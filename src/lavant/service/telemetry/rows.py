"""Rows of telemetry by column, until they are written."""

from __future__ import annotations

from array import array
from typing import NamedTuple

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
        names = pa.array(list(self._names), pa.string())
        columns = [
            pa.array(np.full(len(time_us), TELEMETRY_VERSION, np.int16)),
            pa.array(time_us),
            _texts(kind, pa.array([str(each) for each in Kind])),
            _texts(job_type, names),
            _texts(topic, names),
            pa.array(np.minimum(duration_us, DURATION_US_MAX), mask=duration_us < 0),
            _texts(is_failed, pa.array([str(Outcome.OK), str(Outcome.FAILED)])),
            *(pa.array(count) for count in counts),
            pa.repeat(pa.scalar(self._host), len(time_us)),
            pa.nulls(len(time_us), pa.int32()),
        ]
        self.clear()
        return pa.RecordBatch.from_arrays(columns, schema=TELEMETRY_SCHEMA)

    def clear(self) -> None:
        self._names: dict[str, int] = {"": 0}
        self._single = array("q")
        self._blocks: list[_Block] = []


def _texts(codes: Integers, texts: pa.Array) -> pa.Array:
    return texts.take(pa.array(codes))
