"""Arrays between tasks: whatever is encoded is decoded, in no more room than ids of 32 bits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.matching import Matches
from lavant.pipeline.operators.compact import decode_ids, encode_ids, narrow

IDS = st.integers(0, 2**32 - 1) | st.integers(0, 300) | st.sampled_from([0, 127, 128, 2**31, 2**32 - 1])


@given(st.lists(st.lists(IDS, max_size=20), max_size=8))
def test_ids_come_back_and_take_at_most_four_bytes_each(lists: list[list[int]]) -> None:
    offsets = np.cumsum([0, *map(len, lists)])
    ids = np.array([id for each in lists for id in each], np.uint32)
    data = encode_ids(Matches(offsets, ids))
    assert len(data) <= ids.nbytes
    assert decode_ids(offsets, data).tolist() == ids.tolist()


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_narrow_values_are_the_same_in_the_least_bytes(values: list[int]) -> None:
    found = narrow(np.array(values, np.uint32))
    assert found.tolist() == values
    assert found.itemsize == next(size for size in (1, 2, 4) if max(values, default=0) < 256**size)


def test_ascending_ids_of_a_slice_take_two_bytes_or_fewer() -> None:
    ids = np.arange(3, 100_000, 1600, dtype=np.uint32)
    assert len(encode_ids(Matches(np.array([0, len(ids)]), ids))) <= 2 * len(ids)
