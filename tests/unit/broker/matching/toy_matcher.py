"""The smallest matcher that the segmented base can carry: a filter is a number, a publication matches its like.

It counts the rows that it builds, so that tests see what merging costs. An odd filter has two rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching.container import Arrays
from lavant.broker.matching.interface import Ids
from lavant.broker.matching.segmented import SegmentedMatcher

Numbers = NDArray[np.int64]


class ToyFilters(NamedTuple):
    numbers: Numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, indices: NDArray[np.intp]) -> ToyFilters:
        return ToyFilters(self.numbers[indices])

    @classmethod
    def concatenate(cls, parts: Sequence[ToyFilters]) -> ToyFilters:
        return cls(np.concatenate([part.numbers for part in parts]))

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {}, {"numbers": self.numbers}

    @classmethod
    def from_arrays(cls, meta: dict[str, Any], arrays: Arrays) -> ToyFilters:
        return cls(arrays["numbers"])


class ToySearch:
    def __init__(self, found: list[list[int]]) -> None:
        self.counts = np.array([len(ids) for ids in found], np.int64)
        self._found = found

    def fill(self, out: Ids, cursor: NDArray[np.int64]) -> None:
        for publication, ids in enumerate(self._found):
            for id in ids:
                out[cursor[publication]] = id
                cursor[publication] += 1

    def split(self) -> None:
        return None


class ToySegment(NamedTuple):
    row_ids: Ids
    row_numbers: Numbers

    @classmethod
    def build(cls, ids: Ids, filters: ToyFilters) -> ToySegment:
        rows = np.repeat(np.arange(len(ids)), np.where(filters.numbers % 2 == 1, 2, 1))[::-1]
        return cls(ids[rows], filters.numbers[rows])

    def search(self, batch: Numbers, dead: NDArray[np.bool_] | None) -> ToySearch:
        alive = np.ones(len(self.row_ids), np.bool_) if dead is None else ~dead
        return ToySearch([sorted(set(self.row_ids[alive & (self.row_numbers == n)].tolist())) for n in batch])

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {}, {"row_ids": self.row_ids, "row_numbers": self.row_numbers}


class ToyMatcher(SegmentedMatcher[ToyFilters, Numbers]):
    scheme = "toy"
    rows_built: ClassVar[int] = 0

    @classmethod
    def _build(cls, ids: Ids, filters: ToyFilters) -> ToySegment:
        assert np.all(ids[1:] > ids[:-1])
        ToyMatcher.rows_built += len(ids)
        return ToySegment.build(ids, filters)

    @classmethod
    def _segment_from_arrays(cls, meta: dict[str, Any], arrays: Arrays, filters: ToyFilters) -> ToySegment:
        return ToySegment(arrays["row_ids"], arrays["row_numbers"])

    @classmethod
    def _filters_type(cls) -> type[ToyFilters]:
        return ToyFilters

    def _batch_length(self, batch: Numbers) -> int:
        return len(batch)


def numbers(*values: int) -> ToyFilters:
    return ToyFilters(np.array(values, np.int64))
