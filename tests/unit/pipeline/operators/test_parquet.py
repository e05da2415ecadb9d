"""Files of notifications as other readers see them."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.matching import Matches
from lavant.pipeline.operators import parquet
from lavant.pipeline.operators.parquet import encode
from lavant.pipeline.operators.parts import SCHEMA

TEXTS = st.none() | st.text(max_size=5)
ROWS = st.lists(st.tuples(st.lists(st.integers(0, 2**32 - 1), max_size=300), TEXTS, TEXTS), min_size=1, max_size=12)


@given(ROWS, st.integers(1, 400))
def test_any_rows_come_back_whatever_the_pages(rows: list[tuple[list[int], str | None, str | None]], page: int) -> None:
    lists = [ids for ids, _, _ in rows]
    matches = Matches(np.cumsum([0, *map(len, lists)]), np.array([id for ids in lists for id in ids], np.uint32))
    table = pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(len(rows)) + 2**40),
            pa.array([id for _, id, _ in rows], pa.string()),
            pa.array([reason for _, _, reason in rows], pa.string()),
        ],
        ["key", "id", "rejected"],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "PAGE_IDS", page)
        content = b"".join(encode(table, matches))
    found = pq.read_table(pa.BufferReader(content))
    assert found.schema.equals(SCHEMA)
    assert found.column("subscriptions").to_pylist() == lists
    for name in ("key", "id", "rejected"):
        assert found.column(name).to_pylist() == table.column(name).to_pylist()
    assert pq.read_table(pa.BufferReader(content), columns=["rejected"]).num_rows == len(rows)
    metadata = pq.read_metadata(pa.BufferReader(content))
    assert metadata.num_rows == len(rows)
    assert metadata.row_group(0).total_byte_size < len(content)


def test_long_lists_take_little_more_than_their_ids() -> None:
    ids = np.arange(3_000_000, dtype=np.uint32)
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), pa.nulls(3, pa.string()), pa.nulls(3, pa.string())],
                                      ["key", "id", "rejected"])  # fmt: skip
    content = b"".join(encode(rows, Matches(np.array([0, 1, 2_500_000, 3_000_000]), ids)))
    assert len(content) < 4 * len(ids) + 2000
    lists = pq.read_table(pa.BufferReader(content)).column("subscriptions").combine_chunks()
    assert lists.values.to_numpy().tolist() == ids.tolist()
    assert lists.offsets.to_pylist() == [0, 1, 2_500_000, 3_000_000]


def test_the_writer_is_named_in_the_form_that_readers_parse() -> None:
    """`VersionParser` of parquet-java: application, version, and the build in brackets."""
    rows = pa.record_batch(
        [[1], ["q"], [None]], schema=pa.schema([SCHEMA.field(name) for name in ("key", "id", "rejected")])
    )
    content = b"".join(encode(rows, Matches(np.array([0, 1]), np.array([5], np.uint32))))
    created_by = pq.ParquetFile(pa.BufferReader(content)).metadata.created_by
    assert re.fullmatch(r"(.*?)\s+version\s*(?:([^(]*?)\s*(?:\(\s*build\s*([^)]*?)\s*\))?)?", created_by)
