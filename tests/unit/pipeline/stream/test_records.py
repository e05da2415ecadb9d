"""Which rows of a batch are publications, and what is said of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.matching.encrypted.values import EncryptedBatch
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.stream.records import POINT, accept, encrypted_records

NAN = float("nan")


def points(vectors: list[Any], type: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(vectors, type or pa.list_(pa.float64()))], names=[POINT])


# ---- plain ----------------------------------------------------------------------------------------------------------


def test_a_good_batch_is_accepted_as_it_is() -> None:
    records = PublicationBatch.from_dicts([{"a": 1, "@id": "x"}, {"b": "y", "@id": "z"}]).records
    accepted = accept("plain", records)
    assert accepted.batch.to_dicts() == [{"a": 1, "@id": "x"}, {"b": "y", "@id": "z"}]
    assert (accepted.rows.tolist(), accepted.rejected) == ([0, 1], {})


def test_bad_rows_are_left_out_with_the_reason_and_the_others_keep_their_place() -> None:
    records = pa.RecordBatch.from_pydict({"a": [1.0, NAN, 3.0, float("inf"), 5.0]})
    accepted = accept("plain", records)
    assert accepted.rows.tolist() == [0, 2, 4]
    assert [row["a"] for row in accepted.batch.to_dicts()] == [1.0, 3.0, 5.0]
    assert list(accepted.rejected) == [1, 3]
    assert "nan" in accepted.rejected[1].lower()
    assert "inf" in accepted.rejected[3]
    assert "publication 0" not in " ".join(accepted.rejected.values())


def test_a_batch_of_bad_rows_only_has_no_batch() -> None:
    accepted = accept("plain", pa.RecordBatch.from_pydict({"a": [NAN, NAN]}))
    assert accepted.batch is None
    assert (accepted.rows.tolist(), list(accepted.rejected)) == ([], [0, 1])


def test_an_empty_batch_is_accepted() -> None:
    accepted = accept("plain", PublicationBatch.from_dicts([{"a": 1}]).records.slice(0, 0))
    assert (accepted.rows.tolist(), accepted.rejected) == ([], {})


@given(bad=st.lists(st.booleans(), max_size=40))
def test_exactly_the_bad_rows_are_refused_wherever_they_stand(bad: list[bool]) -> None:
    values = [NAN if is_bad else float(number) for number, is_bad in enumerate(bad)]
    accepted = accept("plain", pa.RecordBatch.from_pydict({"a": pa.array(values, pa.float64())}))
    good = [number for number, is_bad in enumerate(bad) if not is_bad]
    assert list(accepted.rejected) == [number for number, is_bad in enumerate(bad) if is_bad]
    assert accepted.rows.tolist() == good
    if good:
        assert [row["a"] for row in accepted.batch.to_dicts()] == good


# ---- encrypted ------------------------------------------------------------------------------------------------------


def test_encrypted_records_come_back_as_the_batch_they_were() -> None:
    batch = EncryptedBatch(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    records = encrypted_records(batch, ["p", "q"])
    assert records.column("@id").to_pylist() == ["p", "q"]
    accepted = accept("encrypted", records)
    assert np.array_equal(accepted.batch.points, batch.points)
    assert (accepted.rows.tolist(), accepted.rejected) == ([0, 1], {})
    assert encrypted_records(batch).column("@id").to_pylist() == ["", ""]


def test_a_stretch_of_encrypted_records_is_that_stretch() -> None:
    records = encrypted_records(EncryptedBatch(np.arange(1.0, 13.0).reshape(4, 3)))
    assert accept("encrypted", records.slice(1, 2)).batch.points.tolist() == [[4, 5, 6], [7, 8, 9]]


@pytest.mark.parametrize("type", [pa.list_(pa.float64()), pa.large_list(pa.float64()), pa.list_(pa.float32())])
def test_lists_of_any_kind_do(type: pa.DataType) -> None:
    accepted = accept("encrypted", points([[1, 2], [3, 4]], type))
    assert accepted.batch.points.tolist() == [[1, 2], [3, 4]]
    assert accepted.batch.points.dtype == np.float64


def test_vectors_that_cannot_be_are_left_out_with_the_reason() -> None:
    accepted = accept("encrypted", points([[1, 2], None, [NAN, 1], [3, 4], [None, 1], [0, 0]]))
    assert accepted.rows.tolist() == [0, 3]
    assert accepted.batch.points.tolist() == [[1, 2], [3, 4]]
    assert list(accepted.rejected) == [1, 2, 4, 5]
    assert accepted.rejected[1] == "an encrypted publication has no vector"
    assert accepted.rejected[5].startswith("point of encrypted publication is [0.0, 0.0]: its length must be")


@pytest.mark.parametrize("odd", [[1.0], [1.0, 2.0], [1.0, 2.0, 3.0, 4.0], [1.0] * 6])
def test_a_vector_of_another_length_is_left_out_and_does_not_shift_its_neighbours(odd: list[float]) -> None:
    """Two and four numbers are as many as three and three: cut into equal parts they would be other vectors."""
    vectors = [[1.0, 2.0, 3.0], odd, [4.0, 5.0, 6.0]]
    accepted = accept("encrypted", points(vectors))
    assert accepted.rows.tolist() == [0, 2]
    assert accepted.batch.points.tolist() == [vectors[0], vectors[2]]
    reason = f"an encrypted publication has a vector of {len(odd)} numbers, but others have 3"
    assert accepted.rejected == {1: reason}


def test_lengths_that_add_up_to_a_rectangle_are_still_different() -> None:
    accepted = accept("encrypted", points([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0]]))
    assert accepted.batch.points.tolist() == [[5, 6]]
    assert list(accepted.rejected) == [0]


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (pa.RecordBatch.from_pydict({"a": [1, 2]}), "needs a column '@point', got ['a']"),
        (pa.RecordBatch.from_pydict({POINT: [1.0, 2.0]}), "'@point' must hold lists of doubles, got double"),
        (pa.RecordBatch.from_pydict({POINT: [["x"], ["y"]]}), "'@point' must hold lists of doubles, got list<"),
    ],
)
def test_columns_that_hold_no_vectors_are_refused_row_by_row(records: pa.RecordBatch, reason: str) -> None:
    accepted = accept("encrypted", records)
    assert accepted.batch is None
    assert list(accepted.rejected) == [0, 1]
    assert all(reason in said for said in accepted.rejected.values())


def test_an_empty_encrypted_batch_has_no_rows() -> None:
    accepted = accept("encrypted", points([]))
    assert (accepted.batch, accepted.rows.tolist(), accepted.rejected) == (None, [], {})
