"""Buckets for percentiles: as fine as a float with seven bits, computed with integers only.

A duration of more than 7 bits keeps its first seven; shorter ones stay exact. So there are 64 buckets between a
number and its double, durations below 128 µs are exact, and the middle of a bucket is at most 1/128 (0.78 %) away from
any duration in it. Counts of buckets add up exactly, and integers give the same bucket in NumPy and in SQL; logarithms
would not, since libraries round them differently. The layout is that of HdrHistogram (Gil Tene).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

SIGNIFICANT_BITS = 7
RELATIVE_ERROR_MAX = 1 / 2**SIGNIFICANT_BITS


def bucket_of(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the lowest value of the bucket of each value; values lie between 0 and 2^53.

    >>> bucket_of(np.array([5, 127, 128, 129, 1000])).tolist()
    [5, 127, 128, 128, 1000]
    """
    _, bit_lengths = np.frexp(values.astype(np.float64))  # exact: a double holds every integer up to 2^53
    dropped = np.maximum(bit_lengths.astype(np.int64) - SIGNIFICANT_BITS, 0)
    return (values >> dropped) << dropped


def middle_of(bucket: int) -> float:
    """Returns the middle of a bucket, which represents all its values.

    >>> middle_of(5), middle_of(128), middle_of(1024)
    (5.0, 128.5, 1031.5)
    """
    dropped = max(bucket.bit_length() - SIGNIFICANT_BITS, 0)
    return bucket + ((1 << dropped) - 1) / 2


def percentile_bucket(counts: Mapping[int, int], fraction: float) -> int | None:
    """Returns the bucket of the value of rank ⌈n · fraction⌉ (nearest rank); None if there are no values.

    The rank is computed in doubles, as Spark's `percentile_disc` does.
    """
    rank = math.ceil(sum(counts.values()) * fraction)
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= rank:
            return bucket
    return None
