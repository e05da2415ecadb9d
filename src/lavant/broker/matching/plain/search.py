"""The search: batch in, matching rows out, in compiled loops that release the GIL.

Inner loops index with unsigned numbers: a signed index may be negative, and the check keeps the compiler from
vectorising (copying ids is twelve times as fast without).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching.plain.bitmaps import Bitmaps
from lavant.broker.matching.plain.encoder import SearchBatch
from lavant.broker.matching.plain.extras import ExtraConstraints
from lavant.broker.matching.plain.groups import ALL, AT_LEAST, MIXED
from lavant.broker.matching.plain.index import EMPTY, Checks, Index, hash_key
from lavant.broker.matching.plain.mixed_search import search_bucket
from lavant.core.kernels.kernels import kernel

NO_BUCKET = -1


class FoundRows(NamedTuple):
    """Matching rows: runs of rows for each publication and group, and single rows."""

    counts: NDArray[np.int64]
    run_start: NDArray[np.int64]
    run_length: NDArray[np.int64]
    hit_event: NDArray[np.uint32]
    hit_row: NDArray[np.uint32]


@kernel
def find_rows(
    index: Index, checks: Checks, extras: ExtraConstraints, bitmaps: Bitmaps, events: SearchBatch
) -> FoundRows:
    """All rows that each publication matches; a subscription with several rows may occur several times."""
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
    room = 64 + 16 * count if runs < groups else 0
    hits = np.empty(room, np.uint32), np.empty(room, np.uint32), int(np.int64(0))  # the literal 0 has a type of its own
    bucket = np.empty(count, np.int64)
    for g in range(runs, groups):
        for e in range(count):
            bucket[e] = _find_bucket(index, g, events.values, e)
        order = np.argsort(bucket, kind="mergesort")
        first = 0
        while first < count:  # publications with the same bucket are searched together
            b = bucket[order[first]]
            last = first
            while last < count and bucket[order[last]] == b:
                last += 1
            if b != NO_BUCKET:
                hits = search_bucket(index, checks, extras, bitmaps, events, b, order[first:last], hits)
            first = last
    hit_event, hit_row, found = hits
    for h in range(found):
        counts[hit_event[h]] += 1
    return FoundRows(counts, run_start, run_length, hit_event[:found], hit_row[:found])


@kernel
def copy_ids(row_ids: NDArray[np.uint32], found: FoundRows, out: NDArray[np.uint32], cursor: NDArray[np.int64]) -> None:
    """Write the ids of the matching rows, publication e's from `cursor[e]` on."""
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
    index: Index, found: FoundRows, dead: NDArray[np.bool_], twins: int
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Counts and ids of matching rows without dead ones, each subscription once."""
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
