"""The index against each filter on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lavant.broker.filters import CANONICAL_LIMITS, Filter
from lavant.broker.matching.plain.matcher import PlainMatcher, PlainSegment
from lavant.broker.matching.plain.table import FilterTable
from lavant.core.publications.attributes import AttributeValue
from lavant.core.publications.batch import PublicationBatch

Row = Mapping[str, AttributeValue]


def expected(texts: Sequence[str], rows: Sequence[Row]) -> list[list[int]]:
    parsed = {text: Filter.parse(text, CANONICAL_LIMITS) for text in set(texts)}
    found = [{text for text, filter in parsed.items() if filter.matches(row)} for row in rows]
    return [[number for number, text in enumerate(texts) if text in matching] for matching in found]


def matched(matcher: PlainMatcher, rows: Sequence[Row]) -> list[list[int]]:
    matches = matcher.match(PublicationBatch.from_dicts(rows)).sorted()
    return [matches.of(i).tolist() for i in range(len(rows))]


def matcher_of(filters: FilterTable | Sequence[str]) -> PlainMatcher:
    """Filter number i has id i; all are in one segment."""
    matcher = PlainMatcher()
    matcher.add(np.arange(len(filters)), filters)
    return matcher


def segment_of(matcher: PlainMatcher) -> PlainSegment:
    (placed,) = matcher._state.segments
    assert isinstance(placed.segment, PlainSegment)
    return placed.segment


def assert_index_agrees(texts: Sequence[str], rows: Sequence[Row]) -> PlainSegment:
    matcher = matcher_of(texts)
    assert matched(matcher, rows) == expected(texts, rows)
    return segment_of(matcher)
