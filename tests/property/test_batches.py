"""Whatever rows there are, they survive every form that a batch has."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lavant.core.publications.attributes import INTEGER_MAX
from lavant.core.publications.batch import PublicationBatch
from lavant.core.publications.columns import ENVELOPE
from lavant.core.publications.json_lines import from_json_lines, to_json_lines
from lavant.core.publications.publication import TIME_MS_MAX

Row = dict[str, Any]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
PRINTABLE = st.characters(exclude_categories=["C", "Z"], include_characters=" ")
NAMES = st.one_of(
    st.sampled_from(["a", "b", "c"]), st.text(PRINTABLE, min_size=1, max_size=6).filter(lambda name: name[0] != "@")
)
VALUES = st.one_of(
    st.integers(-INTEGER_MAX, INTEGER_MAX),
    st.sampled_from([0, 1, 0.0, -0.0, 1.0, True, False, "", "1", "true"]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    TEXT,
)
ENVELOPES = st.fixed_dictionaries(
    {},
    optional={
        "@id": st.text(PRINTABLE, max_size=6),
        "@time_ms": st.integers(0, TIME_MS_MAX),
        "@payload": st.binary(max_size=6),
    },
)
ROWS = st.lists(
    st.builds(lambda envelope, row: {**row, **envelope}, ENVELOPES, st.dictionaries(NAMES, VALUES, max_size=4)),
    max_size=6,
)


def exact(rows: list[Row]) -> list[dict[str, tuple[type, str]]]:
    """Rows with types and signs of zero, and without an envelope's defaults, which a batch may fill in."""
    default = {"@id": "", "@time_ms": 0}
    return [
        {
            name: (type(value), repr(value))
            for name, value in row.items()
            if value is not None and not (name in default and value == default[name])
        }
        for row in rows
    ]


@given(ROWS)
def test_rows_survive_a_batch(rows: list[Row]) -> None:
    assert exact(PublicationBatch.from_dicts(rows).to_dicts()) == exact(rows)


@given(ROWS)
def test_rows_survive_lines_of_json(rows: list[Row]) -> None:
    lines = to_json_lines(PublicationBatch.from_dicts(rows))
    assert lines.count(b"\n") == len(rows)
    assert exact(from_json_lines(lines).to_dicts()) == exact(rows)


@given(ROWS)
def test_rows_survive_as_publications(rows: list[Row]) -> None:
    publications = list(PublicationBatch.from_dicts(rows).to_publications())
    again = list(PublicationBatch.from_publications(publications).to_publications())
    assert again == publications
    attributes = [{name: value for name, value in row.items() if name not in ENVELOPE} for row in rows]
    assert exact([p.attributes for p in again]) == exact(attributes)


@given(ROWS, st.data())
def test_a_slice_of_a_batch_is_a_batch_of_the_slice(rows: list[Row], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    length = data.draw(st.integers(0, len(rows) - start))
    part = PublicationBatch.from_dicts(rows).slice(start, length)
    assert exact(part.to_dicts()) == exact(rows[start : start + length])
    assert_columns_tell_the_rows(part, rows[start : start + length])


@given(ROWS)
def test_columns_tell_the_same_as_rows(rows: list[Row]) -> None:
    assert_columns_tell_the_rows(PublicationBatch.from_dicts(rows), rows)


def assert_columns_tell_the_rows(batch: PublicationBatch, rows: list[Row]) -> None:
    for name in batch.attributes:
        values = [row.get(name) for row in rows]
        assert batch.presence(name).tolist() == [float(value is not None) for value in values]
        expect_doubles(batch.numbers(name), [v if type(v) in (int, float) else None for v in values])
        expect_doubles(batch.booleans(name), [v if type(v) is bool else None for v in values])
        expect_strings(batch, name, [v if type(v) is str else None for v in values])


def expect_doubles(column: Any, values: list[Any]) -> None:
    if column is None:
        assert not any(value is not None for value in values)
    else:
        assert np.array_equal(column, [np.nan if v is None else float(v) for v in values], equal_nan=True)


def expect_strings(batch: PublicationBatch, name: str, values: list[str | None]) -> None:
    column = batch.strings(name)
    if column is None:
        assert not any(value is not None for value in values)
        return
    for code, value in zip(column.codes, values, strict=True):
        assert bool(code < 0) == (value is None)
        if value is not None:
            assert column.data[column.offsets[code] : column.offsets[code + 1]].tobytes() == value.encode()
