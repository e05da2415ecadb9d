"""Rows of telemetry by column, until they are written."""

from __future__ import annotations

from itertools import repeat

import numpy as np
import pyarrow as pa

from lavant.core.telemetry import DURATION_US_MAX, TELEMETRY_SCHEMA, TELEMETRY_VERSION, Kind, Outcome

_KINDS = [str(kind) for kind in Kind]
_OUTCOMES = [str(outcome) for outcome in Outcome]
_CODES = {kind: code for code, kind in enumerate(Kind)}
NONE = -1
"""In place of a duration that is not there."""


class Rows:
    """Columns of integers; names by code."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.clear()

    def __len__(self) -> int:
        return len(self._time_us)

    def code(self, name: str) -> int:
        """Of a topic or job type."""
        return self._names.setdefault(name, len(self._names))

    def arrival(self, time_us: int, topic: int, publications: int, *, job_type: int = 0) -> None:
        self._add(Kind.ARRIVAL, time_us, topic, job_type, NONE, publications)

    def match(self, time_us: int, topic: int, *, publications: int, subscriptions: int, matches: int) -> None:
        self._add(Kind.MATCH, time_us, topic, 0, NONE, publications, subscriptions, matches)

    def timed(
        self, kind: Kind, time_us: int, topic: int, durations_us: list[int], *, job_type: int = 0, is_ok: bool = True
    ) -> None:
        """Services or responses that ended at the same time."""
        count = len(durations_us)
        self._kind.extend(repeat(_CODES[kind], count))
        self._time_us.extend(repeat(time_us, count))
        self._topic.extend(repeat(topic, count))
        self._job_type.extend(repeat(job_type, count))
        self._duration_us.extend(durations_us)
        self._outcome.extend(repeat(0 if is_ok else 1, count))
        for counts in (self._publications, self._subscriptions, self._matches):
            counts.extend(repeat(0, count))

    def take(self) -> pa.RecordBatch:
        """All rows, which are gone then."""
        count = len(self)
        names = pa.array(list(self._names), pa.string())
        durations_us = np.array(self._duration_us, np.int64)
        columns = {
            "version": pa.array(np.full(count, TELEMETRY_VERSION, np.int16)),
            "time_us": pa.array(self._time_us, pa.int64()),
            "kind": _texts(self._kind, pa.array(_KINDS)),
            "job_type": _texts(self._job_type, names),
            "topic": _texts(self._topic, names),
            "duration_us": pa.array(np.minimum(durations_us, DURATION_US_MAX), mask=durations_us < 0),
            "outcome": _texts(self._outcome, pa.array(_OUTCOMES)),
            "publications": pa.array(self._publications, pa.int64()),
            "subscriptions": pa.array(self._subscriptions, pa.int64()),
            "matches": pa.array(self._matches, pa.int64()),
            "host": pa.repeat(pa.scalar(self._host), count),
            "slice": pa.nulls(count, pa.int32()),
        }
        self.clear()
        return pa.RecordBatch.from_arrays([columns[name] for name in TELEMETRY_SCHEMA.names], schema=TELEMETRY_SCHEMA)

    def _add(
        self,
        kind: Kind,
        time_us: int,
        topic: int,
        job_type: int,
        duration_us: int,
        publications: int,
        subscriptions: int = 0,
        matches: int = 0,
    ) -> None:
        self._kind.append(_CODES[kind])
        self._time_us.append(time_us)
        self._topic.append(topic)
        self._job_type.append(job_type)
        self._duration_us.append(duration_us)
        self._outcome.append(0)
        self._publications.append(publications)
        self._subscriptions.append(subscriptions)
        self._matches.append(matches)

    def clear(self) -> None:
        self._names: dict[str, int] = {"": 0}
        self._kind: list[int] = []
        self._time_us: list[int] = []
        self._topic: list[int] = []
        self._job_type: list[int] = []
        self._duration_us: list[int] = []
        self._outcome: list[int] = []
        self._publications: list[int] = []
        self._subscriptions: list[int] = []
        self._matches: list[int] = []


def _texts(codes: list[int], texts: pa.Array) -> pa.Array:
    return texts.take(pa.array(codes, pa.int32()))
