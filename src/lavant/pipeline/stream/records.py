"""Turns Arrow records into batches for a matcher, and refuses rows that no matcher can take, with the reason."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lavant.broker.matching.encrypted.values import EncryptedBatch
from lavant.broker.matching.plain.table import ConstraintKind, Dimension
from lavant.core.errors import InvalidValue
from lavant.core.publications.batch import PublicationBatch
from lavant.core.publications.publication import ID

POINT = "@point"
"""The column of an encrypted publication's vector, a list of doubles."""


class AcceptedRecords(NamedTuple):
    """A batch for the matcher, the rows it holds, and why the others are not in it."""

    batch: Any
    rows: NDArray[np.int64]
    rejected: dict[int, str]


def accept(scheme: str, records: pa.RecordBatch) -> AcceptedRecords:
    """The batch for a matcher of this scheme, without the rows that cannot be publications."""
    make = _encrypted if scheme == "encrypted" else PublicationBatch
    try:
        return AcceptedRecords(make(records), np.arange(records.num_rows), {})
    except InvalidValue:
        return _accept_row_by_row(make, records, _odd_lengths(records) if scheme == "encrypted" else {})


def compared_columns(records: pa.RecordBatch, dimensions: Collection[Dimension]) -> pa.RecordBatch:
    """Only the attributes that filters compare: other values are no reason to refuse a publication.

    An attribute that filters only test for existence keeps that, with another value.
    """
    named = {name for name, _ in dimensions}
    columns: dict[int, pa.Array] = {}
    for place, (name, column) in enumerate(zip(records.schema.names, records.columns, strict=True)):
        if name in named:
            is_compared = (name, _kind(column.type)) in dimensions
            columns[place] = column if is_compared else _any_value(column)
    if not columns:  # Arrow counts rows by columns, so there is at least one
        return pa.RecordBatch.from_arrays([pa.array([""] * records.num_rows, pa.string())], names=[ID])
    return pa.RecordBatch.from_arrays(list(columns.values()), names=[records.schema.names[place] for place in columns])


def _kind(type: pa.DataType) -> ConstraintKind:
    if pa.types.is_boolean(type):
        return ConstraintKind.BOOLEAN
    return ConstraintKind.NUMBER if pa.types.is_integer(type) or pa.types.is_floating(type) else ConstraintKind.STRING


def _any_value(column: pa.Array) -> pa.Array:
    """A constant of the same type, where there is a value."""
    value = pa.scalar("" if _kind(column.type) is ConstraintKind.STRING else False).cast(column.type)
    return pc.if_else(column.is_valid(), value, pa.scalar(None, column.type))


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
    if not _is_list_of_numbers(column.type):
        raise InvalidValue(f"column {POINT!r} must hold lists of doubles, got {column.type}")
    if column.null_count:
        raise InvalidValue("an encrypted publication has no vector")
    lengths = pc.list_value_length(column).to_numpy()
    if len(lengths) == 0 or (lengths != lengths[0]).any():
        raise InvalidValue("encrypted publications have vectors of different lengths")
    flat = column.flatten().to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    return EncryptedBatch(flat.reshape(len(column), lengths[0]))


def _is_list_of_numbers(type: pa.DataType) -> bool:
    is_list: bool = pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type)
    return is_list and bool(pa.types.is_floating(type.value_type) or pa.types.is_integer(type.value_type))


def _odd_lengths(records: pa.RecordBatch) -> dict[int, str]:
    """Vectors whose length is not the most frequent one (the shortest of those): valid alone, but not with the rest."""
    if POINT not in records.schema.names or not _is_list_of_numbers(records.column(POINT).type):
        return {}
    lengths = pc.list_value_length(records.column(POINT)).fill_null(-1).to_numpy(zero_copy_only=False)
    known, counts = np.unique(lengths[lengths >= 0], return_counts=True)
    if len(known) < 2:
        return {}
    usual = known[np.argmax(counts)]
    return {
        int(row): f"an encrypted publication has a vector of {lengths[row]} numbers, but others have {usual}"
        for row in np.flatnonzero((lengths >= 0) & (lengths != usual))
    }


def _accept_row_by_row(make: Any, records: pa.RecordBatch, refused: dict[int, str]) -> AcceptedRecords:
    """Halve until the bad rows are alone: cheap where they are few. Some are `refused` already."""
    rejected = dict(refused)
    left = np.array([row for row in range(records.num_rows) if row not in refused], np.int64)
    rest = records.take(pa.array(left))
    pending = [(0, len(left))]
    good: list[tuple[int, int]] = []
    while pending:
        start, end = pending.pop()
        if start == end:
            continue
        try:
            make(rest.slice(start, end - start))
            good.append((start, end))
        except InvalidValue as error:
            if end - start == 1:
                rejected[int(left[start])] = _without_number(str(error))
            else:
                middle = (start + end) // 2
                pending += [(start, middle), (middle, end)]
    rows = left[np.array(sorted(row for start, end in good for row in range(start, end)), np.int64)]
    kept = records.take(pa.array(rows))
    return AcceptedRecords(make(kept) if len(rows) else None, rows, dict(sorted(rejected.items())))


def _without_number(reason: str) -> str:
    """A row that was tried alone is number 0 there, which means nothing to its sender."""
    return reason.replace("of publication 0 ", "").replace("encrypted publication 0 ", "encrypted publication ")
