"""Sets of numbers or strings as sorted, disjoint, half-open intervals [low, high).

Both orders have immediate successors, so that every comparison becomes a half-open interval and set algebra is exact:
the double after x is `nextafter(x, ∞)`; the string after s, in order of code points, is s + NUL. So

    x > 5     [5.000000000000001, ∞)           name = 'IBM'       ['IBM', 'IBM\\0')
    x <= 5    (-∞, 5.000000000000001)          name like 'Ya%'    ['Ya', 'Yb')

`None` as a low end means no lower bound, as a high end no upper bound. There is one way to write a set: intervals do
not touch, and the smallest value (the lowest double, the empty string) is no low end, since `None` says the same.
"""

from __future__ import annotations

import bisect
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T", float, str)
Interval = tuple[T | None, T | None]
Intervals = tuple[Interval[T], ...]

_LINEAR_MAX = 8
EVERYTHING: tuple[tuple[None, None]] = ((None, None),)


def number_successor(value: float) -> float | None:
    """The next larger double; None after the largest."""
    return None if value >= sys.float_info.max else math.nextafter(value, math.inf) + 0.0  # + 0.0: never -0.0


def string_successor(value: str) -> str:
    """The next larger string."""
    return value + "\0"


def prefix_end(prefix: str) -> str | None:
    """The smallest string above all that start with `prefix`; None if there is none."""
    while prefix:
        head, last = prefix[:-1], ord(prefix[-1])
        if last < sys.maxunicode:
            return head + chr(0xE000 if last == 0xD7FF else last + 1)  # surrogates are not characters
        prefix = head
    return None


def intersection(left: Intervals[T], right: Intervals[T]) -> Intervals[T]:
    """Values in both. Linear in the number of intervals."""
    result: list[Interval[T]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        (low_a, high_a), (low_b, high_b) = left[i], right[j]
        low = low_a if low_b is None or (low_a is not None and low_a >= low_b) else low_b
        a_ends_first = high_a is not None and (high_b is None or high_a <= high_b)
        high = high_a if a_ends_first else high_b
        if low is None or high is None or low < high:
            result.append((low, high))
        if a_ends_first:
            i += 1
        else:
            j += 1
    return tuple(result)


def complement(intervals: Intervals[T]) -> Intervals[T]:
    """Values in none of them."""
    result: list[Interval[T]] = []
    start: T | None = None
    for low, high in intervals:
        if low is not None:
            result.append((start, low))
        if high is None:
            return tuple(result)
        start = high
    result.append((start, None))
    return tuple(result)


def union_of_disjoint(intervals: Iterable[Interval[T]]) -> Intervals[T]:
    """Sorted, with adjacent intervals joined."""
    result: list[Interval[T]] = []
    for low, high in sorted(intervals, key=_start):
        if result and result[-1][1] == low and low is not None:
            result[-1] = (result[-1][0], high)
        else:
            result.append((low, high))
    return tuple(result)


def union(intervals: Iterable[Interval[T]]) -> Intervals[T]:
    """Values in any of them; they may overlap."""
    result: list[Interval[T]] = []
    for low, high in sorted(intervals, key=_start):
        if not result:
            result.append((low, high))
            continue
        start, end = result[-1]
        if end is None:
            break
        if low is None or low <= end:
            result[-1] = (start, None if high is None else max(end, high))
        else:
            result.append((low, high))
    return tuple(result)


def contains(intervals: Sequence[Interval[T]], value: T) -> bool:
    """Whether `value` is in one of the intervals."""
    if len(intervals) > _LINEAR_MAX:  # an in-list may have a thousand points
        start = bisect.bisect_right(intervals, (True, value), key=_start)
        intervals = intervals[start - 1 : start] if start else ()
    for low, high in intervals:  # noqa: SIM110 - a generator costs as much again, for each publication
        if (low is None or low <= value) and (high is None or value < high):
            return True
    return False


def _start(interval: Interval[T]) -> Any:
    """Sorts a missing lower bound first."""
    return interval[0] is not None, interval[0]


def is_subset(inner: Intervals[T], outer: Intervals[T]) -> bool:
    """Whether `outer` contains all of `inner`."""
    return intersection(inner, outer) == inner
