"""Publications on their way into a matcher."""

from __future__ import annotations

import pyarrow as pa

from lavant.pipeline.stream.stages import PUBLICATIONS_AT_ONCE, gathered


def slab(first: int, count: int, name: str = "a") -> pa.RecordBatch:
    return pa.record_batch({name: list(range(first, first + count))})


def test_little_slabs_are_gathered_and_large_ones_divided_in_their_order() -> None:
    slabs = [slab(0, 3), slab(3, 1), slab(4, PUBLICATIONS_AT_ONCE), slab(PUBLICATIONS_AT_ONCE + 4, 5)]
    batches = list(gathered(iter(slabs)))
    assert [batch.num_rows for batch in batches] == [PUBLICATIONS_AT_ONCE, 9]
    values = [value for batch in batches for value in batch.column("a").to_pylist()]
    assert values == list(range(PUBLICATIONS_AT_ONCE + 9))


def test_slabs_with_other_columns_are_not_mixed_and_keep_their_order() -> None:
    slabs = [slab(0, 2), slab(2, 2), slab(4, 1, "b"), slab(5, 2)]
    batches = [batch.to_pydict() for batch in gathered(iter(slabs))]
    assert batches == [{"a": [0, 1, 2, 3]}, {"b": [4]}, {"a": [5, 6]}]
