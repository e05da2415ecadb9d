"""The matcher for encrypted filters: every publication against every subscription, as the scheme demands.

Encrypted filtering cannot use containment or an index over values that it does not see (e-StreamHub, §VI.B: "each
publication has to be matched against each one of the stored subscriptions"), so this one is about brute force that the
hardware likes.
"""

from __future__ import annotations

from typing import Any, ClassVar

from lavant.broker.matching.container import Arrays
from lavant.broker.matching.encrypted.segment import EncryptedSegment
from lavant.broker.matching.encrypted.values import EncryptedBatch, EncryptedFilters
from lavant.broker.matching.interface import Ids
from lavant.broker.matching.segmented import Segment, SegmentedMatcher
from lavant.core.errors import InvalidValue


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
        filters.check_vectors()  # those of a delta were not looked at before
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
