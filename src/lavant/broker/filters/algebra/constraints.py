"""Constraints: what a conjunction requires of one attribute, in a normal form for index, covering and printer.

Every predicate on an attribute narrows one of five kinds of constraint. Two predicates of different kinds can't both
hold (a value has one type), so a constraint has just one kind:

    Numbers     half-open intervals of doubles           volume > 300000, price in (1, 2), price != 5
    Strings     half-open intervals of strings and       symbol = 'IBM', name like 'Ya%', name >= 'M',
                suffix or contains patterns              name like '%hoo', name not like '%x%'
    Booleans    the truth values allowed                 listed = true
    Present     present, of any type                     exists(date)
    Absent      not present                              not exists(date)

There are many of them, and they form no cycles, so the garbage collector skips them.
"""

from __future__ import annotations

import enum

import msgspec

from lavant.broker.filters.algebra.intervals import EVERYTHING, Intervals, contains, intersection
from lavant.core.publications.attributes import AttributeValue


class PatternKind(enum.IntEnum):
    """String tests that are not an interval of the string order."""

    SUFFIX = 0
    CONTAINS = 1


class Pattern(msgspec.Struct, frozen=True, order=True, gc=False):
    """The string ends with, or contains, a literal; or, negated, does not."""

    kind: PatternKind
    literal: str
    negated: bool = False

    def holds(self, value: str) -> bool:
        found = value.endswith(self.literal) if self.kind is PatternKind.SUFFIX else self.literal in value
        return found is not self.negated


class Numbers(msgspec.Struct, frozen=True, gc=False, tag="Numbers"):
    intervals: Intervals[float] = EVERYTHING

    def holds(self, value: AttributeValue | None) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and contains(self.intervals, float(value))


class Strings(msgspec.Struct, frozen=True, gc=False, tag="Strings"):
    """`patterns` are sorted and without duplicates."""

    intervals: Intervals[str] = EVERYTHING
    patterns: tuple[Pattern, ...] = ()

    def holds(self, value: AttributeValue | None) -> bool:
        return (
            isinstance(value, str)
            and contains(self.intervals, value)
            and all(pattern.holds(value) for pattern in self.patterns)
        )


class Booleans(msgspec.Struct, frozen=True, gc=False, tag="Booleans"):
    """`allowed` is sorted: (False,), (True,) or (False, True)."""

    allowed: tuple[bool, ...]

    def holds(self, value: AttributeValue | None) -> bool:
        return isinstance(value, bool) and value in self.allowed


class Present(msgspec.Struct, frozen=True, gc=False, tag="Present"):
    def holds(self, value: AttributeValue | None) -> bool:
        return value is not None


class Absent(msgspec.Struct, frozen=True, gc=False, tag="Absent"):
    def holds(self, value: AttributeValue | None) -> bool:
        return value is None


Constraint = Numbers | Strings | Booleans | Present | Absent


def narrow(left: Constraint, right: Constraint) -> Constraint | None:
    """The intersection of both constraints; None where their kinds exclude each other or nothing is left.

    Patterns are not compared with each other here; `satisfiable` does that.
    """
    match left, right:
        case Present(), Absent() | Present():
            return None if isinstance(right, Absent) else left
        case Present(), _:
            return right
        case Absent(), Absent():
            return left
        case _, Present() if not isinstance(left, Absent):
            return left
        case Numbers(), Numbers():
            numbers = intersection(left.intervals, right.intervals)
            return Numbers(numbers) if numbers else None
        case Strings(), Strings():
            strings = intersection(left.intervals, right.intervals)
            return Strings(strings, tuple(sorted({*left.patterns, *right.patterns}))) if strings else None
        case Booleans(), Booleans():
            allowed = tuple(value for value in left.allowed if value in right.allowed)
            return Booleans(allowed) if allowed else None
        case _:
            return None
