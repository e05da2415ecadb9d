"""Arrow records in, what a matcher takes out; and the rows that no matcher can take, with the reason."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lavant.broker.matching.encrypted.values import EncryptedBatch
from lavant.core.batches import PublicationBatch
from lavant.core.errors import InvalidValue

POINT = "@point"
"""The column of an encrypted publication's vector, a list of doubles."""


class Accepted(NamedTuple):
    """A batch for the matcher, which rows it holds, and why the others are not in it."""

    batch: Any
    rows: NDArray[np.int64]
    rejected: dict[int, str]


def accept(scheme: str, records: pa.RecordBatch) -> Accepted:
    """The batch that a matcher of this scheme takes, without the rows that cannot be publications."""
    make = _encrypted if scheme == "encrypted" else PublicationBatch
    try:
        return Accepted(make(records), np.arange(records.num_rows), {})
    except InvalidValue:
        return _accept_row_by_row(make, records)


def encrypted_records(batch: EncryptedBatch, ids: list[str] | None = None) -> pa.RecordBatch:
    """An encrypted batch as records for the publication log."""
    points = np.ascontiguousarray(batch.points)
    column = pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), points.shape[1])
    names = pa.array(ids if ids is not None else [""] * len(points), pa.string())
    return pa.RecordBatch.from_arrays([names, column], names=["@id", POINT])


def _encrypted(records: pa.RecordBatch) -> EncryptedBatch:
    if POINT not in records.schema.names:
        raise InvalidValue(f"an encrypted publication needs a column {POINT!r}, got {records.schema.names}")
    column = records.column(POINT)
    if column.null_count:
        raise InvalidValue("an encrypted publication has no vector")
    flat = column.flatten().to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    if len(column) == 0 or len(flat) % len(column):
        raise InvalidValue("encrypted publications have vectors of different lengths")
    return EncryptedBatch(flat.reshape(len(column), -1))


def _accept_row_by_row(make: Any, records: pa.RecordBatch) -> Accepted:
    """Halve until the bad rows stand alone: cheap where they are few."""
    rejected: dict[int, str] = {}
    pending = [(0, records.num_rows)]
    good: list[tuple[int, int]] = []
    while pending:
        start, end = pending.pop()
        if start == end:
            continue
        try:
            make(records.slice(start, end - start))
            good.append((start, end))
        except InvalidValue as error:
            if end - start == 1:
                rejected[start] = str(error).replace("of publication 0 ", "")
            else:
                middle = (start + end) // 2
                pending += [(start, middle), (middle, end)]
    rows = np.array(sorted(row for start, end in good for row in range(start, end)), np.int64)
    kept = records.take(pa.array(rows))
    return Accepted(make(kept) if len(rows) else None, rows, rejected)
