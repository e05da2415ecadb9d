"""Bitmaps for rows with several ranges: which of 512 rows can a publication match at all?

The values of each dimension are cut into at most 64 *cells*, at quantiles of the bounds that occur. For a block of 512
rows and a dimension that any of them constrains, there are two bitmaps for each cell: `maybe`, the rows whose interval
meets the cell, and `sure`, the rows whose interval holds all of it. Rows that do not constrain the dimension are in
all of them. One more cell, number 0, is for publications without a value; rows that constrain the dimension are not in
it.

The AND of the `maybe` bitmaps of a publication's cells is a superset of the block's matches, the AND of the `sure`
ones a subset; what lies between is checked predicate by predicate. The AND stops when nothing is left.

To make it stop early, rows are sorted by their narrowest predicate (the *pivot*) and its lower end, so that the rows
of a block want similar values of the same dimension, and the most selective dimensions of a block come first. A
dimension that few rows of a block constrain gets coarser cells, two or four joined: fewer bits for about as few checks.

The idea of bitmaps over cells is common to several published matchers; sure/maybe pairs and pivot blocks are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching.plain.table import FilterTable
from lavant.core.kernels.kernels import kernel

if TYPE_CHECKING:
    from lavant.broker.matching.plain.index import Checks

BLOCK_ROWS = 512
WORDS = BLOCK_ROWS // 64
BUCKET_ROWS_MIN = 64
"""Smaller buckets are checked row by row."""
EDGES_MAX = 63
SHIFTS = 3
"""Cells come in three widths: 1, 2 or 4 joined."""


class Cells(NamedTuple):
    """Where the values of dimension d are cut: cell c lies between `edges[start[d] + c - 1]` and the next edge."""

    start: NDArray[np.int64]
    edges: NDArray[np.float64]


class Bitmaps(NamedTuple):
    """Bucket b of the MIXED ones has the blocks `bucket_start[b]` to `bucket_start[b + 1]`; none if it is small, or if
    its rows have no checks.

    Column j, from `block_start[k]` to `block_start[k + 1]` for block k, is a dimension; its bitmaps are the lines
    `first_line[j]` to `first_line[j + 1]` of `maybe` and `sure`, one for each joined cell.
    """

    bucket_start: NDArray[np.int64]
    first_row: NDArray[np.int64]
    rows: NDArray[np.int64]
    block_start: NDArray[np.int64]
    dimension: NDArray[np.uint16]
    shift: NDArray[np.uint8]
    first_line: NDArray[np.int64]
    maybe: NDArray[np.uint64]
    sure: NDArray[np.uint64]


def build_cells(table: FilterTable, rows: NDArray[np.int64]) -> Cells:
    """Cut every dimension at quantiles of the bounds that the given rows have on it."""
    chosen = np.zeros(len(table.low), np.bool_)
    _mark_predicates(rows, table.row_start, chosen)
    dimension, low, high = table.dimension[chosen], table.low[chosen], table.high[chosen]
    order = np.argsort(dimension, kind="stable")
    ends = np.searchsorted(dimension[order], np.arange(len(table.dimensions) + 1))
    edges: list[NDArray[np.float64]] = []
    for first, last in pairwise(ends):
        part = order[first:last]
        with np.errstate(over="ignore"):
            bounds = np.concatenate([low[part], np.nextafter(high[part], np.inf)])
        edges.append(_quantiles(np.sort(bounds[np.isfinite(bounds)])))
    starts = np.concatenate([[0], np.cumsum([len(e) for e in edges], dtype=np.int64)]).astype(np.int64)
    return Cells(starts, np.concatenate([np.empty(0), *edges]))


def pivots(
    table: FilterTable, cells: Cells, rows: NDArray[np.int64], key: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The dimension of each row's narrowest predicate besides the key, and that predicate's lower end."""
    pivot = np.full(len(rows), -1, np.int64)
    low = np.full(len(rows), -np.inf)
    in_key = np.zeros(len(table.dimensions), np.bool_)
    in_key[list(key)] = True
    _find_pivots(rows, table.row_start, table.dimension, table.low, table.high, in_key, cells, pivot, low)
    return pivot, low


