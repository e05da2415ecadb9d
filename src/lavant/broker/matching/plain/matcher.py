"""The matcher for plaintext filters, and its immutable segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lavant.broker.filters import Filter
from lavant.broker.matching import container
from lavant.broker.matching.interface import Ids, Matches
from lavant.broker.matching.plain.bitmaps import Bitmaps, Cells, find_cells
from lavant.broker.matching.plain.encoder import SearchBatch, encode_filters
from lavant.broker.matching.plain.extras import ExtraConstraints
from lavant.broker.matching.plain.index import Checks, Index, build_index
from lavant.broker.matching.plain.literals import (
    NONE,
    FoundLiterals,
    Literals,
    PatternLiterals,
    TextBatch,
    build_literals,
    find_literals,
)
from lavant.broker.matching.plain.search import FoundRows, copy_ids, find_rows, select_ids
from lavant.broker.matching.plain.strings import StringTable
from lavant.broker.matching.plain.table import ConstraintKind, Dimension, FilterTable, fit_together
from lavant.broker.matching.runs import Runs, collect_runs
from lavant.broker.matching.segmented import SegmentedMatcher
from lavant.core.kernels.kernels import frozen
from lavant.core.publications.batch import PublicationBatch, check_batch

_NONE_DEAD = np.empty(0, np.bool_)
_NO_OFFSETS = np.empty(0, np.int64)
_NO_BYTES = frozen(np.empty(0, np.uint8))
_NO_TEXT = np.empty((0, 0), np.int32)
_NO_LITERALS = FoundLiterals(np.zeros(1, np.int64), np.empty(0, np.int32))
_PARTS: dict[str, Any] = {
    "index": Index,
    "checks": Checks,
    "extras": ExtraConstraints,
    "literals": Literals,
    "cells": Cells,
    "bitmaps": Bitmaps,
    "strings": StringTable,
}


@dataclass(frozen=True, eq=False)
class PlainSegment:
    """Immutable; built from filters or loaded from a file."""

    dimensions: tuple[Dimension, ...]
    strings: StringTable
    index: Index
    checks: Checks
    extras: ExtraConstraints
    literals: Literals
    cells: Cells
    bitmaps: Bitmaps
    twins: int
    """Number of subscriptions with several rows."""

    @classmethod
    def build(cls, ids: Ids, table: FilterTable) -> PlainSegment:
        literals = build_literals(table)
        index, checks, cells, bitmaps = build_index(ids, table, literals)
        twins = int(index.row_twin.max(initial=-1)) + 1
        parts = {
            "strings": table.strings,
            "index": index,
            "checks": checks,
            "extras": table.extras,
            "literals": literals,
            "cells": cells,
            "bitmaps": bitmaps,
        }
        return cls(dimensions=table.dimensions, twins=twins, **{name: _frozen(part) for name, part in parts.items()})

    @property
    def row_ids(self) -> Ids:
        return self.index.row_ids

    def search(self, batch: PublicationBatch, dead: NDArray[np.bool_] | None) -> FoundIds | SelectedIds:
        patterns = PatternLiterals(self.literals.of_pattern, self.literals.root)
        found = find_rows(self.index, self.checks, self.extras, patterns, self.bitmaps, self._events(batch))
        if dead is None and not self.twins:
            return FoundIds(self.index.row_ids, found)
        return SelectedIds(*select_ids(self.index, found, frozen(_NONE_DEAD if dead is None else dead), self.twins))

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        meta = {"dimensions": [[name, int(kind)] for name, kind in self.dimensions], "twins": self.twins}
        arrays = {f"{part}.{field}": array for part in _PARTS for field, array in getattr(self, part)._asdict().items()}
        return meta, arrays

    @classmethod
    def from_arrays(cls, meta: dict[str, Any], arrays: container.Arrays, table: FilterTable) -> PlainSegment:
        dimensions = tuple((name, ConstraintKind(kind)) for name, kind in meta["dimensions"])
        if "literals.root" not in arrays:  # written before literals could be keys
            literals = build_literals(table)
            arrays = {**arrays, **{f"literals.{field}": array for field, array in literals._asdict().items()}}
        parts: dict[str, Any] = {
            part: kind(*(frozen(arrays[f"{part}.{field}"]) for field in kind._fields)) for part, kind in _PARTS.items()
        }
        return cls(dimensions=dimensions, twins=meta["twins"], **parts)

    def _events(self, batch: PublicationBatch) -> SearchBatch:
        values = np.full((len(batch), len(self.dimensions)), np.nan)
        for d, (name, kind) in enumerate(self.dimensions):
            column = self._column(batch, name, kind)
            if column is not None:
                values[:, d] = column
        values += 0.0  # -0.0 and 0.0 are one key
        has_blocks = len(self.bitmaps.rows) > 0
        cells = find_cells(self.cells, values) if has_blocks else np.empty((1, 1, 0), np.uint8)
        if not len(self.literals.root_child):
            return SearchBatch(values, cells, _NO_TEXT, _NO_LITERALS)
        texts = self._texts(batch)
        return SearchBatch(values, cells, texts.text, find_literals(self.literals, texts))

    def _column(self, batch: PublicationBatch, name: str, kind: ConstraintKind) -> NDArray[np.float64] | None:
        match kind:
            case ConstraintKind.NUMBER:
                return batch.numbers(name)
            case ConstraintKind.STRING:
                column = batch.strings(name)
                return None if column is None else self.strings.positions(column)
            case ConstraintKind.BOOLEAN:
                return batch.booleans(name)
            case ConstraintKind.PRESENCE:
                return batch.presence(name)

    def _texts(self, batch: PublicationBatch) -> TextBatch:
        """The publications' strings, for the attributes that patterns compare."""
        text = np.full((len(self.literals.root_child), len(batch)), NONE, np.int32)
        starts, ends, data = [], [], []
        texts = size = 0
        for d in np.flatnonzero(self.literals.root != NONE):
            column = batch.strings(self.dimensions[d][0])
            if column is None:
                continue
            text[self.literals.root[d]] = (
                np.where(column.codes >= 0, column.codes + texts, NONE) if texts else column.codes
            )
            starts.append(column.offsets[:-1] + size)
            ends.append(column.offsets[1:] + size)
            data.append(column.data)
            texts += len(column.offsets) - 1
            size += len(column.data)
        if not starts:
            return TextBatch(text, _NO_OFFSETS, _NO_OFFSETS, _NO_BYTES)
        if len(starts) == 1:
            return TextBatch(text, starts[0], ends[0], frozen(data[0]))
        return TextBatch(text, np.concatenate(starts), np.concatenate(ends), frozen(np.concatenate(data)))


