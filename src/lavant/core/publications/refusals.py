"""Finds the rows of a batch that cannot be publications, all at once, with the reason for each.

`columns` decides whether a batch is valid and names its first problem. Here every bad row gets the reason that it
would have alone: its first bad column in the order of the columns, then what its columns are together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lavant.core.errors import InvalidValue
from lavant.core.publications.attributes import ATTRIBUTES_MAX, INTEGER_MAX, STRING_BYTES_MAX, check_name
from lavant.core.publications.columns import (
    ATTRIBUTES_OF_A_BATCH_MAX,
    ENVELOPE,
    checked_column,
    checked_columns,
    count_attributes,
    count_values,
    early,
    many_attributes,
    not_finite,
    repeated,
    too_large,
    wide,
)
from lavant.core.publications.publication import (
    ID,
    PAYLOAD,
    PAYLOAD_BYTES_MAX,
    PUBLICATION_ID_LENGTH_MAX,
    TIME,
    check_envelope,
)

Mask = NDArray[np.bool_]
Reason = Callable[[Any], str]
"""Of a bad value."""


def refused_rows(records: pa.RecordBatch) -> dict[int, str]:
    """The rows that are no publications, ascending, with the reason for each."""
    refused = _Refused(records.num_rows)
    try:
        _find(records, refused)
    except InvalidValue as error:  # a problem of a whole column or of the batch
        reason = str(error)
        refused.add(np.ones(records.num_rows, np.bool_), lambda _: reason, None)
    return dict(sorted(refused.reasons.items()))


class _Refused:
    """Reasons by row; the first one counts."""

    def __init__(self, rows: int) -> None:
        self.reasons: dict[int, str] = {}
        self._known = np.zeros(rows, np.bool_)

    def add(self, bad: Mask, reason: Reason, values: pa.Array | NDArray[Any] | None) -> None:
        rows = np.flatnonzero(bad & ~self._known)
        self._known[rows] = True
        if values is None:
            self.reasons |= dict.fromkeys(rows.tolist(), reason(None))
            return
        taken = values.take(pa.array(rows)).to_pylist() if isinstance(values, pa.Array) else values[rows].tolist()
        texts: dict[str, str] = {}  # NaN is not equal to itself, but its text is
        for row, value in zip(rows.tolist(), taken, strict=True):
            key = repr(value)
            if key not in texts:
                texts[key] = reason(value)
            self.reasons[row] = texts[key]


def _find(records: pa.RecordBatch, refused: _Refused) -> None:
    names = records.schema.names
    if len(names) > ATTRIBUTES_OF_A_BATCH_MAX:
        checked_columns(records)
    columns = []
    for name, column in zip(names, records.columns, strict=True):
        if name not in ENVELOPE:
            check_name(name)
        try:
            columns.append(checked_column(name, column))
        except InvalidValue:
            bad, reason, values = _bad_values(name, column)
            if not bad.any():
                raise
            refused.add(bad, reason, values)
            columns.append(checked_column(name, pc.if_else(pa.array(bad), pa.scalar(None, column.type), column)))
    if len(set(names)) < len(names):
        for name in dict.fromkeys(names):
            counts = count_values(name, names, columns)
            refused.add(counts > 1, lambda count, name=name: repeated(name, count), counts)  # type: ignore[misc]
    if len(names) > ATTRIBUTES_MAX:
        counts = count_attributes(names, columns)
        refused.add(counts > ATTRIBUTES_MAX, many_attributes, counts)


def _bad_values(name: str, column: pa.Array) -> tuple[Mask, Reason, pa.Array | NDArray[Any] | None]:
    """The bad values of a column; none where the column as a whole is bad."""
    kind = column.type
    if name in ENVELOPE and kind != ENVELOPE[name]:
        return np.zeros(len(column), np.bool_), str, None
    if name == TIME:
        return _mask(pc.less(column, 0)), early, column
    if name == ID:
        return np.array([_is_bad_id(id) for id in column.to_pylist()], np.bool_), _bad_id, column
    if name == PAYLOAD or pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        bytes_max = PAYLOAD_BYTES_MAX if name == PAYLOAD else STRING_BYTES_MAX
        sizes = pc.binary_length(column)
        return _mask(pc.greater(sizes, bytes_max)), lambda size: too_large(name, size, bytes_max), sizes
    if pa.types.is_floating(kind):
        return ~_mask(pc.is_finite(column), null=True), lambda value: not_finite(name, value), column
    if pa.types.is_integer(kind):
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        return (values > INTEGER_MAX) | (values < -INTEGER_MAX), lambda value: wide(name, value), values
    return np.zeros(len(column), np.bool_), str, None


def _mask(flags: pa.Array, *, null: bool = False) -> Mask:
    mask: Mask = flags.fill_null(null).to_numpy(zero_copy_only=False)
    return mask


def _is_bad_id(id: str | None) -> bool:
    return id is not None and (len(id) > PUBLICATION_ID_LENGTH_MAX or not id.isprintable())


def _bad_id(id: str) -> str:
    try:
        check_envelope(id=id, time_ms=0, payload=None)
    except InvalidValue as error:
        return str(error)
    raise AssertionError(f"{id!r} is a good id")
