"""Subset and overlap of constraints and conjunctions, on which covering is built.

Attributes are independent, so a conjunction covers another, satisfiable one exactly if it does so attribute by
attribute; an attribute that the other does not constrain may have any value there, or none.
"""

from __future__ import annotations

from lavant.broker.filters.algebra.conjunctions import Conjunction
from lavant.broker.filters.algebra.constraints import Absent, Booleans, Constraint, Numbers, Present, Strings, narrow
from lavant.broker.filters.algebra.intervals import is_subset
from lavant.broker.filters.algebra.string_search import SearchBudget
from lavant.broker.filters.algebra.strings import is_within, satisfiable


def constraint_covers(outer: Constraint, inner: Constraint, budget: SearchBudget) -> bool:
    """Whether `outer` holds wherever `inner` does."""
    if outer is inner:  # conjunctions from one expansion share their constraints
        return True
    match outer, inner:
        case Present(), _:
            return not isinstance(inner, Absent)
        case Numbers(), Numbers():
            return is_subset(inner.intervals, outer.intervals)
        case Strings(), Strings():
            return outer == inner or is_within(inner, outer, budget)
        case Booleans(), Booleans():
            return all(value in outer.allowed for value in inner.allowed)
        case Absent(), Absent():
            return True
        case _:
            return False


def conjunction_covers(outer: Conjunction, inner: Conjunction, budget: SearchBudget) -> bool:
    """Whether `outer` matches wherever `inner` does."""
    if len(outer.constraints) > len(inner.constraints):
        return False
    known = dict(inner.constraints)
    for name, _ in outer.constraints:  # names first: most pairs fail here, and it is cheap
        if name not in known:
            return False
    for name, constraint in outer.constraints:  # noqa: SIM110 - a generator costs as much again
        if not constraint_covers(constraint, known[name], budget):
            return False
    return True


def conjunctions_intersect(left: Conjunction, right: Conjunction, budget: SearchBudget) -> bool:
    """Whether some publication matches both."""
    known = dict(left.constraints)
    return all(
        constraints_intersect(known[name], constraint, budget)
        for name, constraint in right.constraints
        if name in known
    )


def constraints_intersect(left: Constraint, right: Constraint, budget: SearchBudget) -> bool:
    """Whether both hold for some value."""
    both = narrow(left, right)
    return satisfiable(both, budget) if isinstance(both, Strings) else both is not None
