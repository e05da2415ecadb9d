"""Merges the matches of several matchers for the same publications."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching.interface import Matches
from lavant.core.kernels.kernels import frozen, kernel


def merge(parts: Sequence[Matches]) -> Matches:
    """For each publication its matches in all parts. No subscription may be in two parts."""
    if len(parts) == 1:
        return parts[0]
    counts = np.sum([np.diff(part.offsets) for part in parts], axis=0)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    ids = np.empty(offsets[-1], np.uint32)
    cursor = offsets[:-1].copy()
    for part in parts:
        copy_lists(frozen(part.offsets), frozen(part.ids), cursor, ids)
    return Matches(offsets, ids)


@kernel
def copy_lists(
    offsets: NDArray[np.int64], ids: NDArray[np.uint32], cursor: NDArray[np.int64], out: NDArray[np.uint32]
) -> None:
    """Copy each publication's ids to its cursor, and advance the cursor."""
    for i in range(len(cursor)):
        start, place = np.uint64(offsets[i]), np.uint64(cursor[i])
        length = np.uint64(offsets[i + 1]) - start
        source, target = ids[start : start + length], out[place : place + length]
        for k in range(length):
            target[k] = source[k]
        cursor[i] += np.int64(length)
