"""The matcher for encrypted filters: every publication against every subscription, as the scheme requires.

Encrypted filtering cannot use containment or an index over values that it does not see (e-StreamHub, §VI.B: "each
publication has to be matched against each one of the stored subscriptions"), so this is brute force that suits the
hardware.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching.container import Arrays
from lavant.broker.matching.encrypted import kernels
from lavant.broker.matching.encrypted.kernels import LANES
from lavant.broker.matching.encrypted.precision import guard
from lavant.broker.matching.encrypted.values import EncryptedBatch, EncryptedFilters
from lavant.broker.matching.interface import Ids
from lavant.broker.matching.segmented import Segment, SegmentedMatcher
from lavant.core.errors import CorruptSnapshot, InvalidValue
from lavant.core.kernels.kernels import frozen

PUBLICATIONS_TOGETHER = 256
"""Publications tested against a block while it is in cache; small enough to stay there too."""

CANDIDATES_MIN = 4096
"""A kernel call continues until it has found about this many, or one block's worth where everything matches."""

Dead = NDArray[np.bool_]


class EncryptedSearch:
    """Matches in the order of the search; `fill` brings them into the order of the publications."""

    def __init__(self, publications: int) -> None:
        self.counts = np.zeros(publications, np.int64)
        self.decided_in_double = 0
        self._found: list[tuple[NDArray[np.int32], Ids]] = []

    def keep(self, publication: NDArray[np.int32], id: Ids) -> None:
        if len(id):
            self._found.append((publication, id))

    def fill(self, out: Ids, cursor: NDArray[np.int64]) -> None:
        for publication, id in self._found:
            kernels.place(publication, id, cursor, out)

    def split(self) -> None:
        """Its matches lie nowhere together."""
        return


