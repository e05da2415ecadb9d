"""The search: batch in, matching rows out, in compiled loops that release the GIL."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching.plain.bitmaps import WORDS, Bitmaps
from lavant.broker.matching.plain.extras import Extras, extra_holds
from lavant.broker.matching.plain.grouping import ALL, AT_LEAST, MIXED
from lavant.broker.matching.plain.index import EMPTY, NO_EXTRA, Checks, Index, hash_key
from lavant.core.kernels import kernel

NO_BUCKET = -1


class Events(NamedTuple):
    """A batch as a segment sees it: for each dimension (first axis) and publication (second)."""

    values: NDArray[np.float64]
    cells: NDArray[np.uint8]
    """Of each width of cells (an axis before the others); empty if the segment has no bitmaps."""
    text: NDArray[np.int32]
    """Number of the publication's string in `text_start`; empty if the segment has no patterns."""
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
    count = events.values.shape[1]
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
def copy_ids(
    row_ids: NDArray[np.uint32], found: Found, out: NDArray[np.uint32], cursor: NDArray[np.int64]
) -> None:
    """Write the ids of what was found, publication e's from `cursor[e]` on."""
    for e in range(found.run_start.shape[0]):
        place = cursor[e]
        for g in range(found.run_start.shape[1]):
            start, length = found.run_start[e, g], found.run_length[e, g]
            for k in range(length):
                out[place + k] = row_ids[start + k]
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
        return first_bucket
    hashed = np.uint64(0)
    for k in range(first_key, last_key):
        value = values[index.key_dimension[k], e]
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
            if index.key_value[index.group_value_start[g] + b * width + k] != values[index.key_dimension[first_key + k], e]:
                same = False
                break
        if same:
            return first_bucket + b
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
    value = values[index.group_bound_dimension[g], e]
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
def _row_matches(checks: Checks, extras: Extras, events: Events, row: int, e: int) -> bool:
    """Does the publication pass everything that the key of a MIXED row does not decide?"""
    for p in range(checks.start[row], checks.start[row + 1]):
        d = checks.dimension[p]
        value = events.values[d, e]
        if not (checks.low[p] <= value <= checks.high[p]):
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
    mask = np.empty(WORDS, np.uint64)
    # Blocks outside, publications inside: a block's bitmaps stay in the cache for the whole batch.
    for block in range(first_block, last_block):
        first_column, last_column = bitmaps.block_start[block], bitmaps.block_start[block + 1]
        first_row = bitmaps.first_row[block]
        for e in chosen:
            if not _and_bitmaps(bitmaps, bitmaps.maybe, events.cells, first_column, last_column, e, mask):
                continue
            maybe0, maybe1, maybe2, maybe3 = mask[0], mask[1], mask[2], mask[3]
            maybe4, maybe5, maybe6, maybe7 = mask[4], mask[5], mask[6], mask[7]
            _and_bitmaps(bitmaps, bitmaps.sure, events.cells, first_column, last_column, e, mask)
            if hits + 64 * WORDS > len(hit_event):
                hit_event, hit_row = _grow(hit_event, 64 * WORDS), _grow(hit_row, 64 * WORDS)
            possible = (maybe0, maybe1, maybe2, maybe3, maybe4, maybe5, maybe6, maybe7)
            for w in range(WORDS):
                bits = possible[w]
                sure = mask[w]
                while bits:
                    lowest = bits & (~bits + np.uint64(1))
                    bits ^= lowest
                    row = first_row + 64 * w + _bit_number(lowest)
                    if sure & lowest or _row_matches(checks, extras, events, row - first_check, e):
                        hit_event[hits] = e
                        hit_row[hits] = row
                        hits += 1
    return hit_event, hit_row, hits


@kernel
def _and_bitmaps(
    bitmaps: Bitmaps,
    words: NDArray[np.uint64],
    cells: NDArray[np.uint8],
    first: int,
    last: int,
    e: int,
    mask: NDArray[np.uint64],
) -> bool:
    """The AND of the publication's bitmaps into `mask`; False, and an unfinished mask, once nothing is left."""
    ones = ~np.uint64(0)
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = ones
    for j in range(first, last):
        w = bitmaps.offset[j] + WORDS * np.int64(cells[bitmaps.shift[j], bitmaps.dimension[j], e])
        m0 &= words[w]
        m1 &= words[w + 1]
        m2 &= words[w + 2]
        m3 &= words[w + 3]
        m4 &= words[w + 4]
        m5 &= words[w + 5]
        m6 &= words[w + 6]
        m7 &= words[w + 7]
        if (m0 | m1 | m2 | m3 | m4 | m5 | m6 | m7) == 0:
            mask[:] = 0
            return False
    mask[0], mask[1], mask[2], mask[3] = m0, m1, m2, m3
    mask[4], mask[5], mask[6], mask[7] = m4, m5, m6, m7
    return True


@kernel
def _bit_number(lowest: np.uint64) -> int:
    """The number of the one bit that is set."""
    number = 0
    if lowest & np.uint64(0xFFFFFFFF00000000):
        number += 32
    if lowest & np.uint64(0xFFFF0000FFFF0000):
        number += 16
    if lowest & np.uint64(0xFF00FF00FF00FF00):
        number += 8
    if lowest & np.uint64(0xF0F0F0F0F0F0F0F0):
        number += 4
    if lowest & np.uint64(0xCCCCCCCCCCCCCCCC):
        number += 2
    if lowest & np.uint64(0xAAAAAAAAAAAAAAAA):
        number += 1
    return number


@kernel
def _grow(array: NDArray[np.uint32], more: int) -> NDArray[np.uint32]:
    larger = np.empty(2 * len(array) + more, array.dtype)
    larger[: len(array)] = array
    return larger
