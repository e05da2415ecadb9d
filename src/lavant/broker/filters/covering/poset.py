"""A node of the covering graph: equivalent filters, their neighbours, and quick tests that rule out others.

`fixed` holds the attributes that must have one certain value for the filter to match: `class = 'STOCK'` is by far the
most common predicate, and comparing two dictionaries rules out most pairs of filters before any algebra. With patterns,
a single value may be left without this showing; such attributes are `vague`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lavant.broker.filters.algebra.conjunctions import Conjunction
from lavant.broker.filters.algebra.constraints import Booleans, Constraint, Numbers, Strings
from lavant.broker.filters.algebra.intervals import number_successor
from lavant.broker.filters.algebra.strings import is_point
from lavant.broker.filters.model import Filter
from lavant.core.ids import SubscriptionId

FixedValue = tuple[type, str | float | bool]
"""With its type, since 1 == True in a dictionary."""


class Node:
    """Compared and hashed by identity. Neighbours are dictionaries to keep their order deterministic."""

    __slots__ = ("children", "filter", "fixed", "members", "parents", "vague")

    def __init__(self, filter: Filter) -> None:
        self.filter = filter
        self.fixed = fixed_values(filter)
        self.vague = vague_names(filter)
        self.members: dict[SubscriptionId, Filter] = {}
        self.parents: dict[Node, None] = {}
        self.children: dict[Node, None] = {}

    @property
    def id(self) -> SubscriptionId:
        """The first added of the equivalent ones represents all."""
        return next(iter(self.members))

    @staticmethod
    def order(node: Node) -> SubscriptionId:
        return node.id

    def may_cover(self, other: Node) -> bool:
        """False only if it cannot: whatever is fixed here must be fixed there."""
        theirs, vague = other.fixed, other.vague
        for name, value in self.fixed.items():  # noqa: SIM110 - a generator costs as much again
            if theirs.get(name) != value and name not in vague:
                return False
        return True

    def may_intersect(self, other: Node) -> bool:
        """False only if nothing can match both: some attribute is fixed to different values."""
        theirs = other.fixed
        return all(theirs.get(name, value) == value for name, value in self.fixed.items())


def ancestors(nodes: Iterable[Node]) -> set[Node]:
    """All nodes above these, without themselves."""
    found: set[Node] = set()
    waiting = [parent for node in nodes for parent in node.parents]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.parents
    return found


def fixed_values(filter: Filter) -> Mapping[str, FixedValue]:
    """The attributes to which every conjunction gives the same single value."""
    if not filter.conjunctions:
        return {}
    first, *others = map(_fixed, filter.conjunctions)
    if not others:
        return first
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def vague_names(filter: Filter) -> tuple[str, ...]:
    """The attributes with patterns."""
    found = {
        name: None
        for conjunction in filter.conjunctions
        for name, constraint in conjunction.constraints
        if isinstance(constraint, Strings) and constraint.patterns
    }
    return tuple(found)


def _fixed(conjunction: Conjunction) -> dict[str, FixedValue]:
    return {
        name: value for name, constraint in conjunction.constraints if (value := _single_value(constraint)) is not None
    }


def _single_value(constraint: Constraint) -> FixedValue | None:
    if isinstance(constraint, Booleans):
        return (bool, constraint.allowed[0]) if len(constraint.allowed) == 1 else None
    if not isinstance(constraint, Numbers | Strings) or len(constraint.intervals) > 1:
        return None
    if isinstance(constraint, Strings):
        interval = constraint.intervals[0]
        return (str, interval[0] or "") if is_point(interval) else None
    low, high = constraint.intervals[0]
    return (float, low) if low is not None and high == number_successor(low) else None
