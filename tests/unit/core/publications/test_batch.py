"""Batches from rows and columns, and the columns that kernels read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.ids import PublicationId
from lavant.core.publications.attributes import ATTRIBUTES_MAX, INTEGER_MAX, STRING_BYTES_MAX
from lavant.core.publications.batch import PublicationBatch, StringColumn
from lavant.core.publications.columns import ATTRIBUTES_OF_A_BATCH_MAX
from lavant.core.publications.publication import Publication

Row = dict[str, Any]
MIXED: list[Row] = [{"a": 1}, {"a": 1.5}, {"a": "x"}, {"a": True}, {}]


def texts(column: StringColumn | None) -> list[str | None]:
    """The strings of a column, publication by publication."""
    assert column is not None
    words = [column.data[a:b].tobytes().decode() for a, b in zip(column.offsets, column.offsets[1:], strict=False)]
    return [None if code < 0 else words[code] for code in column.codes]


def numbers(batch: PublicationBatch, name: str) -> list[float | None]:
    column = batch.numbers(name)
    assert column is not None
    assert column.dtype == np.float64
    return [None if np.isnan(value) else float(value) for value in column]


def test_rows_come_back_without_what_is_absent() -> None:
    rows: list[Row] = [{"symbol": "YHOO", "volume": 300}, {"symbol": None, "price": 1.5}, {"listed": False}]
    assert PublicationBatch.from_dicts(rows).to_dicts() == [
        {"symbol": "YHOO", "volume": 300},
        {"price": 1.5},
        {"listed": False},
    ]


def test_no_rows_are_an_empty_batch() -> None:
    batch = PublicationBatch.from_dicts([])
    assert (len(batch), batch.attributes, batch.to_dicts()) == (0, (), [])


def test_rows_without_attributes_are_counted() -> None:
    batch = PublicationBatch.from_dicts([{}, {"a": None}, {}])
    assert (len(batch), batch.attributes) == (3, ())
    assert [publication.attributes for publication in batch.to_publications()] == [{}, {}, {}]


def test_attributes_keep_the_order_in_which_they_came() -> None:
    rows: list[Row] = [{"b": 1, "@id": "1"}, {"a": 2, "b": 3}]
    batch = PublicationBatch.from_dicts(rows)
    assert batch.attributes == ("b", "a")
    assert repr(batch) == "PublicationBatch(2 publications, attributes: b, a)"


def test_the_types_of_one_attribute_are_kept_apart() -> None:
    batch = PublicationBatch.from_dicts(MIXED)
    assert batch.attributes == ("a",)
    assert [(type(row["a"]), row["a"]) for row in batch.to_dicts()[:4]] == [
        (int, 1),
        (float, 1.5),
        (str, "x"),
        (bool, True),
    ]
    assert numbers(batch, "a") == [1.0, 1.5, None, None, None]
    assert texts(batch.strings("a")) == [None, None, "x", None, None]
    booleans = batch.booleans("a")
    assert booleans is not None
    assert [None if np.isnan(value) else value for value in booleans] == [None, None, None, 1.0, None]
    assert batch.presence("a").tolist() == [1.0, 1.0, 1.0, 1.0, 0.0]


def test_the_columns_of_a_slice_are_the_slices_of_the_columns() -> None:
    batch = PublicationBatch.from_dicts(MIXED * 3)
    for start, length in ((0, 15), (1, 4), (2, 1), (7, 8), (14, 5), (15, 3), (3, 0)):
        part = batch.slice(start, length)
        chosen = slice(start, start + length)
        assert part.to_dicts() == batch.to_dicts()[chosen]
        assert numbers(part, "a") == numbers(batch, "a")[chosen]
        assert texts(part.strings("a")) == texts(batch.strings("a"))[chosen]
        assert part.presence("a").tolist() == batch.presence("a").tolist()[chosen]
        whole, booleans = batch.booleans("a"), part.booleans("a")
        assert whole is not None
        assert booleans is not None
        assert np.array_equal(booleans, whole[chosen], equal_nan=True)


def test_a_slice_of_a_slice_counts_from_the_slice() -> None:
    batch = PublicationBatch.from_dicts([{"a": i} for i in range(10)])
    assert numbers(batch.slice(3, 5).slice(1, 2), "a") == [4.0, 5.0]


def test_what_nobody_has_as_that_type_is_none() -> None:
    batch = PublicationBatch.from_dicts([{"s": "x", "n": 1, "b": True}])
    assert [batch.numbers(name) for name in ("s", "b", "?")] == [None, None, None]
    assert [batch.strings(name) for name in ("n", "b", "?")] == [None, None, None]
    assert [batch.booleans(name) for name in ("s", "n", "?")] == [None, None, None]
    assert batch.presence("?").tolist() == [0.0]


def test_booleans_without_gaps_are_zeros_and_ones() -> None:
    column = PublicationBatch.from_dicts([{"b": True}, {"b": False}]).booleans("b")
    assert column is not None
    assert column.tolist() == [1.0, 0.0]


def test_strings_are_encoded_once_each() -> None:
    column = PublicationBatch.from_dicts([{"s": text} for text in ("x", "", "é", "x", "a\0")]).strings("s")
    assert texts(column) == ["x", "", "é", "x", "a\0"]
    assert column is not None
    assert len(column.offsets) - 1 == 4


def test_publications_survive_with_their_envelopes() -> None:
    sent = [
        Publication(attributes={"a": 1, "b": "x"}, id=PublicationId("7"), time_s=0.005, payload=b"\0\xff"),
        Publication(attributes={}, id=PublicationId("é" * 128)),
        Publication(attributes={"a": 2.0}, payload=b""),
    ]
    assert list(PublicationBatch.from_publications(sent).to_publications()) == sent


def test_a_batch_without_envelopes_makes_publications_with_defaults() -> None:
    assert list(PublicationBatch.from_dicts([{"a": 1}]).to_publications()) == [Publication(attributes={"a": 1})]


def test_an_envelope_that_some_rows_lack_is_filled_with_defaults() -> None:
    rows: list[Row] = [{"@id": "1", "@time_ms": 4, "@payload": b"p"}, {"@id": None, "a": 1}]
    assert PublicationBatch.from_dicts(rows).to_dicts() == [
        {"@id": "1", "@time_ms": 4, "@payload": b"p"},
        {"@id": "", "@time_ms": 0, "a": 1},
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({1: 2}, "an attribute name must be a string, got int 1"),
        ({"": 2}, "an attribute name must not be empty"),
        ({"@other": 2}, "attribute name '@other' starts with '@'"),
        ({"\ud800": 2}, "attribute name '\\ud800' holds a control character or a lone surrogate"),
        ({"a": [1]}, "attribute 'a' is of type list; use a string, an integer, a float or a boolean (and the payload"),
        ({"a": np.int64(1)}, "attribute 'a' is of type int64; use a string"),
        ({"a": b"x"}, "attribute 'a' is of type bytes; use a string"),
        ({"a": "\ud800"}, "column 'a' does not hold string values: 'utf-8' codec can't encode character"),
        ({"a": 2**53 + 1}, "integer 9007199254740993 of attribute 'a' is beyond ±2^53"),
        ({"a": -(2**53) - 1}, "integer -9007199254740993 of attribute 'a' is beyond ±2^53"),
        ({"a": 2**70}, "column 'a' does not hold int64 values"),
        (
            {"a": float("nan")},
            "attribute 'a' of publication 1 is nan; leave the attribute out where there is no number",
        ),
        ({"a": float("-inf")}, "attribute 'a' of publication 1 is -inf"),
        ({"a": "x" * (STRING_BYTES_MAX + 1)}, "'a' has a value of 65537 bytes, at most 65536 are allowed"),
        ({"@id": 5}, "column '@id' does not hold string values"),
        ({"@id": "x" * 129}, "a publication id must be a printable string of at most 128 characters"),
        ({"@id": "a\nb"}, "a publication id must be a printable string of at most 128 characters, got 'a\\nb'"),
        ({"@time_ms": "5"}, "column '@time_ms' does not hold int64 values"),
        ({"@time_ms": -1}, "@time_ms must be milliseconds since 1970, got -1"),
        ({"@payload": "text\ud800"}, "column '@payload' does not hold binary values"),
        ({"@payload": 5}, "column '@payload' does not hold binary values"),
        ({"@payload": bytes(2**20 + 1)}, "'@payload' has a value of 1048577 bytes, at most 1048576 are allowed"),
    ],
)
def test_a_row_that_cannot_be_accepted_is_refused_with_the_reason(row: dict[Any, Any], message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        PublicationBatch.from_dicts([{"ok": 1}, row])
    assert message in str(refused.value)


def test_values_at_the_limits_are_accepted() -> None:
    row = {"a": INTEGER_MAX, "b": -INTEGER_MAX, "c": "x" * STRING_BYTES_MAX, "@id": "é" * 128, "@payload": bytes(2**20)}
    assert PublicationBatch.from_dicts([row]).to_dicts() == [row]


def test_a_publication_has_no_more_attributes_in_a_batch_than_alone() -> None:
    row = {f"a{i}": i for i in range(ATTRIBUTES_MAX)}
    batch = PublicationBatch.from_dicts([row, {"other": 1}])
    assert len(list(batch.to_publications())) == 2
    with pytest.raises(
        LimitExceeded, match="publication 1 has 257 attributes, at most 256 are allowed; use the payload"
    ):
        PublicationBatch.from_dicts([row, {**row, "other": 1}])


def test_a_batch_has_a_bound_on_its_columns() -> None:
    starts = range(0, ATTRIBUTES_OF_A_BATCH_MAX, ATTRIBUTES_MAX)
    rows = [{f"a{start + i}": 1 for i in range(ATTRIBUTES_MAX)} for start in starts]
    assert len(PublicationBatch.from_dicts(rows).attributes) == ATTRIBUTES_OF_A_BATCH_MAX
    with pytest.raises(LimitExceeded, match="a batch has 4097 columns, at most 4096 are allowed; send smaller batches"):
        PublicationBatch.from_dicts([*rows, {"one more": 1}])
