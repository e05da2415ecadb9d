"""Refused rows: found all at once, with the reason that each has alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.matching.encrypted.values import EncryptedBatch
from lavant.core.errors import InvalidValue
from lavant.core.publications.attributes import ATTRIBUTES_MAX, INTEGER_MAX, STRING_BYTES_MAX
from lavant.core.publications.batch import PublicationBatch
from lavant.core.publications.publication import PAYLOAD_BYTES_MAX
from lavant.pipeline.stream.records import POINT, accept

NAN, INF = float("nan"), float("inf")
LONG = ["x" * STRING_BYTES_MAX, "y" * (STRING_BYTES_MAX + 1), "ä" * STRING_BYTES_MAX]
WIDE = [INTEGER_MAX, -INTEGER_MAX, INTEGER_MAX + 1, -INTEGER_MAX - 1, -(2**63), 2**63 - 1]
COLUMNS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.float64(), [1.0, NAN, INF, -INF]),
    (pa.float32(), [1.0, NAN, INF]),
    (pa.int64(), [1, *WIDE]),
    (pa.int8(), [1, -128]),
    (pa.uint64(), [1, INTEGER_MAX, INTEGER_MAX + 1, 2**64 - 1]),
    (pa.string(), ["a", "", *LONG]),
    (pa.large_string(), ["a", *LONG]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "b", LONG[1]]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "b"]),
    (pa.bool_(), [True, False]),
    (pa.date32(), [1]),
    (pa.list_(pa.int64()), [[1]]),
]
ENVELOPE: dict[str, tuple[pa.DataType, list[Any]]] = {
    "@id": (pa.string(), ["a", "", "x" * 128, "x" * 129, "\n", "ä"]),
    "@time_ms": (pa.int64(), [0, 5, -1, -7]),
    "@payload": (pa.binary(), [b"", b"x" * (PAYLOAD_BYTES_MAX + 1)]),
}
NAMES = ["a", "b", "c", "a", "", "x\n", "@other", "n" * 129]


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(1, 12))
    names, arrays = [], []
    for _ in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from([*NAMES[:4], *NAMES[:4], *NAMES[:4], *NAMES[4:], *ENVELOPE]))
        kind, values = ENVELOPE[name] if name in ENVELOPE else draw(st.sampled_from(COLUMNS))
        if draw(st.integers(0, 20)) == 0:
            kind, values = draw(st.sampled_from(COLUMNS))  # of a wrong type, for an envelope
        column = draw(st.lists(st.sampled_from([None, *values]), min_size=rows + 1, max_size=rows + 1))
        names.append(name)
        arrays.append(pa.array(column, kind).slice(1))
    if draw(st.integers(0, 15)) == 0:
        names += [f"many{number}" for number in range(ATTRIBUTES_MAX)]
        arrays += [pa.array(draw(st.lists(st.sampled_from([1, None]), min_size=rows, max_size=rows)), pa.int64())] * (
            ATTRIBUTES_MAX
        )
    return pa.RecordBatch.from_arrays(arrays, names=names)


def alone(make: Any, records: pa.RecordBatch, row: int) -> str | None:
    try:
        make(records.take(pa.array([row])))
    except InvalidValue as error:
        reason = str(error).replace("of publication 0 ", "").replace("publication 0 has", "a publication has")
        return reason.replace("encrypted publication 0 ", "encrypted publication ")
    return None


@given(batches())
def test_every_row_is_refused_for_the_reason_that_it_has_alone(records: pa.RecordBatch) -> None:
    accepted = accept("plain", records)
    reasons = [alone(PublicationBatch, records, row) for row in range(records.num_rows)]
    assert accepted.rejected == {row: reason for row, reason in enumerate(reasons) if reason is not None}
    assert accepted.rows.tolist() == [row for row, reason in enumerate(reasons) if reason is None]
    assert list(accepted.rejected) == sorted(accepted.rejected)
    if len(accepted.rows):
        good = PublicationBatch(records.take(pa.array(accepted.rows)))
        assert accepted.batch.records.equals(good.records)


NUMBERS = st.sampled_from([1.0, 2.5, 0.0, NAN, INF, 1e200, 1e-200, None])
VECTORS = st.one_of(st.none(), st.integers(0, 4).flatmap(lambda size: st.lists(NUMBERS, min_size=size, max_size=size)))


def of_points(records: pa.RecordBatch) -> EncryptedBatch:
    [vector] = records.column(POINT).to_pylist()
    if vector is None:
        raise InvalidValue("an encrypted publication has no vector")
    return EncryptedBatch(np.array([[NAN if number is None else number for number in vector]], np.float64))


@given(st.lists(VECTORS, min_size=1, max_size=12))
def test_every_vector_is_refused_for_the_reason_that_it_has_alone(vectors: list[list[float | None] | None]) -> None:
    records = pa.RecordBatch.from_arrays([pa.array(vectors, pa.list_(pa.float64()))], names=[POINT])
    accepted = accept("encrypted", records)
    lengths = [len(vector) for vector in vectors if vector is not None]
    usual = min(set(lengths), key=lambda length: (-lengths.count(length), length), default=0)
    for row, vector in enumerate(vectors):
        reason = alone(of_points, records, row)
        if vector is not None and len(vector) != usual:
            reason = f"an encrypted publication has a vector of {len(vector)} numbers, but others have {usual}"
        assert accepted.rejected.get(row) == reason
    assert accepted.rows.tolist() == [row for row in range(len(vectors)) if row not in accepted.rejected]
