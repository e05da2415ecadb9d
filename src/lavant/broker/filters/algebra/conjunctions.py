"""Conjunctions: at most one constraint on each attribute, all of which must hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from lavant.broker.filters.algebra.constraints import Constraint, Strings, narrow
from lavant.broker.filters.algebra.intervals import EVERYTHING
from lavant.broker.filters.algebra.string_search import SearchBudget
from lavant.broker.filters.algebra.strings import satisfiable, simplify
from lavant.broker.filters.limits import FilterLimits
from lavant.core.errors import LimitExceeded
from lavant.core.publications.attributes import AttributeValue


class Conjunction(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """`constraints` are sorted by attribute name, each name once; none at all accepts everything.

    Every constraint is satisfiable, so the conjunction is: attributes do not depend on each other.
    """

    constraints: tuple[tuple[str, Constraint], ...] = ()

    def matches(self, attributes: Mapping[str, AttributeValue]) -> bool:
        for name, constraint in self.constraints:  # noqa: SIM110 - a generator costs as much again
            if not constraint.holds(attributes.get(name)):
                return False
        return True


def conjoin(
    constraints: Iterable[tuple[str, Constraint | None]], limits: FilterLimits, budget: SearchBudget
) -> Conjunction | None:
    """The conjunction of all constraints; None if nothing can match it."""
    together: dict[str, Constraint] = {}
    for name, constraint in constraints:
        if constraint is None:
            return None
        known = together.get(name)
        both = constraint if known is None else narrow(known, constraint)
        if both is None:
            return None
        together[name] = both
    for name, constraint in together.items():
        if isinstance(constraint, Strings) and constraint.patterns and not _is_one_pattern(constraint):
            simpler = simplify(constraint)
            if len(simpler.patterns) > limits.patterns_max:
                raise LimitExceeded(
                    f"attribute {name!r} has {len(simpler.patterns)} suffix and contains patterns in one conjunction, "
                    f"at most {limits.patterns_max} are allowed"
                )
            if not satisfiable(simpler, budget):
                return None
            together[name] = simpler
    return Conjunction(tuple(sorted(together.items())) if len(together) > 1 else tuple(together.items()))


def _is_one_pattern(strings: Strings) -> bool:
    """Whether there is nothing to simplify: some string passes any single pattern."""
    return len(strings.patterns) == 1 and strings.intervals == EVERYTHING
