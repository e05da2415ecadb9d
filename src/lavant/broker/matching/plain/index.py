"""Builds the index: groups of buckets of rows, as arrays in the order in which a search visits them.

    group ──look-up of the key──► bucket ──► rows, contiguous
                                             AT_LEAST, AT_MOST: sorted by bound, so that a run of them matches
                                             ALL: all match
                                             MIXED, few: each is checked
                                             MIXED, many: blocks of bitmaps leave few to check

Groups are ordered by form, so rows with a bound come first and MIXED rows last; `bound` and the `check_` arrays cover
just those.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching.plain.bitmaps import Bitmaps, Cells, build_bitmaps, build_cells, pivots
from lavant.broker.matching.plain.groups import (
    LITERAL,
    MIXED,
    LiteralKeys,
    RowGroup,
    choose_literals,
    extra_flags,
    group_rows,
    key_values,
    mix,
)
from lavant.broker.matching.plain.literals import Literals
from lavant.broker.matching.plain.table import FilterTable
from lavant.core.kernels.kernels import double_bits, kernel

NO_EXTRA = -1
EMPTY = -1
"""A free slot of a hash table."""


class Index(NamedTuple):
    row_ids: NDArray[np.uint32]
    row_twin: NDArray[np.int32]
    """Rows of one subscription that has several share a number; -1 for the only row of a subscription."""

    group_form: NDArray[np.int64]
    group_bound_dimension: NDArray[np.int64]
    group_key_start: NDArray[np.int64]
    group_bucket_start: NDArray[np.int64]
    group_slot_start: NDArray[np.int64]
    group_value_start: NDArray[np.int64]
    key_dimension: NDArray[np.int64]
    """LITERAL, where it is part of a key, is the first."""
    key_value: NDArray[np.float64]
    slot_bucket: NDArray[np.int32]

    bucket_start: NDArray[np.int64]
    bound: NDArray[np.float64]


class Checks(NamedTuple):
    """The predicates of each MIXED row that the key does not decide."""

    first_row: NDArray[np.int64]
    """The first MIXED row of the index; an array of one element."""
    start: NDArray[np.uint32]
    dimension: NDArray[np.uint16]
    bounds: NDArray[np.float64]
    """Low and high adjacent, because they are read together."""
    extra: NDArray[np.int32]


def build_index(
    ids: NDArray[np.uint32], table: FilterTable, literals: Literals
) -> tuple[Index, Checks, Cells, Bitmaps]:
    """Sort the table's rows into groups and buckets. `ids` are the filters' subscriptions."""
    table = table.frozen()
    literal_keys = choose_literals(table, literals)
    groups = group_rows(table, literal_keys)
    cells = build_cells(table, np.concatenate([_no_rows(), *(g.rows for g in groups if g.form == MIXED)]))
    bound = np.where(np.isinf(table.low), table.high, table.low)

    order: list[NDArray[np.int64]] = []
    bucket_sizes: list[NDArray[np.int64]] = []
    bucket_keys: list[NDArray[np.float64]] = []
    slots: list[NDArray[np.int32]] = []
    for group in groups:
        keys, bucket = _distinct_lines(key_values(table, literal_keys, group))
        if group.form == MIXED:
            pivot, pivot_low = pivots(table, cells, group.rows, _dimensions(group))
            minor: tuple[NDArray[Any], ...] = (pivot_low, pivot)
        elif group.bound_dimension >= 0:
            minor = (bound[_bound_predicates(table, group)],)
        else:
            minor = ()
        order.append(group.rows[np.lexsort((*minor, bucket))])
        bucket_sizes.append(np.bincount(bucket, minlength=len(keys)))
        bucket_keys.append(keys)
        slots.append(_hash_slots(keys))

    rows = np.concatenate([_no_rows(), *order])
    bounded = np.concatenate(
        [_no_rows(), *(_bound_predicates(table, g, o) for g, o in zip(groups, order, strict=True))]
    )
    mixed_rows = np.concatenate([_no_rows(), *(o for g, o in zip(groups, order, strict=True) if g.form == MIXED)])
    index = Index(
        row_ids=ids[table.row_filter[rows]],
        row_twin=_twins(table)[rows],
        group_form=np.array([g.form for g in groups], np.int64),
        group_bound_dimension=np.array([g.bound_dimension for g in groups], np.int64),
        group_key_start=_starts([len(g.key) for g in groups]),
        group_bucket_start=_starts([len(sizes) for sizes in bucket_sizes]),
        group_slot_start=_starts([len(s) for s in slots]),
        group_value_start=_starts([keys.size for keys in bucket_keys]),
        key_dimension=np.array([d for g in groups for d in g.key], np.int64),
        key_value=np.concatenate([np.empty(0), *(keys.ravel() for keys in bucket_keys)]),
        slot_bucket=np.concatenate([np.empty(0, np.int32), *slots]),
        bucket_start=_starts(np.concatenate([_no_rows(), *bucket_sizes])),
        bound=bound[bounded],
    )
    checks = _checks(table, groups, literal_keys, mixed_rows, first_row=len(rows) - len(mixed_rows))
    bitmaps = build_bitmaps(_mixed_buckets(index), checks, cells)
    return index, checks, cells, bitmaps


def _mixed_buckets(index: Index) -> NDArray[np.int64]:
    """First row and end of each MIXED bucket."""
    groups = np.flatnonzero(index.group_form == MIXED)
    if not len(groups):
        return np.empty((0, 2), np.int64)
    first, last = index.group_bucket_start[groups[0]], index.group_bucket_start[groups[-1] + 1]
    return np.stack([index.bucket_start[first:last], index.bucket_start[first + 1 : last + 1]], axis=1)


def _distinct_lines(lines: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The distinct lines, and for each line the number of its equal. Column by column, without hashing."""
    number = np.zeros(len(lines), np.int64)
    for column in lines.T:
        _, value_number = np.unique(column, return_inverse=True)
        _, number = np.unique(number * (value_number.max(initial=0) + 1) + value_number, return_inverse=True)
    _, first = np.unique(number, return_index=True)
    return lines[first], number