def _frozen(part: Any) -> Any:
    return type(part)(*map(frozen, part))


class FoundIds:
    """The fast path: runs of ids are copied as they are."""

    def __init__(self, row_ids: Ids, found: FoundRows) -> None:
        self.counts = found.counts
        self._row_ids = row_ids
        self._found = found

    def fill(self, out: Ids, cursor: NDArray[np.int64]) -> None:
        copy_ids(self._row_ids, self._found, out, cursor)

    def split(self) -> tuple[Runs, FoundIds] | None:
        found = self._found
        runs = collect_runs(found.run_start, found.run_length)
        if not runs.are_shorter:
            return None
        none = np.empty((len(found.counts), 0), np.int64)
        counts = np.bincount(found.hit_event, minlength=len(found.counts))
        return runs, FoundIds(self._row_ids, FoundRows(counts, none, none, found.hit_event, found.hit_row))


class SelectedIds:
    """Used where rows are dead or subscriptions have several rows: ids are selected first."""

    def __init__(self, counts: NDArray[np.int64], ids: Ids) -> None:
        self.counts = counts
        self._ids = ids

    def fill(self, out: Ids, cursor: NDArray[np.int64]) -> None:
        first = np.cumsum(self.counts) - self.counts
        out[np.arange(len(self._ids)) + np.repeat(cursor - first, self.counts)] = self._ids
        cursor += self.counts

    def split(self) -> None:
        return None


class PlainMatcher(SegmentedMatcher[FilterTable, PublicationBatch]):
    """Finds the matching subscriptions without trying each.

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

    def match(self, batch: PublicationBatch) -> Matches:
        """The subscriptions that each publication of the batch matches."""
        check_batch(batch)
        return super().match(batch)

    @classmethod
    def _fit(cls, parts: Sequence[FilterTable]) -> bool:
        return fit_together(parts)

    @property
    def dimensions(self) -> frozenset[Dimension]:
        """The attributes that the filters compare, with their types."""
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
        return PlainSegment.from_arrays(meta, arrays, filters)

    @classmethod
    def _filters_type(cls) -> type[FilterTable]:
        return FilterTable

    def _batch_length(self, batch: PublicationBatch) -> int:
        return len(batch)