class EncryptedSegment:
    """An immutable part of the subscriptions. Row i belongs to the i-th filter."""

    def __init__(self, ids: Ids, blocks: NDArray[np.float32], filters: EncryptedFilters | None) -> None:
        self._ids = frozen(ids)
        self._blocks = frozen(blocks)
        self._tests = None if filters is None else frozen(filters.tests)

    @classmethod
    def build(cls, ids: Ids, filters: EncryptedFilters) -> EncryptedSegment:
        return cls(ids, pack(filters), filters)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> EncryptedSegment:
        """On mapped arrays. The doubles are in the file once, as filters, and come with `with_filters`."""
        ids, blocks = arrays["ids"], arrays["blocks"]
        if blocks.ndim != 4 or blocks.shape[-1] != LANES or len(blocks) != -(-len(ids) // LANES):
            raise CorruptSnapshot(f"blocks of shape {blocks.shape} for {len(ids)} encrypted filters in {LANES} lanes")
        return cls(ids, blocks, None)

    def with_filters(self, filters: EncryptedFilters) -> EncryptedSegment:
        expected = (len(self._ids), *self._blocks.shape[1:3])
        if filters.tests.shape != expected:
            raise CorruptSnapshot(f"encrypted filters of shape {filters.tests.shape}, the blocks are of {expected}")
        return EncryptedSegment(self._ids, self._blocks, filters)

    @property
    def row_ids(self) -> Ids:
        return self._ids

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {}, {"ids": self._ids, "blocks": self._blocks}

    def search(self, batch: EncryptedBatch, dead: Dead | None) -> EncryptedSearch:
        """Find the rows that match; `dead` marks rows to leave out."""
        if batch.dimensions != self._blocks.shape[2]:
            raise InvalidValue(
                f"encrypted publications of {batch.dimensions} dimensions cannot match filters of "
                f"{self._blocks.shape[2]}; encrypt both with one key"
            )
        search = EncryptedSearch(len(batch))
        room = _Room(min(len(batch), PUBLICATIONS_TOGETHER))
        gone = frozen(np.empty(0, np.bool_) if dead is None else dead)
        points = frozen(batch.points)
        for start in range(0, len(batch), PUBLICATIONS_TOGETHER):
            self._search_tile(points[start : start + PUBLICATIONS_TOGETHER], start, gone, room, search)
        return search

    def _search_tile(
        self, points: NDArray[np.float64], start: int, dead: Dead, room: _Room, search: EncryptedSearch
    ) -> None:
        assert self._tests is not None, "filters come before the first search"
        band = np.float32(guard(points.shape[1]))
        singles = unit_vectors(points)
        dims = (0,) * points.shape[1]
        block = 0
        while block < len(self._blocks):
            block, found = kernels.survey(
                self._blocks, block, singles, dims, band,
                room.lowest, room.flags, room.flags_by_eight, room.publication, room.row, room.product,
            )  # fmt: skip
            publication, id = np.empty(found, np.int32), np.empty(found, np.uint32)
            kept, doubted = kernels.decide(
                room.publication[:found], room.row[:found], room.product[:found], band,
                self._tests, points, dead, self._ids,
                search.counts[start:], start, publication, id,
            )  # fmt: skip
            search.decided_in_double += doubted
            search.keep(publication[:kept], id[:kept])


class _Room:
    """Output buffers of the kernels, one set per search, so that several threads may search at once."""

    def __init__(self, publications: int) -> None:
        candidates = publications * LANES + max(publications * LANES, CANDIDATES_MIN)
        self.lowest = np.empty((4, LANES), np.float32)
        self.flags = np.empty(LANES, np.uint8)
        self.flags_by_eight = self.flags.view(np.uint64)
        self.publication = np.empty(candidates, np.int32)
        self.row = np.empty(candidates, np.int32)
        self.product = np.empty(candidates, np.float32)


def unit_vectors(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    """Scaled to length 1 in double precision, then rounded to single."""
    lengths = np.sqrt(np.einsum("...i,...i->...", vectors, vectors))
    return np.ascontiguousarray(vectors / lengths[..., None], dtype=np.float32)


def pack(filters: EncryptedFilters) -> NDArray[np.float32]:
    """Blocks of lanes; the last one is padded with copies of the last filter, which the search drops by their row."""
    rows = len(filters)
    padded = np.minimum(np.arange(-(-rows // LANES) * LANES), rows - 1)
    singles = unit_vectors(filters.tests)[padded]
    blocks = singles.reshape(-1, LANES, filters.tests_each, filters.dimensions)
    return np.ascontiguousarray(blocks.transpose(0, 2, 3, 1))


class EncryptedMatcher(SegmentedMatcher[EncryptedFilters, EncryptedBatch]):
    """Matches `EncryptedBatch` against `EncryptedFilters`, all of one dimension: that of the first filters added."""

    scheme: ClassVar[str] = "encrypted"

    @classmethod
    def _build(cls, ids: Ids, filters: EncryptedFilters) -> Segment[EncryptedBatch]:
        return EncryptedSegment.build(ids, filters)

    @classmethod
    def _segment_from_arrays(
        cls, meta: dict[str, Any], arrays: Arrays, filters: EncryptedFilters
    ) -> Segment[EncryptedBatch]:
        return EncryptedSegment.from_arrays(arrays).with_filters(filters)

    @classmethod
    def _filters_type(cls) -> type[EncryptedFilters]:
        return EncryptedFilters

    def _batch_length(self, batch: EncryptedBatch) -> int:
        return len(batch)

    def _check(self, filters: EncryptedFilters) -> EncryptedFilters:
        filters.check_vectors()  # those of a delta have not been checked
        shape = self._shape()
        if shape is not None and shape != filters.tests.shape[1:]:
            raise InvalidValue(
                f"encrypted filters of (tests, dimensions) {filters.tests.shape[1:]} cannot join those of {shape}; "
                "use one schema and key for all, or a matcher for each"
            )
        return filters

    def _shape(self) -> tuple[int, ...] | None:
        for placed in self._state.segments:
            return placed.filters.tests.shape[1:]
        return None
