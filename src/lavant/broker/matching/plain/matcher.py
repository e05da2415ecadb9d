"""The plaintext matcher: filters in, ids out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from lavant.broker.filters import Filter
from lavant.broker.matching import container
from lavant.broker.matching.interface import Ids
from lavant.broker.matching.plain.encode import encode_filters
from lavant.broker.matching.plain.segment import PlainSegment
from lavant.broker.matching.plain.table import Dimension, FilterTable, fit_together
from lavant.broker.matching.segmented import SegmentedMatcher
from lavant.core.batches import PublicationBatch


class PlainMatcher(SegmentedMatcher[FilterTable, PublicationBatch]):
    """Finds the subscriptions that match, without trying each.

    Filters are a `FilterTable` (by column, for many), or a sequence of filters or of their texts.

    >>> matcher = PlainMatcher()
    >>> matcher.add([1, 2, 3], ["volume > 300", "symbol = 'IBM'", "symbol like 'Y%'"])
    >>> matcher.match(PublicationBatch.from_dicts([{"symbol": "IBM", "volume": 500}])).of(0).tolist()
    [1, 2]
    """

    scheme = "plain"

    def __init__(self) -> None:
        super().__init__()
        self._known_dimensions: tuple[object, frozenset[Dimension]] = (None, frozenset())

    def add(self, ids: Sequence[int] | NDArray[Any], filters: FilterTable | Sequence[Filter | str]) -> None:
        """Subscribe: the i-th id to the i-th filter. All or nothing; an id that is taken is an error."""
        super().add(ids, filters if isinstance(filters, FilterTable) else encode_filters(filters))

    @classmethod
    def _fit(cls, parts: Sequence[FilterTable]) -> bool:
        return fit_together(parts)

    @property
    def dimensions(self) -> frozenset[Dimension]:
        """Which attributes the filters that are there compare, and as what."""
        state, known = self._known_dimensions
        if state is not self._state:
            state = self._state
            known = frozenset(dim for placed in state.segments for dim in placed.survivors()[1].dimensions)
            self._known_dimensions = state, known
        return known

    @classmethod
    def _build(cls, ids: Ids, filters: FilterTable) -> PlainSegment:
        return PlainSegment.build(ids, filters)

    @classmethod
    def _segment_from_arrays(cls, meta: dict[str, Any], arrays: container.Arrays, filters: FilterTable) -> PlainSegment:
        return PlainSegment.from_arrays(meta, arrays)

    @classmethod
    def _filters_type(cls) -> type[FilterTable]:
        return FilterTable

    def _batch_length(self, batch: PublicationBatch) -> int:
        return len(batch)
