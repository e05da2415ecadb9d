"""Decides exactly which strings a constraint leaves, although suffix and contains patterns are not intervals.

A constraint without patterns is a set of intervals, and set algebra suffices. With patterns, simple arguments are tried
first (points are tested one by one, one pattern may imply another, an obvious witness may fit); `string_search` decides
the rest. That search is bounded. Where it gives up, the constraint counts as satisfiable, which errs on the safe side:
covering is denied, an intersection assumed.
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
    """Whether the constraint holds for some string."""
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
    """Whether `outer` holds for every string for which `inner`, which is satisfiable, does."""
    if not inner.patterns and not outer.patterns:
        return is_subset(inner.intervals, outer.intervals)
    # A string of `inner` outside `outer` lies outside its intervals, or fails one of its patterns.
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
    """The same strings without redundant patterns, and without points that fail the patterns."""
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
    """Whether it contains just one string."""
    low, high = interval
    return high is not None and high == (low or "") + "\0"


def implies(left: Pattern, right: Pattern) -> bool:
    """Whether `right` holds for each string for which `left` does; considers only obvious reasons."""
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
    """Strings that often fit: the required parts joined at the low end of each interval, and just above it."""
    wanted = [pattern for pattern in strings.patterns if not pattern.negated]
    inside = "".join(pattern.literal for pattern in wanted if pattern.kind is PatternKind.CONTAINS)
    end = max((pattern.literal for pattern in wanted if pattern.kind is PatternKind.SUFFIX), key=len, default="")
    witnesses = [inside + end, end]
    for low, _ in strings.intervals[:8]:
        witnesses += [(low or "") + inside + end, (low or "") + _LAST + inside + end, low or ""]
    return [witness for witness in witnesses if contains(strings.intervals, witness)]
