"""Turns a constraint back into predicates, as few and as short as possible.

For expressions a set of intervals becomes alternatives, each an interval with holes: `(x = 1 or x > 5 and x != 7)`.
Triples know no alternatives inside a conjunction, so there it becomes one interval with holes, larger ones written with
not-between. Both read back to the same constraint: `normal_form` merges alternatives on one attribute.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from lavant.broker.filters.algebra.constraints import (
    Absent,
    Booleans,
    Constraint,
    Numbers,
    Pattern,
    PatternKind,
    Strings,
)
from lavant.broker.filters.algebra.intervals import (
    Interval,
    Intervals,
    T,
    number_successor,
    prefix_end,
    string_successor,
)
from lavant.broker.filters.algebra.predicates import NUMBER_MIN, STRING_MIN
from lavant.broker.filters.language.ast import (
    And,
    Between,
    Compare,
    ComparisonOperator,
    Exists,
    In,
    Like,
    LikeKind,
    Node,
    Not,
    Or,
    Value,
)
from lavant.broker.filters.language.numerals import numeral


def predicates_of(name: str, constraint: Constraint, *, alternatives: bool) -> list[Node]:
    """Predicates on `name` that together equal the constraint, with `Or` among them if `alternatives`."""
    match constraint:
        case Numbers(intervals):
            return _split(name, intervals, _Numbers(), alternatives=alternatives)
        case Strings(intervals, patterns):
            found = [_pattern(name, pattern) for pattern in patterns]
            if found and intervals == ((None, None),):
                return found
            return _split(name, intervals, _Strings(), alternatives=alternatives) + found
        case Booleans(allowed):
            return [_points(name, list(allowed), negated=False)]
        case Absent():
            return [Not(Exists(name))]
        case _:
            return [Exists(name)]


class _Writer(Protocol[T]):
    """How intervals of one type are written."""

    minimum: T

    def successor(self, value: T) -> T | None: ...

    def everything(self, name: str) -> Node: ...

    def low(self, value: T) -> tuple[ComparisonOperator, T]:
        """The comparison that means: at least `value`."""

    def high(self, value: T) -> tuple[ComparisonOperator, T]:
        """The comparison that means: less than `value`."""

    def is_small(self, low: T, high: T) -> bool:
        """Whether the hole has a simple predicate of its own."""

    def hole(self, name: str, low: T, high: T) -> list[Node]: ...


class _Numbers(_Writer[float]):
    minimum = NUMBER_MIN

    def successor(self, value: float) -> float | None:
        return number_successor(value)

    def everything(self, name: str) -> Node:
        return Compare(name, ComparisonOperator.GE, NUMBER_MIN)

    def low(self, value: float) -> tuple[ComparisonOperator, float]:
        below = math.nextafter(value, -math.inf) + 0.0
        return (
            (ComparisonOperator.GE, value)
            if len(numeral(value)) <= len(numeral(below))
            else (ComparisonOperator.GT, below)
        )

    def high(self, value: float) -> tuple[ComparisonOperator, float]:
        below = math.nextafter(value, -math.inf) + 0.0
        return (
            (ComparisonOperator.LT, value)
            if len(numeral(value)) <= len(numeral(below))
            else (ComparisonOperator.LE, below)
        )

    def is_small(self, low: float, high: float) -> bool:
        return high == number_successor(low)

    def hole(self, name: str, low: float, high: float) -> list[Node]:
        return [Not(Between(name, low, math.nextafter(high, -math.inf) + 0.0))]


class _Strings(_Writer[str]):
    minimum = STRING_MIN

    def successor(self, value: str) -> str | None:
        return string_successor(value)

    def everything(self, name: str) -> Node:
        return Like(name, LikeKind.PREFIX, "")

    def low(self, value: str) -> tuple[ComparisonOperator, str]:
        return (ComparisonOperator.GT, value[:-1]) if value[-1] == "\0" else (ComparisonOperator.GE, value)

    def high(self, value: str) -> tuple[ComparisonOperator, str]:
        return (ComparisonOperator.LE, value[:-1]) if value[-1] == "\0" else (ComparisonOperator.LT, value)

    def is_small(self, low: str, high: str) -> bool:
        return high in (string_successor(low), prefix_end(low))

    def hole(self, name: str, low: str, high: str) -> list[Node]:
        if high == prefix_end(low):
            return [Not(Like(name, LikeKind.PREFIX, low))]
        if high[-1] == "\0":
            return [Not(Between(name, low, high[:-1]))]
        # No string is the immediate predecessor of `high`, but a prefix ends there; the shortest that starts in
        # the hole.
        code = ord(high[-1]) - 1
        prefix = high[:-1] + chr(0xD7FF if code == 0xDFFF else code)
        while prefix < low:
            prefix += chr(sys.maxunicode)
        without: Node = Not(Like(name, LikeKind.PREFIX, prefix))
        return [without] if prefix == low else [Not(Between(name, low, prefix)), without]


def _split(name: str, intervals: Intervals[T], writer: _Writer[T], *, alternatives: bool) -> list[Node]:
    points = [_least(interval, writer) for interval in intervals if _is_point(interval, writer)]
    if len(points) == len(intervals):
        return [_points(name, points, negated=False)]
    if not alternatives:
        return _run(name, intervals, writer)
    parts = [[_points(name, points, negated=False)]] if points else []
    ranges = [interval for interval in intervals if not _is_point(interval, writer)]
    parts += [_run(name, run, writer) for run in _runs(ranges, writer)]
    if len(parts) == 1:
        return parts[0]
    return [Or(tuple(part[0] if len(part) == 1 else And(tuple(part)) for part in parts))]


def _runs(intervals: Sequence[Interval[T]], writer: _Writer[T]) -> list[list[Interval[T]]]:
    """Intervals grouped where only small holes separate them."""
    runs = [[intervals[0]]]
    for interval, (low, high) in zip(intervals[1:], _holes(intervals), strict=True):
        if writer.is_small(low, high):
            runs[-1].append(interval)
        else:
            runs.append([interval])
    return runs


def _run(name: str, intervals: Sequence[Interval[T]], writer: _Writer[T]) -> list[Node]:
    """One interval with holes."""
    holes = _holes(intervals)
    points = [low for low, high in holes if high == writer.successor(low)]
    nodes = _bounds(name, (intervals[0][0], intervals[-1][1]), writer)
    if points:
        nodes.append(_points(name, points, negated=True))
    for low, high in holes:
        if high != writer.successor(low):
            nodes += writer.hole(name, low, high)
    return nodes or [writer.everything(name)]


def _holes(intervals: Sequence[Interval[T]]) -> list[tuple[T, T]]:
    holes: list[tuple[T, T]] = []
    for (_, low), (high, _) in pairwise(intervals):
        assert low is not None, "only the last interval has no high end"
        assert high is not None, "only the first interval has no low end"
        holes.append((low, high))
    return holes


def _bounds(name: str, interval: Interval[T], writer: _Writer[T]) -> list[Node]:
    low, high = interval
    if isinstance(low, str) and high == prefix_end(low):
        return [Like(name, LikeKind.PREFIX, low)]
    start = None if low is None else writer.low(low)
    stop = None if high is None else writer.high(high)
    if (
        start is not None
        and stop is not None
        and start[0] is ComparisonOperator.GE
        and stop[0] is ComparisonOperator.LE
    ):
        return [Between(name, start[1], stop[1])]
    return [Compare(name, bound[0], bound[1]) for bound in (start, stop) if bound is not None]


def _is_point(interval: Interval[T], writer: _Writer[T]) -> bool:
    return interval[1] == writer.successor(_least(interval, writer))


def _least(interval: Interval[T], writer: _Writer[T]) -> T:
    return writer.minimum if interval[0] is None else interval[0]


def _points(name: str, values: Sequence[Value], *, negated: bool) -> Node:
    if len(values) == 1:
        return Compare(name, ComparisonOperator.NE if negated else ComparisonOperator.EQ, values[0])
    node = In(name, tuple(values))
    return Not(node) if negated else node


def _pattern(name: str, pattern: Pattern) -> Node:
    kind = LikeKind.SUFFIX if pattern.kind is PatternKind.SUFFIX else LikeKind.CONTAINS
    node = Like(name, kind, pattern.literal)
    return Not(node) if pattern.negated else node
