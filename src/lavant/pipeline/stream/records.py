"""Turns Arrow records into batches for a matcher, and refuses rows that no matcher can take, with the reason."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lavant.broker.matching.encrypted.values import EncryptedBatch, length_problem, odd_lengths
from lavant.broker.matching.plain.table import ConstraintKind, Dimension
from lavant.core.errors import InvalidValue
from lavant.core.publications.batch import PublicationBatch
from lavant.core.publications.publication import ID
from lavant.core.publications.refusals import refused_rows

POINT = "@point"
"""The column of an encrypted publication's vector, a list of doubles."""
NO_VECTOR = "an encrypted publication has no vector"


class AcceptedRecords(NamedTuple):
    """A batch for the matcher, the rows it holds, and why the others are not in it."""

    batch: Any
    rows: NDArray[np.int64]
    rejected: dict[int, str]


def accept(scheme: str, records: pa.RecordBatch) -> AcceptedRecords:
    """The batch for a matcher of this scheme, without the rows that cannot be publications."""
    try:
        return AcceptedRecords(make_batch(scheme, records), np.arange(records.num_rows), {})
    except InvalidValue:
        rejected = _refused_points(records) if scheme == "encrypted" else refused_rows(records)
    is_good = np.ones(records.num_rows, np.bool_)
    is_good[list(rejected)] = False
    rows = np.flatnonzero(is_good)
    return AcceptedRecords(make_batch(scheme, records.take(pa.array(rows))) if len(rows) else None, rows, rejected)


def make_batch(scheme: str, records: pa.RecordBatch) -> Any:
    """The batch for a matcher of this scheme; raises if a row cannot be a publication."""
    return _encrypted(records) if scheme == "encrypted" else PublicationBatch(records)


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
    column = _points(records)
    if column.null_count:
        raise InvalidValue(NO_VECTOR)
    lengths = pc.list_value_length(column).to_numpy()
    if len(lengths) == 0 or (lengths != lengths[0]).any():
        raise InvalidValue("encrypted publications have vectors of different lengths")
    return EncryptedBatch(_vectors(column, lengths[0]))


def _vectors(column: pa.Array, dimensions: int) -> NDArray[np.float64]:
    """The lists, which are all of one length, as rows of a matrix."""
    flat = column.flatten().to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    vectors: NDArray[np.float64] = flat.reshape(len(column), max(int(dimensions), 0))
    return vectors


def _points(records: pa.RecordBatch) -> pa.Array:
    if POINT not in records.schema.names:
        raise InvalidValue(f"an encrypted publication needs a column {POINT!r}, got {records.schema.names}")
    column = records.column(POINT)
    if not _is_list_of_numbers(column.type):
        raise InvalidValue(f"column {POINT!r} must hold lists of doubles, got {column.type}")
    return column


def _is_list_of_numbers(type: pa.DataType) -> bool:
    is_list: bool = pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type)
    return is_list and bool(pa.types.is_floating(type.value_type) or pa.types.is_integer(type.value_type))


def _refused_points(records: pa.RecordBatch) -> dict[int, str]:
    """The rows without a usable vector: its length must be the most frequent one (the shortest of those)."""
    try:
        column = _points(records)
    except InvalidValue as error:
        return dict.fromkeys(range(records.num_rows), str(error))
    lengths = pc.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    known, counts = np.unique(lengths[lengths >= 0], return_counts=True)
    usual = known[np.argmax(counts)] if len(known) else -1
    rejected = dict.fromkeys(np.flatnonzero(lengths < 0).tolist(), NO_VECTOR)
    for row in np.flatnonzero((lengths >= 0) & (lengths != usual)).tolist():
        rejected[row] = f"an encrypted publication has a vector of {lengths[row]} numbers, but others have {usual}"
    rows = np.flatnonzero((lengths >= 0) & (lengths == usual))
    return dict(sorted((rejected | _refused_vectors(_vectors(column.take(pa.array(rows)), usual), rows)).items()))


def _refused_vectors(vectors: NDArray[np.float64], rows: NDArray[np.int64]) -> dict[int, str]:
    try:
        EncryptedBatch(vectors[:0])
    except InvalidValue as error:  # of the number of dimensions
        return dict.fromkeys(rows.tolist(), str(error))
    bad = np.flatnonzero(odd_lengths(vectors))
    return {int(rows[row]): length_problem("point of encrypted publication", vectors[row]) for row in bad}
