"""The search: batch in, matching rows out, in compiled loops that release the GIL.

Inner loops index with unsigned numbers: a signed index may be negative, and the code that asks keeps the compiler from
vectorising (copying ids is twelve times as fast without).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching.plain.bitmaps import BLOCK_ROWS, WORDS, Bitmaps
from lavant.broker.matching.plain.extras import Extras, extra_holds
from lavant.broker.matching.plain.grouping import ALL, AT_LEAST, MIXED
from lavant.broker.matching.plain.index import EMPTY, NO_EXTRA, Checks, Index, hash_key
from lavant.core.kernels import inline_kernel, kernel, trailing_zeros

NO_BUCKET = -1
CHUNK = 128
"""Publications whose bitmaps are combined together: their masks stay in the first-level cache."""
COLUMNS_BETWEEN_SWEEPS = 4


class Events(NamedTuple):
    """A batch as a segment sees it."""

    values: NDArray[np.float64]
    """By publication and dimension: a row's check reads several values of one publication."""
    cells: NDArray[np.uint8]
    """By width of cells, dimension and publication; empty if the segment has no bitmaps."""
    text: NDArray[np.int32]
    """By dimension and publication, the string's number in `text_start`; empty if the segment has no patterns."""
    text_start: NDArray[np.int64]
    text_end: NDArray[np.int64]
    text_data: NDArray[np.uint8]


class Found(NamedTuple):
    """Rows that match: runs of rows for each publication and group, and single rows besides."""

    counts: NDArray[np.int64]
    run_start: NDArray[np.int64]
    run_length: NDArray[np.int64]
    hit_event: NDArray[np.uint32]
    hit_row: NDArray[np.uint32]


@kernel
def find_rows(index: Index, checks: Checks, extras: Extras, bitmaps: Bitmaps, events: Events) -> Found:
    """All rows that each publication matches; a subscription with several rows may be found several times."""
    groups = len(index.group_form)
    count = events.values.shape[0]
    runs = 0
    while runs < groups and index.group_form[runs] != MIXED:
        runs += 1
    run_start = np.empty((count, runs), np.int64)
    run_length = np.empty((count, runs), np.int64)
    counts = np.zeros(count, np.int64)
    for e in range(count):
        for g in range(runs):
            start, length = _find_run(index, g, events.values, e)
            run_start[e, g] = start
            run_length[e, g] = length
            counts[e] += length
    hit_event = np.empty(64 + 16 * count if runs < groups else 0, np.uint32)
    hit_row = np.empty_like(hit_event)
    hits = 0
    bucket = np.empty(count, np.int64)
    for g in range(runs, groups):
        for e in range(count):
            bucket[e] = _find_bucket(index, g, events.values, e)
        order = np.argsort(bucket, kind="mergesort")
        first = 0
        while first < count:
            b = bucket[order[first]]
            last = first
            while last < count and bucket[order[last]] == b:
                last += 1
            if b != NO_BUCKET:
                hit_event, hit_row, hits = _search_bucket(
                    index, checks, extras, bitmaps, events, b, order[first:last], hit_event, hit_row, hits
                )
            first = last
    for h in range(hits):
        counts[hit_event[h]] += 1
    return Found(counts, run_start, run_length, hit_event[:hits], hit_row[:hits])


@kernel
def copy_ids(row_ids: NDArray[np.uint32], found: Found, out: NDArray[np.uint32], cursor: NDArray[np.int64]) -> None:
    """Write the ids of what was found, publication e's from `cursor[e]` on."""
    for e in range(found.run_start.shape[0]):
        place = np.uint64(cursor[e])
        for g in range(found.run_start.shape[1]):
            start, length = np.uint64(found.run_start[e, g]), np.uint64(found.run_length[e, g])
            source, target = row_ids[start : start + length], out[place : place + length]
            for k in range(length):
                target[k] = source[k]
            place += length
        cursor[e] = place
    for h in range(len(found.hit_event)):
        e = found.hit_event[h]
        out[cursor[e]] = row_ids[found.hit_row[h]]
        cursor[e] += 1


