"""Turns a predicate, or its negation, into a constraint.

A predicate on an absent attribute, or on one of another type, is *unknown*, and so is its negation (three-valued
logic, as in SQL and JMS selectors). So a predicate and its negation each have a constraint of their own, of one kind,
and the negation's is the complement within that kind: `not (volume > 5)` is `volume <= 5`, and still needs a number.
Only `exists` is two-valued.
"""

from __future__ import annotations

import sys
from functools import lru_cache

from lavant.broker.filters.algebra.constraints import (
    Absent,
    Booleans,
    Constraint,
    Numbers,
    Pattern,
    PatternKind,
    Present,
    Strings,
)
from lavant.broker.filters.algebra.intervals import (
    EVERYTHING,
    Intervals,
    complement,
    number_successor,
    prefix_end,
    string_successor,
    union_of_disjoint,
)
from lavant.broker.filters.language.ast import (
    Between,
    Compare,
    ComparisonOperator,
    Exists,
    In,
    Like,
    LikeKind,
    Predicate,
)

NUMBER_MIN = -sys.float_info.max
STRING_MIN = ""
COMPARED_KNOWN = 4096
"""Comparisons with a string whose constraints are remembered."""

# The meaning of `positive` for an operator that is the negation of another one.
_BASE = {
    ComparisonOperator.EQ: (ComparisonOperator.EQ, True),
    ComparisonOperator.NE: (ComparisonOperator.EQ, False),
    ComparisonOperator.LT: (ComparisonOperator.LT, True),
    ComparisonOperator.GE: (ComparisonOperator.LT, False),
    ComparisonOperator.LE: (ComparisonOperator.LE, True),
    ComparisonOperator.GT: (ComparisonOperator.LE, False),
}


def constraint_of(predicate: Predicate, positive: bool) -> Constraint | None:
    """The values for which the predicate is true, or false if not `positive`; None if there are none."""
    match predicate:
        case Compare(_, operator, value):
            base, same = _BASE[operator]
            positive = positive is same
            if isinstance(value, bool):
                return Booleans((value is positive,))
            if isinstance(value, str):
                return _compared_strings(base, value, positive)
            return _numbers(_compared_number(base, value), positive)
        case Like(_, kind, literal):
            return _like(kind, literal, positive)
        case Exists():
            return Present() if positive else Absent()
        case In(_, values):
            return _in(values, positive)
        case Between(_, str(low), str(high)):
            inside = ((low or None, string_successor(high)),) if low <= high else ()
            return _strings(inside, positive)
        case Between(_, float(low), float(high)):
            above = None if low == NUMBER_MIN else low
            between = ((above, number_successor(high)),) if low <= high else ()
            return _numbers(between, positive)
    raise AssertionError(predicate)


def _numbers(intervals: Intervals[float], positive: bool) -> Numbers | None:
    wanted = intervals if positive else complement(intervals)
    return Numbers(wanted) if wanted else None


def _strings(intervals: Intervals[str], positive: bool) -> Strings | None:
    wanted = intervals if positive else complement(intervals)
    return Strings(wanted) if wanted else None


def _compared_number(operator: ComparisonOperator, value: float) -> Intervals[float]:
    """The numbers that are =, < or <= `value`."""
    if operator is ComparisonOperator.LE:
        return ((None, number_successor(value)),)
    if operator is ComparisonOperator.LT:
        return ((None, value),) if value > NUMBER_MIN else ()
    return ((None if value == NUMBER_MIN else value, number_successor(value)),)


@lru_cache(COMPARED_KNOWN)
def _compared_strings(operator: ComparisonOperator, value: str, positive: bool) -> Strings | None:
    """Filters have the same classes and symbols again and again: they share the constraint."""
    return _strings(_compared_string(operator, value), positive)


def _compared_string(operator: ComparisonOperator, value: str) -> Intervals[str]:
    """The strings that are =, < or <= `value`."""
    if operator is ComparisonOperator.LE:
        return ((None, string_successor(value)),)
    if operator is ComparisonOperator.LT:
        return ((None, value),) if value else ()
    return ((value or None, string_successor(value)),)


def _in(values: tuple[str | float | bool, ...], positive: bool) -> Constraint | None:
    kind = type(values[0])
    if kind is bool:
        allowed = tuple(value for value in (False, True) if (value in values) is positive)
        return Booleans(allowed) if allowed else None
    if kind is str:
        strings = {_compared_string(ComparisonOperator.EQ, value)[0] for value in values if isinstance(value, str)}
        return _strings(union_of_disjoint(strings), positive)
    numbers = {_compared_number(ComparisonOperator.EQ, value)[0] for value in values if isinstance(value, float)}
    return _numbers(union_of_disjoint(numbers), positive)


def _like(kind: LikeKind, literal: str, positive: bool) -> Constraint | None:
    if not literal:  # every string starts with, ends with and contains the empty string
        return Strings() if positive else None
    if kind is LikeKind.PREFIX:
        return _strings(((literal, prefix_end(literal)),), positive)
    pattern_kind = PatternKind.SUFFIX if kind is LikeKind.SUFFIX else PatternKind.CONTAINS
    return Strings(EVERYTHING, (Pattern(pattern_kind, literal, not positive),))
