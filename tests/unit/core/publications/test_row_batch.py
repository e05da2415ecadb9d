"""Rows give kernels the same columns as Arrow does."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.publications.test_batch import texts

from lavant.core.publications.attributes import INTEGER_MAX
from lavant.core.publications.batch import PublicationBatch
from lavant.core.publications.row_batch import RowBatch

NAMES = ("a", "b", "ü")
values = st.one_of(
    st.booleans(),
    st.integers(-INTEGER_MAX, INTEGER_MAX),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text("xyß€", max_size=2),
)
batches = st.lists(st.dictionaries(st.sampled_from(NAMES), values), max_size=6)


def same(mine: Any, other: Any) -> bool:
    return (mine is None) == (other is None) and (mine is None or np.array_equal(mine, other, equal_nan=True))


@given(batches)
def test_columns_of_rows_are_those_of_arrow(rows: list[dict[str, Any]]) -> None:
    mine, other = RowBatch(rows), PublicationBatch.from_dicts(rows)
    assert len(mine) == len(other)
    for name in (*NAMES, "nobody has it"):
        for _ in range(2):  # the second time, what was made the first time
            assert same(mine.numbers(name), other.numbers(name))
            assert (mine.strings(name) is None) == (other.strings(name) is None)
            if mine.strings(name) is not None:
                assert texts(mine.strings(name)) == texts(other.strings(name))
        assert same(mine.booleans(name), other.booleans(name))
        assert same(mine.presence(name), other.presence(name))


@given(batches)
def test_rows_become_arrow_columns_if_somebody_asks(rows: list[dict[str, Any]]) -> None:
    mine, other = RowBatch(rows), PublicationBatch.from_dicts(rows)
    assert mine.records.equals(other.records)
    assert (mine.attributes, mine.to_dicts()) == (other.attributes, other.to_dicts())
    assert mine.slice(1, 2).to_dicts() == other.slice(1, 2).to_dicts()