def _bound_predicates(table: FilterTable, group: RowGroup, rows: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """The one predicate of each row (by default all of the group) that is on the group's bounded dimension."""
    if group.bound_dimension < 0:
        return _no_rows()
    rows = group.rows if rows is None else rows
    found = np.empty(len(rows), np.int64)
    _find_predicates(rows, group.bound_dimension, table.row_start, table.dimension, found)
    return found


def _twins(table: FilterTable) -> NDArray[np.int32]:
    rows_of_filter = np.bincount(table.row_filter, minlength=len(table))
    several = rows_of_filter > 1
    number = np.where(several, np.cumsum(several) - 1, -1).astype(np.int32)
    return number[table.row_filter]


def _dimensions(group: RowGroup) -> list[int]:
    """Those of the group's key."""
    return [d for d in group.key if d != LITERAL]


def _checks(
    table: FilterTable, groups: list[RowGroup], literal_keys: LiteralKeys, rows: NDArray[np.int64], *, first_row: int
) -> Checks:
    is_key = literal_keys.is_decided.copy()
    points = (table.low == table.high) & ~extra_flags(table)
    for group in groups:
        if group.form == MIXED and _dimensions(group):
            in_key = np.zeros(len(table.dimensions), np.bool_)
            in_key[_dimensions(group)] = True
            _mark_keys(group.rows, table.row_start, table.dimension, points, in_key, is_key)
    extra = np.full(len(table.low), NO_EXTRA, np.int32)
    extra[table.extras.predicate] = np.arange(len(table.extras.predicate), dtype=np.int32)
    start = np.zeros(len(rows) + 1, np.uint32)
    chosen = _predicates_to_check(rows, table.row_start, is_key, start)
    return Checks(
        np.array([first_row], np.int64),
        start,
        table.dimension[chosen],
        np.stack([table.low[chosen], table.high[chosen]], axis=1),
        extra[chosen],
    )


def _hash_slots(keys: NDArray[np.float64]) -> NDArray[np.int32]:
    """An open-addressing table of the buckets' numbers, at most half full."""
    size = 1
    while size < 2 * len(keys):
        size *= 2
    slots = np.full(size, EMPTY, np.int32)
    _fill_slots(keys, slots)
    return slots


def _starts(lengths: list[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def _no_rows() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@kernel
def hash_key(hashed: np.uint64, value: float) -> np.uint64:
    """Extend the hash of a key by one more value."""
    return mix(hashed ^ double_bits(value))


@kernel
def _fill_slots(keys: NDArray[np.float64], slots: NDArray[np.int32]) -> None:
    mask = np.uint64(len(slots) - 1)
    for b in range(len(keys)):
        hashed = np.uint64(0)
        for value in keys[b]:
            hashed = hash_key(hashed, value)
        slot = hashed & mask
        while slots[slot] != EMPTY:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = b


@kernel
def _find_predicates(
    rows: NDArray[np.int64],
    wanted: int,
    row_start: NDArray[np.uint32],
    dimension: NDArray[np.uint16],
    found: NDArray[np.int64],
) -> None:
    for i in range(len(rows)):
        for p in range(row_start[rows[i]], row_start[rows[i] + 1]):
            if dimension[p] == wanted:
                found[i] = p


@kernel
def _mark_keys(
    rows: NDArray[np.int64],
    row_start: NDArray[np.uint32],
    dimension: NDArray[np.uint16],
    points: NDArray[np.bool_],
    in_key: NDArray[np.bool_],
    is_key: NDArray[np.bool_],
) -> None:
    for r in rows:
        for p in range(row_start[r], row_start[r + 1]):
            is_key[p] |= points[p] and in_key[dimension[p]]


@kernel
def _predicates_to_check(
    rows: NDArray[np.int64], row_start: NDArray[np.uint32], is_key: NDArray[np.bool_], start: NDArray[np.uint32]
) -> NDArray[np.int64]:
    """All predicates of the rows that are not part of a key; fills `start` with where each row's begin."""
    for i in range(len(rows)):
        start[i + 1] = start[i]
        for p in range(row_start[rows[i]], row_start[rows[i] + 1]):
            start[i + 1] += np.uint32(not is_key[p])
    chosen = np.empty(start[-1], np.int64)
    place = 0
    for i in range(len(rows)):
        for p in range(row_start[rows[i]], row_start[rows[i] + 1]):
            if not is_key[p]:
                chosen[place] = p
                place += 1
    return chosen
