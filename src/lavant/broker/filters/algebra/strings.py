"""Which strings does a constraint leave? Decided exactly, although suffixes and contained parts are no intervals.

A constraint without patterns is a set of intervals, and all is set algebra. With patterns, simple reasons are tried
first (points are tested one by one, one pattern may imply another, an obvious witness may fit); what is then still
open is searched for in `string_search`. That search is bounded. Where it gives up, the constraint counts as
satisfiable, which errs on the safe side everywhere: covering is denied, an intersection assumed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from lavant.broker.filters.algebra.constraints import Pattern, PatternKind, Strings
from lavant.broker.filters.algebra.intervals import Interval, complement, contains, intersection, is_subset
from lavant.broker.filters.algebra.string_search import SearchBudget, search

_LAST = chr(sys.maxunicode)


def satisfiable(strings: Strings, budget: SearchBudget) -> bool:
    """Is there a string for which the constraint holds?"""
    if not strings.intervals:
        return False
    if not strings.patterns:
        return True
    if all(is_point(interval) for interval in strings.intervals):
        return any(strings.holds(interval[0] or "") for interval in strings.intervals)
    if any(strings.holds(witness) for witness in _likely(strings)):
        return True
    return search(strings, budget) is not False


def is_within(inner: Strings, outer: Strings, budget: SearchBudget) -> bool:
    """Does `outer` hold for every string for which `inner`, which is satisfiable, does?"""
    if not inner.patterns and not outer.patterns:
        return is_subset(inner.intervals, outer.intervals)
    # A string of `inner` outside of `outer` lies outside of its intervals, or fails one of its patterns.
    outside = intersection(inner.intervals, complement(outer.intervals))
    if outside and satisfiable(msgspec.structs.replace(inner, intervals=outside), budget):
        return False
    for pattern in outer.patterns:
        if any(implies(known, pattern) for known in inner.patterns):
            continue
        failing = msgspec.structs.replace(pattern, negated=not pattern.negated)
        if satisfiable(Strings(inner.intervals, (*inner.patterns, failing)), budget):
            return False
    return True


def simplify(strings: Strings) -> Strings:
    """The same strings without patterns that others imply, and without points that fail the patterns."""
    intervals = tuple(
        interval
        for interval in strings.intervals
        if not is_point(interval) or all(pattern.holds(interval[0] or "") for pattern in strings.patterns)
    )
    if all(is_point(interval) for interval in intervals):
        return Strings(intervals)
    patterns = tuple(
        pattern
        for pattern in strings.patterns
        if not any(other != pattern and implies(other, pattern) for other in strings.patterns)
    )
    return Strings(intervals, patterns)


def is_point(interval: Interval[str]) -> bool:
    """Is there just one string in it?"""
    low, high = interval
    return high is not None and high == (low or "") + "\0"


def implies(left: Pattern, right: Pattern) -> bool:
    """Does each string for which `left` holds have `right` hold, too? Only reasons that are plain to see."""
    if left.negated is not right.negated:
        return False
    if left.negated:
        left, right = right, left
    if left.kind is PatternKind.SUFFIX:
        return (
            left.literal.endswith(right.literal) if right.kind is PatternKind.SUFFIX else right.literal in left.literal
        )
    return right.kind is PatternKind.CONTAINS and right.literal in left.literal


def _likely(strings: Strings) -> Sequence[str]:
    """Strings that often fit: what is asked for, put together at the low end of each interval, and just above it."""
    wanted = [pattern for pattern in strings.patterns if not pattern.negated]
    inside = "".join(pattern.literal for pattern in wanted if pattern.kind is PatternKind.CONTAINS)
    end = max((pattern.literal for pattern in wanted if pattern.kind is PatternKind.SUFFIX), key=len, default="")
    witnesses = [inside + end, end]
    for low, _ in strings.intervals[:8]:
        witnesses += [(low or "") + inside + end, (low or "") + _LAST + inside + end, low or ""]
    return [witness for witness in witnesses if contains(strings.intervals, witness)]
