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
from lavant.broker.matching.plain.groups import ALL, AT_LEAST, LITERAL, MIXED
from lavant.broker.matching.plain.index import EMPTY, Checks, Index, hash_key
from lavant.broker.matching.plain.literals import NONE, PatternLiterals
from lavant.broker.matching.plain.mixed_search import Hits, grow, search_bucket
from lavant.core.kernels.kernels import inlined_kernel, kernel

NO_BUCKET = -1
DIGIT_BITS = 11
DIGITS = 1 << DIGIT_BITS
"""Of a bucket's number when buckets are sorted: counters of one digit fit the first-level cache."""


class FoundRows(NamedTuple):
    """Matching rows: runs of rows for each publication and group, and single rows."""

    counts: NDArray[np.int64]
    run_start: NDArray[np.int64]
    run_length: NDArray[np.int64]
    hit_event: NDArray[np.uint32]
    hit_row: NDArray[np.uint32]


@kernel
def find_rows(
    index: Index,
    checks: Checks,
    extras: ExtraConstraints,
    literals: PatternLiterals,
    bitmaps: Bitmaps,
    events: SearchBatch,
) -> FoundRows:
    """All rows that each publication matches; a subscription with several rows may occur several times."""
    groups = len(index.group_form)
    count = events.values.shape[0]
    runs = 0
    while runs < groups and index.group_form[runs] != MIXED:
        runs += 1
    run_start = np.zeros((count, runs), np.int64)
    run_length = np.zeros((count, runs), np.int64)
    counts = np.zeros(count, np.int64)
    has_hits = runs < groups
    for g in range(runs):
        if _has_literal_key(index, g):
            has_hits = True
            continue
        for e in range(count):
            start, length = _find_run(index, g, _find_bucket(index, g, events.values, e, NONE), events.values, e)
            run_start[e, g] = start
            run_length[e, g] = length
            counts[e] += length
    room = 64 + 16 * count if has_hits else 0
    hits = np.empty(room, np.uint32), np.empty(room, np.uint32), int(np.int64(0))  # the literal 0 has a type of its own
    for g in range(groups):
        if _has_literal_key(index, g):
            hits = _search_literals(index, checks, extras, literals, bitmaps, events, g, hits)
        elif g >= runs:
            bucket, event = np.empty(count, np.int64), np.arange(count)
            for e in range(count):
                bucket[e] = _find_bucket(index, g, events.values, e, NONE)
            hits = _search_buckets(index, checks, extras, literals, bitmaps, events, bucket, event, hits)
    hit_event, hit_row, found = hits
    for h in range(found):
        counts[hit_event[h]] += 1
    return FoundRows(counts, run_start, run_length, hit_event[:found], hit_row[:found])


@inlined_kernel
def _has_literal_key(index: Index, g: int) -> bool:
    first = index.group_key_start[g]
    return bool(first < index.group_key_start[g + 1] and index.key_dimension[first] == LITERAL)


@kernel
def _search_buckets(
    index: Index,
    checks: Checks,
    extras: ExtraConstraints,
    literals: PatternLiterals,
    bitmaps: Bitmaps,
    events: SearchBatch,
    bucket: NDArray[np.int64],
    event: NDArray[np.int64],
    hits: Hits,
) -> Hits:
    """Search each MIXED bucket for its publication. Publications with the same bucket are searched together."""
    order = _bucket_order(bucket)
    chosen = event[order]
    first = 0
    while first < len(order):
        b = bucket[order[first]]
        last = first
        while last < len(order) and bucket[order[last]] == b:
            last += 1
        if b != NO_BUCKET:
            hits = search_bucket(index, checks, extras, literals, bitmaps, events, b, chosen[first:last], hits)
        first = last
    return hits


@kernel
def _bucket_order(bucket: NDArray[np.int64]) -> NDArray[np.int64]:
    """A stable order by bucket, digit by digit from the lowest: thirty times as fast as a comparison sort."""
    last = NO_BUCKET
    for b in bucket:
        last = max(last, b)
    order, sorted_order = np.arange(len(bucket)), np.empty(len(bucket), np.int64)
    shift = 0
    while (last - NO_BUCKET) >> shift:
        starts = np.zeros(DIGITS + 1, np.int64)
        for b in bucket:
            starts[1 + ((b - NO_BUCKET) >> shift) % DIGITS] += 1
        for digit in range(DIGITS):
            starts[digit + 1] += starts[digit]
        for i in order:
            digit = ((bucket[i] - NO_BUCKET) >> shift) % DIGITS
            sorted_order[starts[digit]] = i
            starts[digit] += 1
        order, sorted_order = sorted_order, order
        shift += DIGIT_BITS
    return order


@kernel
def _search_literals(
    index: Index,
    checks: Checks,
    extras: ExtraConstraints,
    literals: PatternLiterals,
    bitmaps: Bitmaps,
    events: SearchBatch,
    g: int,
    hits: Hits,
) -> Hits:
    """Add the matches of a group with literals in its key: each publication is looked up with all of its literals."""
    is_mixed = index.group_form[g] == MIXED
    room = 64 + 4 * len(events.values) if is_mixed else 0
    bucket, event, pairs = np.empty(room, np.uint32), np.empty(room, np.uint32), 0
    hit_event, hit_row, count = hits
    for e in range(len(events.values)):
        for root in range(len(events.text)):
            text = events.text[root, e]
            if text == NONE:
                continue
            for f in range(events.found.start[text], events.found.start[text + 1]):
                b = _find_bucket(index, g, events.values, e, events.found.literals[f])
                if b == NO_BUCKET:
                    continue
                if is_mixed:
                    if pairs == len(bucket):
                        bucket, event = grow(bucket, 1), grow(event, 1)
                    bucket[pairs] = b
                    event[pairs] = e
                    pairs += 1
                    continue
                start, length = _find_run(index, g, b, events.values, e)
                if count + length > len(hit_event):
                    hit_event, hit_row = grow(hit_event, length), grow(hit_row, length)
                for k in range(length):
                    hit_event[count + k] = e
                    hit_row[count + k] = start + k
                count += length
    hits = hit_event, hit_row, count
    if pairs:
        wide = bucket[:pairs].astype(np.int64), event[:pairs].astype(np.int64)
        hits = _search_buckets(index, checks, extras, literals, bitmaps, events, wide[0], wide[1], hits)
    return hits


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


@inlined_kernel
def _find_bucket(index: Index, g: int, values: NDArray[np.float64], e: int, literal: int) -> int:
    """The bucket of group g whose key the publication has, with this literal if one is part of it; or NO_BUCKET."""
    first_key, last_key = index.group_key_start[g], index.group_key_start[g + 1]
    first_bucket = index.group_bucket_start[g]
    if first_key == last_key:
        return int(first_bucket)
    hashed = np.uint64(0)
    for k in range(first_key, last_key):
        value = _key_value(index, k, values, e, literal)
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
            known = index.key_value[index.group_value_start[g] + b * width + k]
            if known != _key_value(index, first_key + k, values, e, literal):
                same = False
                break
        if same:
            return int(first_bucket + b)
        slot = (slot + np.uint64(1)) & mask


@inlined_kernel
def _key_value(index: Index, k: int, values: NDArray[np.float64], e: int, literal: int) -> float:
    """What the publication has for element k of the keys."""
    d = index.key_dimension[k]
    return float(literal) if d == LITERAL else values[e, d]


@inlined_kernel
def _find_run(index: Index, g: int, b: int, values: NDArray[np.float64], e: int) -> tuple[int, int]:
    """First row and number of rows of bucket b that the publication matches; its group g is not MIXED."""
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
