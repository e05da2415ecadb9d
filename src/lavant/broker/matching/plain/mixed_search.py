"""The search of MIXED buckets: row by row in small ones, by bitmaps in large ones.

Arrays are copied element by element: assigning slices takes Numba seconds longer to compile.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching.plain.bitmaps import WORDS, Bitmaps
from lavant.broker.matching.plain.encoder import SearchBatch
from lavant.broker.matching.plain.extras import ExtraConstraints, extra_holds
from lavant.broker.matching.plain.index import NO_EXTRA, Checks, Index
from lavant.broker.matching.plain.literals import NONE, PatternLiterals
from lavant.core.kernels.kernels import (
    and_line,
    count_ones,
    inline_kernel,
    inlined_kernel,
    kernel,
    prefetch_line,
    trailing_zeros,
)

CHUNK = 128
"""Publications whose bitmaps are combined together: their masks stay in the first-level cache."""
COLUMNS_BETWEEN_SWEEPS = 4
SURE_FROM = 8
"""With fewer publications, fetching the `sure` bitmaps from memory does not pay: candidates are simply checked."""
CANDIDATES_FEW = 32
"""Unless there are more than so many in a block."""

Hits = tuple[NDArray[np.uint32], NDArray[np.uint32], int]
"""Matching publications and rows, and their number; the arrays have room for more, and may grow."""


@kernel
def search_bucket(
    index: Index,
    checks: Checks,
    extras: ExtraConstraints,
    literals: PatternLiterals,
    bitmaps: Bitmaps,
    events: SearchBatch,
    bucket: int,
    chosen: NDArray[np.int64],
    hits: Hits,
) -> Hits:
    """Add the rows of a MIXED bucket that the chosen publications match to the hits."""
    mixed = bucket - (len(index.bucket_start) - len(bitmaps.bucket_start))
    first_block, last_block = bitmaps.bucket_start[mixed], bitmaps.bucket_start[mixed + 1]
    if first_block == last_block:
        start, end = index.bucket_start[bucket], index.bucket_start[bucket + 1]
        return search_rows(checks, extras, literals, events, start, end, chosen, hits)
    maybe = np.empty((CHUNK, WORDS), np.uint64)
    sure = np.empty((CHUNK, WORDS), np.uint64)
    alive = np.empty(CHUNK, np.int64)
    hit_event, hit_row, count = hits
    # Blocks outside, publications inside: a block's bitmaps stay in the cache for the whole batch.
    for block in range(first_block, last_block):
        for first in range(0, len(chosen), CHUNK):
            left = min(CHUNK, len(chosen) - first)
            for k in range(left):
                alive[k] = chosen[first + k]
            left = _and_maybe(bitmaps, block, events.cells, alive, left, maybe)
            candidates = _count_candidates(maybe, left)
            if count + candidates > len(hit_event):
                hit_event, hit_row = grow(hit_event, candidates), grow(hit_row, candidates)
            is_sure = len(chosen) >= SURE_FROM or candidates > CANDIDATES_FEW
            if is_sure:
                _and_sure(bitmaps, block, events.cells, alive, left, sure)
            row, first_check = bitmaps.first_row[block], checks.first_row[0]
            for i in range(left):
                e = alive[i]
                for w in range(WORDS):
                    bits = maybe[i, w]
                    known = sure[i, w] if is_sure else np.uint64(0)
                    while bits:
                        r = row + 64 * w + np.int64(trailing_zeros(bits))
                        lowest = bits & (~bits + np.uint64(1))
                        bits ^= lowest
                        if known & lowest or _row_matches(checks, extras, literals, events, r - first_check, e):
                            hit_event[count] = e
                            hit_row[count] = r
                            count += 1
    return hit_event, hit_row, count


@kernel
def search_rows(
    checks: Checks,
    extras: ExtraConstraints,
    literals: PatternLiterals,
    events: SearchBatch,
    start: int,
    end: int,
    chosen: NDArray[np.int64],
    hits: Hits,
) -> Hits:
    """Check each row from `start` to `end` against each publication."""
    hit_event, hit_row, count = hits
    first_check = checks.first_row[0]
    for e in chosen:
        if count + (end - start) > len(hit_event):
            hit_event, hit_row = grow(hit_event, end - start), grow(hit_row, end - start)
        for row in range(start, end):
            if _row_matches(checks, extras, literals, events, row - first_check, e):
                hit_event[count] = e
                hit_row[count] = row
                count += 1
    return hit_event, hit_row, count


@inlined_kernel
def _row_matches(
    checks: Checks, extras: ExtraConstraints, literals: PatternLiterals, events: SearchBatch, row: int, event: int
) -> bool:
    """Whether the publication passes everything that the key of a MIXED row does not decide."""
    r, e = np.uint64(row), np.uint64(event)
    for p in range(checks.start[r], checks.start[r + np.uint64(1)]):
        d = checks.dimension[p]
        value = events.values[e, d]
        if not (checks.bounds[p, 0] <= value <= checks.bounds[p, 1]):
            return False
        extra = checks.extra[p]
        if extra != NO_EXTRA:
            root = literals.root[d]
            text = int(events.text[root, e]) if root != NONE else NONE
            if not extra_holds(extras, literals.of_pattern, extra, value, events.found, text):
                return False
    return True


@inlined_kernel
def _and_maybe(
    bitmaps: Bitmaps,
    block: int,
    cells: NDArray[np.uint8],
    alive: NDArray[np.int64],
    count: int,
    masks: NDArray[np.uint64],
) -> int:
    """The AND of each publication's `maybe` bitmaps into its line of `masks`.

    Column by column, because a column's bitmaps are few cache lines; publications with nothing left are removed from
    `alive`, whose new length is returned.
    """
    for i in range(count):
        for w in range(WORDS):
            masks[i, w] = ~np.uint64(0)
    first, last = bitmaps.block_start[block], bitmaps.block_start[block + 1]
    if count < SURE_FROM:
        _prefetch_block(bitmaps, block + 1, cells, alive, count)
    for j in range(first, last):
        _and_column(bitmaps, bitmaps.maybe, j, cells, alive, count, masks)
        if (j - first) % COLUMNS_BETWEEN_SWEEPS == 0 or j == last - 1:
            count = _sweep(masks, alive, count)
            if count == 0:
                return 0
    return count


@inlined_kernel
def _count_candidates(masks: NDArray[np.uint64], count: int) -> int:
    ones = np.uint64(0)
    for i in range(count):
        for w in range(WORDS):
            ones += count_ones(masks[i, w])
    return int(np.int64(ones))


@inlined_kernel
def _prefetch_block(
    bitmaps: Bitmaps, block: int, cells: NDArray[np.uint8], alive: NDArray[np.int64], count: int
) -> None:
    """Prefetch a block for a few publications while another block is searched.

    With many publications the first one loads the block into the cache; a few would wait for every line.
    """
    if block >= len(bitmaps.rows):
        return
    for j in range(bitmaps.block_start[block], bitmaps.block_start[block + 1]):
        first_line = np.uint64(bitmaps.first_line[j])
        for i in range(count):
            cell = cells[bitmaps.shift[j], bitmaps.dimension[j], alive[i]]
            prefetch_line(bitmaps.maybe, first_line + np.uint64(cell))


@inlined_kernel
def _and_sure(
    bitmaps: Bitmaps,
    block: int,
    cells: NDArray[np.uint8],
    alive: NDArray[np.int64],
    count: int,
    masks: NDArray[np.uint64],
) -> None:
    """The AND of each publication's `sure` bitmaps into its line of `masks`."""
    for i in range(count):
        for w in range(WORDS):
            masks[i, w] = ~np.uint64(0)
    for j in range(bitmaps.block_start[block], bitmaps.block_start[block + 1]):
        _and_column(bitmaps, bitmaps.sure, j, cells, alive, count, masks)


