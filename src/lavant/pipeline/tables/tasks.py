"""What a task does with its rows: match the attributes that filters compare, and return ids and reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lavant.broker.matching import Matches
from lavant.broker.matching.merge import merge
from lavant.broker.slices import SliceReader
from lavant.core.errors import InvalidValue
from lavant.pipeline.internals.worker_errors import refusals_in_one_line
from lavant.pipeline.operators.open_slices import SlicePlace, open_slice
from lavant.pipeline.stream.records import accept, compared_columns
from lavant.pipeline.tables.columns import TableAttribute, attribute_columns
from lavant.pipeline.tables.indexes import TableIndex, dimensions_of, open_group, open_ids

ROWS_AT_FIRST, ROWS_MAX = 64, 65_536
"""Rows that a task matches together, before it knows how much they match, and at most."""
BYTES_AT_ONCE = 16 * 2**20
"""Compared values that a task holds before it matches them."""
IDS_AT_ONCE = 1_000_000
"""Matches that rows should have together; Spark keeps them in memory."""

SUBSCRIPTIONS, SUBSCRIPTION, REJECTED = "subscriptions", "subscription", "rejected"
"""Names of the columns that a result adds: of all ids, of one id, and of the reason."""

Batches = Iterator[pa.RecordBatch]
ColumnTask = Callable[[Iterator[tuple[pa.Array, ...]]], Iterator[pa.Array]]


class RowMatches(NamedTuple):
    """The matches of some rows, and why other rows were not compared."""

    counts: NDArray[np.int64]
    ids: pa.Array
    rejected: dict[int, str]


class TableMatcher:
    """Matches rows of a table against a group of an index, or against a version of a store, by default the latest."""

    def __init__(
        self,
        source: TableIndex | SlicePlace,
        attributes: list[TableAttribute],
        *,
        group: int = 0,
        version: int | None = None,
    ) -> None:
        self._attributes = attributes
        self._ids: pa.Array | None = None
        if isinstance(source, TableIndex):
            self._scheme = source.scheme
            self._matchers = [open_group(source, group)]
            self._ids = open_ids(source)
            self._dimensions = source.dimensions  # of all groups, which refuse the same rows
        else:
            read = SliceReader(source.storage, source.identity).version(version)
            self._scheme = source.scheme
            self._matchers = [open_slice(source, number, read).matcher for number in range(len(read.slices))]
            self._dimensions = dimensions_of(self._matchers)

    def match(self, rows: pa.RecordBatch) -> RowMatches:
        records, rejected = attribute_columns(rows, self._attributes, self._dimensions)
        if self._dimensions is not None:
            records = compared_columns(records, self._dimensions)
        accepted = accept(self._scheme, records)
        rejected = {**accepted.rejected, **rejected}
        counts = np.zeros(rows.num_rows, np.int64)
        numbers = np.empty(0, np.uint32)
        if len(accepted.rows):
            try:
                matches = merge([matcher.match(accepted.batch) for matcher in self._matchers])
            except InvalidValue as error:  # well-formed, but not for these subscriptions: of another schema, say
                rejected |= dict.fromkeys(accepted.rows.tolist(), str(error))
            else:
                counts[accepted.rows] = np.diff(matches.offsets)
                numbers = _without(matches, accepted.rows, rejected, counts)
        ids = pa.array(numbers.astype(np.int64)) if self._ids is None else self._ids.take(pa.array(numbers))
        return RowMatches(counts, ids, rejected)


def _without(
    matches: Matches, rows: NDArray[np.int64], rejected: dict[int, str], counts: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """The ids without those of rejected rows, whose counts become 0."""
    is_rejected = np.zeros(len(counts), np.bool_)
    is_rejected[list(rejected)] = True
    if not counts[is_rejected].any():
        return matches.ids
    kept = matches.ids[np.repeat(~is_rejected[rows], np.diff(matches.offsets))]
    counts[is_rejected] = 0
    return kept


def matching_rows(source: TableIndex | SlicePlace, attributes: list[TableAttribute]) -> ColumnTask:
    """The task of a plan without a shuffle: the attributes of its rows against all subscriptions.

    It returns a struct of the ids and the reason for each row. The other columns of a row stay in Spark's Java process.
    """
    names, alone = _arguments(attributes)

    def lavant_match_whole_index(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        with refusals_in_one_line():
            yield from _found(TableMatcher(source, alone), _gathered(_records(batches, names)))

    return lavant_match_whole_index


def matching_group(index: TableIndex, attributes: list[TableAttribute]) -> ColumnTask:
    """The task of a plan with a shuffle: rows that were copied for a group of subscriptions against that group.

    The first column is the number of the group; rows of one group follow each other.
    """
    names, alone = _arguments(attributes)

    def lavant_match_slice_group(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        with refusals_in_one_line():
            matchers: dict[int, TableMatcher] = {}
            for batch in _gathered(_records(batches, ["", *names])):
                groups = batch.column(0).to_numpy()
                rows = batch.remove_column(0)
                starts = np.flatnonzero(np.diff(groups, prepend=-1)).tolist()
                for start, end in pairwise([*starts, len(groups)]):
                    number = int(groups[start])
                    if number not in matchers:
                        matchers[number] = TableMatcher(index, alone, group=number)
                    yield from _found(matchers[number], [rows.slice(start, end - start)])

    return lavant_match_slice_group


def _arguments(attributes: list[TableAttribute]) -> tuple[list[str], list[TableAttribute]]:
    """The names of the columns that a task gets, and where the attributes are in them."""
    names = [attribute.name for attribute in attributes] or ["none"]
    return names, [attribute._replace(path=(attribute.name,)) for attribute in attributes]


def _found(matcher: TableMatcher, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Array]:
    for found in _pieces(matcher, batches):
        yield pa.StructArray.from_arrays([_lists(found), _reasons(found)], [SUBSCRIPTIONS, REJECTED])


def _records(batches: Iterator[tuple[pa.Array, ...]], names: list[str]) -> Batches:
    for columns in batches:  # Spark passes a single column as it is
        arrays = list(columns) if isinstance(columns, tuple) else [columns]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _gathered(batches: Batches) -> Batches:
    """Joins Spark's batches, of 10,000 rows by default: the more rows are matched together, the less each costs."""
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= ROWS_MAX or size_bytes >= BYTES_AT_ONCE:
            yield pa.concat_batches(held)
            held, rows, size_bytes = [], 0, 0
    if held:
        yield pa.concat_batches(held)


def _pieces(matcher: TableMatcher, batches: Iterable[pa.RecordBatch]) -> Iterator[RowMatches]:
    """Some rows at a time: as many as have about `IDS_AT_ONCE` matches."""
    size = ROWS_AT_FIRST
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            rows = batch.slice(start, size)
            start += rows.num_rows
            found = matcher.match(rows)
            size = max(1, min(IDS_AT_ONCE * rows.num_rows // max(len(found.ids), 1), ROWS_MAX, 64 * size))
            yield found


def _lists(found: RowMatches) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(_offsets(found.counts)), found.ids)


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int32]:
    return np.append(0, np.cumsum(counts)).astype(np.int32)


def _reasons(found: RowMatches) -> pa.Array:
    if not found.rejected:
        return pa.nulls(len(found.counts), pa.string())
    reasons = np.full(len(found.counts), None, object)
    reasons[list(found.rejected)] = list(found.rejected.values())
    return pa.array(reasons, pa.string())
