"""Telemetry as NumPy columns, cut into groups of one window, job type and topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lavant.core.telemetry import ANY_JOB_TYPE, ObservationKind, Outcome

_CODE = {kind: code for code, kind in enumerate(ObservationKind)}


class TelemetryColumns(NamedTuple):
    """The columns of telemetry that estimates need; a missing duration is 0."""

    time_us: NDArray[np.int64]
    kind: NDArray[np.int64]
    failed: NDArray[np.bool_]
    duration_us: NDArray[np.int64]
    publications: NDArray[np.int64]
    subscriptions: NDArray[np.int64]
    matches: NDArray[np.int64]

    def __bool__(self) -> bool:
        return self.time_us.size > 0

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> TelemetryColumns:
        return TelemetryColumns._make(column[rows] for column in self)

    def of_kind(self, kind: ObservationKind) -> TelemetryColumns:
        return self.take(self.kind == _CODE[kind])


class GroupKey(NamedTuple):
    """Identifies an estimate; estimates are sorted by it."""

    window_start_us: int
    job_type: str
    topic: str


class Names(NamedTuple):
    """Dictionary-encoded texts."""

    codes: NDArray[np.int64]
    texts: list[str]


def columns_of(records: pa.RecordBatch) -> TelemetryColumns:
    """Returns the columns of checked telemetry."""
    kinds = pa.array([str(kind) for kind in ObservationKind], pa.string())
    return TelemetryColumns(
        time_us=_integers(records.column("time_us")),
        kind=_integers(pc.index_in(records.column("kind"), value_set=kinds)),
        failed=pc.equal(records.column("outcome"), Outcome.FAILED).to_numpy(zero_copy_only=False),
        duration_us=_integers(records.column("duration_us").fill_null(0)),
        publications=_integers(records.column("publications")),
        subscriptions=_integers(records.column("subscriptions")),
        matches=_integers(records.column("matches")),
    )


def groups(
    records: pa.RecordBatch, *, window_us: int, topics_overall: bool
) -> Iterator[tuple[GroupKey, NDArray[np.int64]]]:
    """Yields each window, job type and topic that occurs, with the indices of its rows."""
    starts = _integers(records.column("time_us")) // window_us * window_us
    job_types, topics = _names(records.column("job_type")), _names(records.column("topic"))
    yield from _grouped(starts, job_types, topics)
    if topics_overall:
        yield from _grouped(starts, Names(np.zeros_like(job_types.codes), [ANY_JOB_TYPE]), topics)


def _grouped(
    starts: NDArray[np.int64], job_types: Names, topics: Names
) -> Iterator[tuple[GroupKey, NDArray[np.int64]]]:
    order = np.lexsort((topics.codes, job_types.codes, starts))
    keys = np.stack([starts, job_types.codes, topics.codes])[:, order]
    borders = np.flatnonzero((np.diff(keys) != 0).any(axis=0)) + 1
    for rows in np.split(order, borders) if order.size else ():
        first = rows[0]
        yield (
            GroupKey(int(starts[first]), job_types.texts[job_types.codes[first]], topics.texts[topics.codes[first]]),
            rows,
        )


def _names(column: pa.Array) -> Names:
    encoded = column.dictionary_encode()
    return Names(_integers(encoded.indices), encoded.dictionary.to_pylist())


def _integers(column: pa.Array) -> NDArray[np.int64]:
    integers: NDArray[np.int64] = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return integers
