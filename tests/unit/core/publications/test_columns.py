"""Arrow columns from outside: cast where that changes no value, refused where it would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.publications.batch import PublicationBatch, StringColumn

NARROW_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
INDICES = NARROW_INTEGERS


def batch_of(*columns: tuple[str, pa.Array]) -> PublicationBatch:
    return PublicationBatch(
        pa.RecordBatch.from_arrays([array for _, array in columns], names=[name for name, _ in columns])
    )


def texts(column: StringColumn | None) -> list[str | None]:
    assert column is not None
    assert column.codes.dtype == np.int32
    words = [column.data[a:b].tobytes().decode() for a, b in zip(column.offsets, column.offsets[1:], strict=False)]
    return [None if code < 0 else words[code] for code in column.codes]


def dictionary(codes: list[int | None], words: list[str | None], index: Any = None, value: Any = None) -> pa.Array:
    indices = pa.array(codes, pa.int32() if index is None else index)
    return pa.DictionaryArray.from_arrays(indices, pa.array(words, pa.string() if value is None else value))


@pytest.mark.parametrize("type", NARROW_INTEGERS, ids=str)
def test_integers_of_every_width_are_read(type: Any) -> None:
    batch = batch_of(("a", pa.array([1, None, 100], type)))
    assert batch.to_dicts() == [{"a": 1}, {}, {"a": 100}]
    column = batch.numbers("a")
    assert column is not None
    assert np.array_equal(column, [1.0, np.nan, 100.0], equal_nan=True)


@pytest.mark.parametrize("type", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_floats_of_every_width_are_read(type: Any) -> None:
    batch = batch_of(("a", pa.array(np.array([1.5, -0.25], type.to_pandas_dtype()))))
    column = batch.numbers("a")
    assert column is not None
    assert column.tolist() == [1.5, -0.25]


@pytest.mark.parametrize(("value", "type"), [(2**53, pa.int64()), (-(2**53), pa.int64()), (2**53, pa.uint64())])
def test_integers_up_to_two_to_the_53rd_are_exact(value: int, type: Any) -> None:
    column = batch_of(("a", pa.array([value], type))).numbers("a")
    assert column is not None
    assert int(column[0]) == value


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (2**53 + 1, pa.int64()),
        (-(2**53) - 1, pa.int64()),
        (2**53 + 1, pa.uint64()),
        (2**63, pa.uint64()),
        (2**64 - 1, pa.uint64()),
    ],
)
def test_integers_that_a_double_cannot_hold_are_refused(value: int, type: Any) -> None:
    with pytest.raises(LimitExceeded) as refused:
        batch_of(("a", pa.array([0, None, value], type)))
    assert str(refused.value) == (
        f"integer {value} of attribute 'a' is beyond ±2^53, where doubles skip integers; send it as a string"
    )


@pytest.mark.parametrize("type", [pa.float16(), pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_is_refused_with_its_row(type: Any, value: float) -> None:
    column = pa.array(np.array([0.0, value], type.to_pandas_dtype()))
    with pytest.raises(InvalidValue, match=f"attribute 'a' of publication 1 is {value}; leave the attribute out"):
        batch_of(("a", column))


def test_a_null_is_absent_and_not_refused_as_nan() -> None:
    batch = batch_of(("a", pa.array([None, 1.5])), ("b", pa.array([None, None], pa.float64())))
    assert batch.to_dicts() == [{}, {"a": 1.5}]
    column = batch.numbers("b")
    assert column is not None
    assert np.isnan(column).all()


@pytest.mark.parametrize("type", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_strings_of_every_layout_are_read(type: Any) -> None:
    batch = batch_of(("s", pa.array(["é", None, "", "a\0"], type)))
    assert texts(batch.strings("s")) == ["é", None, "", "a\0"]
    assert batch.to_dicts() == [{"s": "é"}, {}, {"s": ""}, {"s": "a\0"}]


@pytest.mark.parametrize("value", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_dictionaries_of_every_index_type_are_read(index: Any, value: Any) -> None:
    batch = batch_of(("s", dictionary([1, None, 0, 1], ["x", "é"], index, value)))
    assert texts(batch.strings("s")) == ["é", None, "x", "é"]
    assert batch.to_dicts() == [{"s": "é"}, {}, {"s": "x"}, {"s": "é"}]


def test_a_slice_of_a_dictionary_column_keeps_its_own_rows() -> None:
    batch = batch_of(("s", dictionary([1, None, 0, 1, None], ["x", "y"])))
    for start, length in ((0, 5), (1, 3), (2, 2), (4, 1), (5, 0)):
        part = batch.slice(start, length)
        assert texts(part.strings("s")) == ["y", None, "x", "y", None][start : start + length]
        assert part.presence("s").tolist() == [1.0, 0.0, 1.0, 1.0, 0.0][start : start + length]


def test_a_column_that_was_sliced_before_is_read_from_its_own_start() -> None:
    words = pa.array(["a", "bb", "ccc", "dd"])
    assert texts(batch_of(("s", words.slice(1, 2))).strings("s")) == ["bb", "ccc"]
    column = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int32()), words.slice(2, 2))
    assert texts(batch_of(("s", column)).strings("s")) == ["dd", "ccc"]
    assert batch_of(("@id", words.slice(3, 1))).to_dicts() == [{"@id": "dd"}]


def test_a_dictionary_may_hold_strings_that_nobody_has_and_strings_twice() -> None:
    batch = batch_of(("s", dictionary([0, 2, 2], ["x", "unused", "x"])))
    assert texts(batch.strings("s")) == ["x", "x", "x"]


def test_a_null_among_the_words_of_a_dictionary_makes_the_value_absent() -> None:
    batch = batch_of(("s", dictionary([0, 1, None, 2], ["x", None, ""])))
    assert texts(batch.strings("s")) == ["x", None, None, ""]
    assert batch.presence("s").tolist() == [1.0, 0.0, 0.0, 1.0]
    assert batch.to_dicts() == [{"s": "x"}, {}, {}, {"s": ""}]


def test_columns_of_nulls_and_of_nothing_are_fine() -> None:
    for words in ([], [None, None]):
        for column in (pa.array(words, pa.string()), dictionary([None] * len(words), [])):
            batch = batch_of(("s", column))
            assert texts(batch.strings("s")) == words
            assert batch.presence("s").tolist() == [0.0] * len(words)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1], pa.timestamp("ms")),
        pa.array([1], pa.date32()),
        pa.array([1], pa.decimal128(5)),
        pa.array([b"x"]),
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([None]),
        pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([5])),
    ],
    ids=lambda column: str(column.type),
)
def test_other_types_are_refused_by_name(column: pa.Array) -> None:
    with pytest.raises(InvalidValue) as refused:
        batch_of(("when", column))
    assert str(refused.value) == (
        f"column 'when' is of type {column.type}; cast it to string, integer, float or boolean, or leave it out"
    )


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("@id", pa.array([7]), "column '@id' is of type int64, expected string"),
        (
            "@id",
            pa.array(["a\tb"]),
            "a publication id must be a printable string of at most 128 characters, got 'a\\tb'",
        ),
        ("@id", pa.array(["x", "y" * 129]), "at most 128 characters, got 'yyy"),
        ("@time_ms", pa.array([5], pa.int32()), "column '@time_ms' is of type int32, expected int64"),
        ("@time_ms", pa.array([5, -3]), "@time_ms must be milliseconds since 1970, got -3"),
        ("@payload", pa.array(["x"]), "column '@payload' is of type string, expected binary"),
        ("@other", pa.array([1]), "attribute name '@other' starts with '@'"),
        ("s", pa.array(["x" * 65537]), "'s' has a value of 65537 bytes, at most 65536 are allowed"),
        ("s", dictionary([0], ["", "x" * 65537]), "'s' has a value of 65537 bytes, at most 65536 are allowed"),
    ],
)
def test_a_bad_column_is_refused_with_the_reason(name: str, column: pa.Array, message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        batch_of((name, column))
    assert message in str(refused.value)


def test_envelopes_may_hold_nulls() -> None:
    batch = batch_of(
        ("@id", pa.array([None, "1"])),
        ("@time_ms", pa.array([None, 1])),
        ("@payload", pa.array([None, b"x"])),
    )
    assert batch.to_dicts() == [{}, {"@id": "1", "@time_ms": 1, "@payload": b"x"}]


def test_a_table_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"is made of a pyarrow\.RecordBatch, got Table"):
        PublicationBatch(pa.table({"a": [1]}))


def test_columns_of_one_name_and_different_types_are_one_attribute() -> None:
    batch = batch_of(("a", pa.array([1, None, None])), ("a", pa.array([None, "x", None])))
    assert batch.to_dicts() == [{"a": 1}, {"a": "x"}, {}]
    assert batch.presence("a").tolist() == [1.0, 1.0, 0.0]


def test_a_publication_with_two_values_of_one_attribute_is_refused() -> None:
    with pytest.raises(
        InvalidValue, match="attribute 'a' of publication 1 has a value in 2 columns; leave null in all"
    ):
        batch_of(("a", pa.array([None, 1])), ("a", pa.array(["x", "y"])))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([1, None]), pa.array([None, 2], pa.int8())),
        (pa.array(["x", None]), dictionary([None, 0], ["y"])),
        (pa.array([1.5, None]), pa.array([None, 2.5], pa.float32())),
    ],
)
def test_two_columns_of_one_name_and_type_are_refused(first: pa.Array, second: pa.Array) -> None:
    with pytest.raises(InvalidValue, match="2 columns are named 'a' and two are of one type; join them into one"):
        batch_of(("a", first), ("a", second))


def test_numbers_are_not_copied_where_they_are_doubles_already() -> None:
    values = np.array([1.0, 2.0])
    column = batch_of(("a", pa.array(values))).numbers("a")
    assert column is not None
    assert np.shares_memory(column, values)