@kernel
def select_ids(
    index: Index, found: Found, dead: NDArray[np.bool_], twins: int
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Counts and ids of what was found without dead rows, and each subscription once, however many rows it has."""
    count = len(found.counts)
    starts = np.zeros(count + 1, np.int64)
    for e in range(count):
        starts[e + 1] = starts[e] + found.counts[e]
    rows = np.empty(starts[-1], np.uint32)
    cursor = starts[:-1].copy()
    for e in range(count):
        for g in range(found.run_start.shape[1]):
            for k in range(found.run_length[e, g]):
                rows[cursor[e]] = found.run_start[e, g] + k
                cursor[e] += 1
    for h in range(len(found.hit_event)):
        e = found.hit_event[h]
        rows[cursor[e]] = found.hit_row[h]
        cursor[e] += 1
    seen_in = np.full(twins, -1, np.int64)
    counts = np.zeros(count, np.int64)
    ids = np.empty(len(rows), np.uint32)
    place = 0
    for e in range(count):
        first = place
        for i in range(starts[e], starts[e + 1]):
            row = rows[i]
            if len(dead) and dead[row]:
                continue
            twin = index.row_twin[row]
            if twin >= 0:
                if seen_in[twin] == e:
                    continue
                seen_in[twin] = e
            ids[place] = index.row_ids[row]
            place += 1
        counts[e] = place - first
    return counts, ids[:place]


@kernel
def _find_bucket(index: Index, g: int, values: NDArray[np.float64], e: int) -> int:
    """The bucket of group g whose key the publication has, or NO_BUCKET."""
    first_key, last_key = index.group_key_start[g], index.group_key_start[g + 1]
    first_bucket = index.group_bucket_start[g]
    if first_key == last_key:
        return int(first_bucket)
    hashed = np.uint64(0)
    for k in range(first_key, last_key):
        value = values[e, index.key_dimension[k]]
        if np.isnan(value):
            return NO_BUCKET
        hashed = hash_key(hashed, value)
    slot_start = index.group_slot_start[g]
    mask = np.uint64(index.group_slot_start[g + 1] - slot_start - 1)
    slot = hashed & mask
    width = last_key - first_key
    while True:
        b = index.slot_bucket[slot_start + np.int64(slot)]
        if b == EMPTY:
            return NO_BUCKET
        same = True
        for k in range(width):
            if (
                index.key_value[index.group_value_start[g] + b * width + k]
                != values[e, index.key_dimension[first_key + k]]
            ):
                same = False
                break
        if same:
            return int(first_bucket + b)
        slot = (slot + np.uint64(1)) & mask


@kernel
def _find_run(index: Index, g: int, values: NDArray[np.float64], e: int) -> tuple[int, int]:
    """First row and number of rows of group g that the publication matches; the group is not MIXED."""
    b = _find_bucket(index, g, values, e)
    if b == NO_BUCKET:
        return 0, 0
    start, end = index.bucket_start[b], index.bucket_start[b + 1]
    form = index.group_form[g]
    if form == ALL:
        return start, end - start
    value = values[e, index.group_bound_dimension[g]]
    if np.isnan(value):
        return 0, 0
    low, high = start, end
    if form == AT_LEAST:  # bounds at or below the value match: those before the first that is above it
        while low < high:
            middle = (low + high) // 2
            if index.bound[middle] <= value:
                low = middle + 1
            else:
                high = middle
        return start, low - start
    while low < high:  # bounds at or above the value match: those from the first that is not below it
        middle = (low + high) // 2
        if index.bound[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low, end - low


@kernel
def _row_matches(checks: Checks, extras: Extras, events: Events, row: int, event: int) -> bool:
    """Does the publication pass everything that the key of a MIXED row does not decide?"""
    r, e = np.uint64(row), np.uint64(event)
    for p in range(checks.start[r], checks.start[r + np.uint64(1)]):
        d = checks.dimension[p]
        value = events.values[e, d]
        if not (checks.bounds[p, 0] <= value <= checks.bounds[p, 1]):
            return False
        extra = checks.extra[p]
        if extra != NO_EXTRA:
            start, end = 0, 0
            if len(events.text):
                text = events.text[d, e]
                if text >= 0:
                    start, end = events.text_start[text], events.text_end[text]
            if not extra_holds(extras, extra, value, events.text_data, start, end):
                return False
    return True


@kernel
def _search_bucket(
    index: Index,
    checks: Checks,
    extras: Extras,
    bitmaps: Bitmaps,
    events: Events,
    b: int,
    chosen: NDArray[np.int64],
    hit_event: NDArray[np.uint32],
    hit_row: NDArray[np.uint32],
    hits: int,
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], int]:
    """Add the rows of MIXED bucket b that the chosen publications match to the hits, which may have to grow."""
    first_check = checks.first_row[0]
    mixed = b - (len(index.bucket_start) - len(bitmaps.bucket_start))
    first_block, last_block = bitmaps.bucket_start[mixed], bitmaps.bucket_start[mixed + 1]
    if first_block == last_block:
        start, end = index.bucket_start[b], index.bucket_start[b + 1]
        for e in chosen:
            if hits + (end - start) > len(hit_event):
                hit_event, hit_row = _grow(hit_event, end - start), _grow(hit_row, end - start)
            for row in range(start, end):
                if _row_matches(checks, extras, events, row - first_check, e):
                    hit_event[hits] = e
                    hit_row[hits] = row
                    hits += 1
        return hit_event, hit_row, hits
    maybe = np.empty((CHUNK, WORDS), np.uint64)
    sure = np.empty((CHUNK, WORDS), np.uint64)
    alive = np.empty(CHUNK, np.int64)
    # Blocks outside, publications inside: a block's bitmaps stay in the cache for the whole batch.
    for block in range(first_block, last_block):
        first_row = bitmaps.first_row[block]
        for first in range(0, len(chosen), CHUNK):
            count = min(CHUNK, len(chosen) - first)
            for i in range(count):
                alive[i] = chosen[first + i]
            count = _and_maybe(bitmaps, block, events.cells, alive, count, maybe)
            if not count:
                continue
            _and_sure(bitmaps, block, events.cells, alive, count, sure)
            for i in range(count):
                if hits + BLOCK_ROWS > len(hit_event):
                    hit_event, hit_row = _grow(hit_event, BLOCK_ROWS), _grow(hit_row, BLOCK_ROWS)
                e = alive[i]
                for w in range(WORDS):
                    bits = maybe[i, w]
                    while bits:
                        row = first_row + 64 * w + np.int64(trailing_zeros(bits))
                        lowest = bits & (~bits + np.uint64(1))
                        bits ^= lowest
                        if sure[i, w] & lowest or _row_matches(checks, extras, events, row - first_check, e):
                            hit_event[hits] = e
                            hit_row[hits] = row
                            hits += 1
    return hit_event, hit_row, hits


@kernel
def _and_maybe(
    bitmaps: Bitmaps,
    block: int,
    cells: NDArray[np.uint8],
    alive: NDArray[np.int64],
    count: int,
    masks: NDArray[np.uint64],
) -> int:
    """The AND of each publication's `maybe` bitmaps into its line of `masks`.

    Column by column, because a column's bitmaps are few lines of cache; publications of which nothing is left drop out
    of `alive`, whose new length is returned.
    """
    masks[:count] = ~np.uint64(0)
    first, last = bitmaps.block_start[block], bitmaps.block_start[block + 1]
    for j in range(first, last):
        cell = cells[bitmaps.shift[j], bitmaps.dimension[j]]
        words = bitmaps.maybe[bitmaps.first_line[j] : bitmaps.first_line[j + 1]]
        for i in range(np.uint64(count)):
            _and_line(masks[i], words[np.uint64(cell[np.uint64(alive[i])])])
        if (j - first) % COLUMNS_BETWEEN_SWEEPS == 0 or j == last - 1:
            count = _sweep(masks, alive, count)
            if count == 0:
                return 0
    return count


@kernel
def _and_sure(
    bitmaps: Bitmaps,
    block: int,
    cells: NDArray[np.uint8],
    alive: NDArray[np.int64],
    count: int,
    masks: NDArray[np.uint64],
) -> None:
    """The AND of each publication's `sure` bitmaps into its line of `masks`."""
    masks[:count] = ~np.uint64(0)
    for j in range(bitmaps.block_start[block], bitmaps.block_start[block + 1]):
        cell = cells[bitmaps.shift[j], bitmaps.dimension[j]]
        words = bitmaps.sure[bitmaps.first_line[j] : bitmaps.first_line[j + 1]]
        for i in range(np.uint64(count)):
            _and_line(masks[i], words[np.uint64(cell[np.uint64(alive[i])])])


@inline_kernel
def _and_line(mask: NDArray[np.uint64], line: NDArray[np.uint64]) -> None:
    """`mask &= line`, spelt out: all is loaded before anything is stored, so it becomes vector code."""
    w0, w1, w2, w3 = mask[0] & line[0], mask[1] & line[1], mask[2] & line[2], mask[3] & line[3]
    w4, w5, w6, w7 = mask[4] & line[4], mask[5] & line[5], mask[6] & line[6], mask[7] & line[7]
    mask[0], mask[1], mask[2], mask[3] = w0, w1, w2, w3
    mask[4], mask[5], mask[6], mask[7] = w4, w5, w6, w7


@kernel
def _sweep(masks: NDArray[np.uint64], alive: NDArray[np.int64], count: int) -> int:
    """Close the gaps that publications with an empty mask leave."""
    kept = np.uint64(0)
    for i in range(np.uint64(count)):
        mask = masks[i]
        if mask[0] | mask[1] | mask[2] | mask[3] | mask[4] | mask[5] | mask[6] | mask[7]:
            if kept < i:
                masks[kept] = mask
                alive[kept] = alive[i]
            kept += np.uint64(1)
    return int(kept)


@kernel
def _grow(array: NDArray[np.uint32], more: int) -> NDArray[np.uint32]:
    larger = np.empty(2 * len(array) + more, array.dtype)
    larger[: len(array)] = array
    return larger