@inline_kernel
def _and_column(
    bitmaps: Bitmaps,
    lines: NDArray[np.uint64],
    column: int,
    cells: NDArray[np.uint8],
    alive: NDArray[np.int64],
    count: int,
    masks: NDArray[np.uint64],
) -> None:
    """AND the line of each publication's cell into its mask."""
    first_line = np.uint64(bitmaps.first_line[column])
    shift, dimension = np.uint64(bitmaps.shift[column]), np.uint64(bitmaps.dimension[column])
    for i in range(np.uint64(count)):
        and_line(masks, i, lines, first_line + np.uint64(cells[shift, dimension, np.uint64(alive[i])]))


@inlined_kernel
def _sweep(masks: NDArray[np.uint64], alive: NDArray[np.int64], count: int) -> int:
    """Remove publications with an empty mask."""
    kept = np.uint64(0)
    for i in range(np.uint64(count)):
        any_bit = np.uint64(0)
        for w in range(WORDS):
            any_bit |= masks[i, w]
        if any_bit:
            if kept < i:
                for w in range(WORDS):
                    masks[kept, w] = masks[i, w]
                alive[kept] = alive[i]
            kept += np.uint64(1)
    return int(np.int64(kept))


@kernel
def grow(array: NDArray[np.uint32], more: int) -> NDArray[np.uint32]:
    """A larger copy, with room for at least so many more."""
    larger = np.empty(2 * len(array) + more, array.dtype)
    for k in range(len(array)):
        larger[k] = array[k]
    return larger
