"""Maps strings to positions, so that kernels compare numbers.

A table holds, sorted and once each, all strings that its filters compare with. Entry i sits at position 2i + 1; a
string that is not in the table falls on the even position between its neighbours:

    position     0      1     2      3     4
                     'IBM'        'YHOO'
    'AIG' → 0    'IBM' → 1    'SPY' → 2    'YHOO' → 3    'ZZ' → 4

So "at least entry i" is `position >= 2i + 1`, "above entry i" `>= 2i + 2`, "below entry i" `<= 2i`, "at most entry i"
`<= 2i + 1`, and every comparison, equality and prefix is an interval of positions. UTF-8 sorts like its code points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lavant.core.kernels.kernels import frozen, kernel
from lavant.core.publications.batch import StringColumn


class StringTable(NamedTuple):
    """Entry i is `data[offsets[i]:offsets[i + 1]]`."""

    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]

    @property
    def entries(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> StringTable:
        """A table of texts that are already sorted."""
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(text) for text in texts], out=offsets[1:])
        return cls(offsets, np.frombuffer(b"".join(texts), np.uint8))

    @classmethod
    def union(cls, tables: Sequence[StringTable]) -> tuple[StringTable, list[NDArray[np.int64]]]:
        """All entries of all tables, and for each table the new number of each of its entries."""
        arrays = [table.to_arrow() for table in tables]
        distinct = pc.unique(pa.chunked_array(arrays, pa.large_binary()))
        merged = distinct.take(pc.array_sort_indices(distinct))
        if isinstance(merged, pa.ChunkedArray):
            merged = merged.combine_chunks()
        maps = [pc.index_in(array, value_set=merged).to_numpy().astype(np.int64) for array in arrays]
        return cls.from_arrow(merged), maps

    def to_arrow(self) -> pa.Array:
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), self.entries, buffers)

    @classmethod
    def from_arrow(cls, array: pa.Array) -> StringTable:
        array = array.cast(pa.large_binary())
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        blob = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        return cls(ends - ends[0], blob[ends[0] : ends[-1]])

    def keep(self, chosen: NDArray[np.bool_]) -> StringTable:
        """The chosen entries."""
        return StringTable.from_arrow(self.to_arrow().filter(pa.array(chosen)))

    def positions(self, column: StringColumn) -> NDArray[np.float64]:
        """The position of each publication's string; NaN where it has none."""
        of_code = np.empty(len(column.offsets), np.float64)  # one more than codes: code -1 reads the NaN at the end
        of_code[-1] = np.nan
        own, sought = (frozen(self.offsets), frozen(self.data)), (frozen(column.offsets), frozen(column.data))
        _find_positions(*own, *sought, of_code)
        return of_code[column.codes]


def low_entries(position: NDArray[Any]) -> NDArray[np.int64]:
    """The entries at lower ends of intervals: 2i + 1 is "at least i", 2i + 2 "above i"."""
    return np.ceil(position / 2).astype(np.int64) - 1


def high_entries(position: NDArray[Any]) -> NDArray[np.int64]:
    """The entries at upper ends of intervals: 2i is "below i", 2i + 1 "at most i"."""
    return np.floor(position / 2).astype(np.int64)


def remap_low(position: NDArray[Any], new_number: NDArray[np.int64]) -> NDArray[np.float64]:
    """Lower ends of intervals, mapped to another table."""
    entry = low_entries(position)
    return np.asarray(2.0 * new_number[entry] + (position - 2.0 * entry), np.float64)


def remap_high(position: NDArray[Any], new_number: NDArray[np.int64]) -> NDArray[np.float64]:
    """Upper ends of intervals, mapped to another table."""
    entry = high_entries(position)
    return np.asarray(2.0 * new_number[entry] + (position - 2.0 * entry), np.float64)


@kernel
def compare_bytes(
    a: NDArray[np.uint8], a_start: int, a_end: int, b: NDArray[np.uint8], b_start: int, b_end: int
) -> int:
    """Negative, zero or positive as `a[a_start:a_end]` sorts before, with or after `b[b_start:b_end]`."""
    common = min(a_end - a_start, b_end - b_start)
    for k in range(common):
        x, y = a[a_start + k], b[b_start + k]
        if x != y:
            return -1 if x < y else 1
    return (a_end - a_start) - (b_end - b_start)


@kernel
def _find_positions(
    table_offsets: NDArray[np.int64],
    table_data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    out: NDArray[np.float64],
) -> None:
    for i in range(len(offsets) - 1):
        low, high = 0, len(table_offsets) - 1
        exact = 0
        while low < high:
            middle = (low + high) // 2
            order = compare_bytes(
                table_data, table_offsets[middle], table_offsets[middle + 1], data, offsets[i], offsets[i + 1]
            )
            if order < 0:
                low = middle + 1
            else:
                high = middle
                if order == 0:
                    exact = 1
                    low = middle
        out[i] = 2 * low + exact