def build_bitmaps(buckets: NDArray[np.int64], checks: Checks, cells: Cells) -> Bitmaps:
    """Blocks for the MIXED buckets, given as pairs of first row and end."""
    sizes = buckets[:, 1] - buckets[:, 0]
    last, first = (checks.start[buckets[:, end] - checks.first_row[0]] for end in (1, 0))
    # Rows decided entirely by the key need no bitmaps, and a block without a column could not tell its length.
    blocks = np.where((sizes > BUCKET_ROWS_MIN) & (last > first), -(-sizes // BLOCK_ROWS), 0)
    bucket_start = np.concatenate([[0], np.cumsum(blocks)]).astype(np.int64)
    number = np.arange(bucket_start[-1]) - np.repeat(bucket_start[:-1], blocks)
    first_row = np.repeat(buckets[:, 0], blocks) + number * BLOCK_ROWS
    rows = np.minimum(np.repeat(buckets[:, 1], blocks) - first_row, BLOCK_ROWS)
    first_check = first_row - checks.first_row[0]
    dimensions = len(cells.start) - 1
    block_start, dimension, shift, first_line = _plan(first_check, rows, checks, cells, dimensions)
    maybe = np.empty((first_line[-1], WORDS), np.uint64)
    sure = np.empty((first_line[-1], WORDS), np.uint64)
    _fill(first_check, rows, block_start, dimension, shift, first_line, checks, cells, maybe, sure)
    return Bitmaps(bucket_start, first_row, rows, block_start, dimension, shift, first_line, maybe, sure)


def find_cells(cells: Cells, values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """The cell of each value, for each width of cells: shape (SHIFTS, dimensions, publications)."""
    found = np.empty((SHIFTS, *values.T.shape), np.uint8)
    _find_cells(cells, values, found)
    return found


def _quantiles(ascending: NDArray[np.float64]) -> NDArray[np.float64]:
    distinct = np.unique(ascending)
    if len(distinct) <= EDGES_MAX:
        return distinct
    places = (np.arange(1, EDGES_MAX + 1) * len(ascending)) // (EDGES_MAX + 1)
    return np.unique(ascending[places])


@kernel
def _mark_predicates(rows: NDArray[np.int64], row_start: NDArray[np.uint32], chosen: NDArray[np.bool_]) -> None:
    for r in rows:
        for p in range(row_start[r], row_start[r + 1]):
            chosen[p] = True


@kernel
def _cell(cells: Cells, dimension: int, value: float) -> int:
    """The number of edges at or below the value."""
    first = low = cells.start[dimension]
    high = cells.start[dimension + 1]
    while low < high:
        middle = (low + high) // 2
        if cells.edges[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return int(low - first)


@kernel
def _find_cells(cells: Cells, values: NDArray[np.float64], found: NDArray[np.uint8]) -> None:
    for d in range(values.shape[1]):
        edges = cells.edges[cells.start[d] : cells.start[d + 1]]
        for e in range(values.shape[0]):
            value = values[e, d]
            if np.isnan(value):
                for shift in range(SHIFTS):
                    found[shift, d, e] = 0
            else:
                cell = np.int64(0)
                for k in range(np.uint64(len(edges))):  # vectorised, so quicker than a binary search of so few
                    cell += np.int64(edges[k] <= value)
                for shift in range(SHIFTS):
                    found[shift, d, e] = 1 + (cell >> shift)


@kernel
def _find_pivots(
    rows: NDArray[np.int64],
    row_start: NDArray[np.uint32],
    dimension: NDArray[np.uint16],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    in_key: NDArray[np.bool_],
    cells: Cells,
    pivot: NDArray[np.int64],
    pivot_low: NDArray[np.float64],
) -> None:
    for i in range(len(rows)):
        narrowest = np.inf
        for p in range(row_start[rows[i]], row_start[rows[i] + 1]):
            d = dimension[p]
            if in_key[d]:
                continue
            width = (_cell(cells, d, high[p]) - _cell(cells, d, low[p]) + 1) / (cells.start[d + 1] - cells.start[d] + 1)
            if width < narrowest:
                narrowest = width
                pivot[i] = d
                pivot_low[i] = low[p]


@kernel
def _plan(
    first_check: NDArray[np.int64], rows: NDArray[np.int64], checks: Checks, cells: Cells, dimensions: int
) -> tuple[NDArray[np.int64], NDArray[np.uint16], NDArray[np.uint8], NDArray[np.int64]]:
    """The dimensions of each block, the most selective first, how coarse their cells are, and where they begin."""
    block_start = np.zeros(len(rows) + 1, np.int64)
    count = np.zeros(dimensions, np.int64)
    share = np.zeros(dimensions, np.float64)
    capacity = 1024
    dimension = np.empty(capacity, np.uint16)
    shift = np.empty(capacity, np.uint8)
    first_line = np.zeros(capacity + 1, np.int64)
    place = 0
    for k in range(len(rows)):
        count[:] = 0
        share[:] = 0.0
        for c in range(first_check[k], first_check[k] + rows[k]):
            for p in range(checks.start[c], checks.start[c + 1]):
                d = checks.dimension[p]
                width = cells.start[d + 1] - cells.start[d] + 1
                count[d] += 1
                share[d] += (
                    1.0 - (_cell(cells, d, checks.bounds[p, 1]) - _cell(cells, d, checks.bounds[p, 0]) + 1) / width
                )
        for d in np.argsort(-share, kind="mergesort"):
            if count[d] == 0:
                continue
            if place == capacity:
                capacity *= 2
                dimension = np.append(dimension, np.empty(place, np.uint16))
                shift = np.append(shift, np.empty(place, np.uint8))
                first_line = np.append(first_line, np.empty(place, np.int64))
            coarse = 0
            if 4 * count[d] < rows[k]:
                coarse = 1 if 8 * count[d] >= rows[k] else 2
            cell_count = cells.start[d + 1] - cells.start[d] + 1
            dimension[place] = d
            shift[place] = coarse
            first_line[place + 1] = first_line[place] + ((cell_count - 1) >> coarse) + 2
            place += 1
        block_start[k + 1] = place
    return block_start, dimension[:place].copy(), shift[:place].copy(), first_line[: place + 1].copy()


@kernel
def _fill(
    first_check: NDArray[np.int64],
    rows: NDArray[np.int64],
    block_start: NDArray[np.int64],
    dimension: NDArray[np.uint16],
    shift: NDArray[np.uint8],
    first_line: NDArray[np.int64],
    checks: Checks,
    cells: Cells,
    maybe: NDArray[np.uint64],
    sure: NDArray[np.uint64],
) -> None:
    column = np.zeros(len(cells.start), np.int64)
    for k in range(len(rows)):
        for j in range(block_start[k], block_start[k + 1]):
            column[dimension[j]] = j
            for w in range(WORDS):
                bits = min(max(rows[k] - 64 * w, 0), 64)
                ones = ~np.uint64(0) if bits == 64 else (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
                maybe[first_line[j] : first_line[j + 1], w] = ones
                sure[first_line[j] : first_line[j + 1], w] = ones
        for r in range(rows[k]):
            word = r // 64
            keep = ~(np.uint64(1) << np.uint64(r % 64))
            c = first_check[k] + r
            for p in range(checks.start[c], checks.start[c + 1]):
                d = checks.dimension[p]
                j = column[d]
                first, last, first_sure, last_sure = _cell_range(
                    cells, d, shift[j], checks.bounds[p, 0], checks.bounds[p, 1]
                )
                if checks.extra[p] >= 0:
                    first_sure, last_sure = 1, 0
                for line in range(first_line[j], first_line[j + 1]):
                    cell = line - first_line[j] - 1
                    if cell < max(first, 0) or cell > last:
                        maybe[line, word] &= keep
                    if cell < max(first_sure, 0) or cell > last_sure:
                        sure[line, word] &= keep


@kernel
def _cell_range(cells: Cells, d: int, shift: int, low: float, high: float) -> tuple[int, int, int, int]:
    """The joined cells that [low, high] intersects, first and last, and those that it contains."""
    edges = cells.start[d + 1] - cells.start[d]
    first = _cell(cells, d, low) >> shift
    last = _cell(cells, d, high) >> shift
    first_sure, last_sure = first, last
    lower_edge = (first << shift) - 1
    if lower_edge < 0:
        if low != -np.inf:
            first_sure += 1
    elif low > cells.edges[cells.start[d] + lower_edge]:
        first_sure += 1
    upper_edge = ((last + 1) << shift) - 1
    if upper_edge >= edges:
        if high != np.inf:
            last_sure -= 1
    elif np.nextafter(high, np.inf) < cells.edges[cells.start[d] + upper_edge]:
        last_sure -= 1
    return first, last, first_sure, last_sure
