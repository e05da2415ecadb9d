"""The normal form of a filter: a syntax tree as a short list of conjunctions, any of which must match.

`not` is pushed down to the predicates, which is exact in three-valued logic (de Morgan's laws hold there, and see
`predicates`), `and` is multiplied out over `or`, and the result is reduced:

    dropped   conjunctions that cannot match, and those that another one covers
    merged    conjunctions that differ in one attribute:  symbol = 'A' or symbol = 'B'  is  symbol in ('A', 'B')

Multiplying out is exponential, so its result is bounded while it grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lavant.broker.filters.algebra.conjunctions import Conjunction, conjoin
from lavant.broker.filters.algebra.constraints import Absent, Booleans, Constraint, Numbers, Present, Strings
from lavant.broker.filters.algebra.inclusion import conjunction_covers
from lavant.broker.filters.algebra.intervals import union
from lavant.broker.filters.algebra.predicates import constraint_of
from lavant.broker.filters.algebra.string_search import SearchBudget
from lavant.broker.filters.language.ast import And, Literal, Node, Not, Or, Predicate
from lavant.broker.filters.limits import FilterLimits
from lavant.core.errors import LimitExceeded


def normalise(node: Node, limits: FilterLimits) -> tuple[Conjunction, ...]:
    """The conjunctions of the syntax tree, reduced and in canonical order."""
    budget = SearchBudget()
    return reduce(_expand(node, True, limits, budget), budget)


def conjunction_of(terms: Iterable[tuple[Predicate, bool]], limits: FilterLimits) -> tuple[Conjunction, ...]:
    """The same for predicates that must all hold, or whose negation must."""
    constraints = [(predicate.name, constraint_of(predicate, positive)) for predicate, positive in terms]
    conjunction = conjoin(constraints, limits, SearchBudget())
    return () if conjunction is None else (conjunction,)


def reduce(conjunctions: Iterable[Conjunction], budget: SearchBudget) -> tuple[Conjunction, ...]:
    """Drop covered conjunctions, merge those that differ in one attribute, and sort canonically."""
    reduced = list(conjunctions)
    while len(reduced) > 1:
        count = len(reduced)
        reduced = _absorb(_merge(reduced), budget)
        if len(reduced) == count:
            break
    return tuple(reduced)


def _expand(node: Node, positive: bool, limits: FilterLimits, budget: SearchBudget) -> Sequence[Conjunction]:
    match node:
        case Not(operand):
            return _expand(operand, not positive, limits, budget)
        case Literal(value):
            return [Conjunction()] if value is positive else []
        case And(operands) | Or(operands):
            if isinstance(node, And) is positive:
                return _product(operands, positive, limits, budget)
            return _sum(operands, positive, limits, budget)
        case _:
            conjunction = conjoin([(node.name, constraint_of(node, positive))], limits, budget)
            return [] if conjunction is None else [conjunction]


def _sum(operands: tuple[Node, ...], positive: bool, limits: FilterLimits, budget: SearchBudget) -> list[Conjunction]:
    together = _merge(
        [conjunction for operand in operands for conjunction in _expand(operand, positive, limits, budget)]
    )
    return _check_count(together, limits)


def _product(
    operands: tuple[Node, ...], positive: bool, limits: FilterLimits, budget: SearchBudget
) -> Sequence[Conjunction]:
    """Predicates are joined in one go; then the alternatives of each other operand are multiplied out."""
    constraints: list[tuple[str, Constraint | None]] = []
    factors: list[Node] = []
    for operand in operands:
        inner, same = (operand.operand, False) if isinstance(operand, Not) else (operand, True)
        if isinstance(inner, Not | And | Or | Literal):
            factors.append(operand)
        else:
            constraints.append((inner.name, constraint_of(inner, positive is same)))
    base = conjoin(constraints, limits, budget)
    product: Sequence[Conjunction] = [] if base is None else [base]
    for factor in factors:
        alternatives = _expand(factor, positive, limits, budget)
        following: dict[Conjunction, None] = {}
        for left in product:
            for right in alternatives:
                both = conjoin((*left.constraints, *right.constraints), limits, budget)
                if both is not None:
                    following[both] = None
            if len(following) > limits.conjunctions_max:
                break
        product = _check_count(list(following), limits)
    return product


def _check_count(conjunctions: list[Conjunction], limits: FilterLimits) -> list[Conjunction]:
    if len(conjunctions) > limits.conjunctions_max:
        raise LimitExceeded(
            f"the filter expands into more than {limits.conjunctions_max} alternatives "
            "('and' over 'or' multiplies them); split it into several subscriptions"
        )
    return conjunctions


def _merge(conjunctions: list[Conjunction]) -> list[Conjunction]:
    """Join conjunctions that differ in one attribute, attribute by attribute in order of their names."""
    if len(conjunctions) < 2:
        return conjunctions
    merged = list(dict.fromkeys(conjunctions))
    for name in sorted({name for conjunction in merged for name, _ in conjunction.constraints}):
        groups: dict[object, list[Conjunction]] = {}
        for conjunction in merged:
            rest = tuple(item for item in conjunction.constraints if item[0] != name)
            differing = next((item[1] for item in conjunction.constraints if item[0] == name), None)
            groups.setdefault((rest, _merge_class(differing)), []).append(conjunction)
        if len(groups) < len(merged):
            merged = [joined for group in groups.values() for joined in _join(name, group)]
    return merged


def _merge_class(constraint: Constraint | None) -> object:
    """Constraints of one class have a union that is a constraint again."""
    match constraint:
        case Strings():
            return Strings, constraint.patterns
        case Present() | Absent():
            return Present
        case _:
            return type(constraint)


def _join(name: str, group: list[Conjunction]) -> list[Conjunction]:
    if len(group) == 1:
        return group
    kept = group[0].constraints
    constraints = [
        constraint for conjunction in group for other, constraint in conjunction.constraints if other == name
    ]
    joined = _union(constraints)
    rest = tuple((other, joined if other == name else constraint) for other, constraint in kept)
    return [Conjunction(tuple((other, constraint) for other, constraint in rest if constraint is not None))]


def _union(constraints: Sequence[Constraint]) -> Constraint | None:
    """The union of constraints of one class; None if it accepts anything, including an absent attribute."""
    match constraints[0]:
        case Numbers():
            return Numbers(union(pair for each in constraints if isinstance(each, Numbers) for pair in each.intervals))
        case Strings(_, patterns):
            pairs = union(pair for each in constraints if isinstance(each, Strings) for pair in each.intervals)
            return Strings(pairs, patterns)
        case Booleans():
            allowed = {value for each in constraints if isinstance(each, Booleans) for value in each.allowed}
            return Booleans(tuple(sorted(allowed)))
        case _:
            return None if len(set(constraints)) > 1 else constraints[0]


def _absorb(conjunctions: list[Conjunction], budget: SearchBudget) -> list[Conjunction]:
    """Drop those that another one covers; of two that cover each other, keep the first in canonical order."""
    ordered = sorted(set(conjunctions), key=canonical_order)
    kept: list[Conjunction] = []
    for number, conjunction in enumerate(ordered):
        later = ordered[number + 1 :]
        if any(conjunction_covers(other, conjunction, budget) for other in kept):
            continue
        if any(
            conjunction_covers(other, conjunction, budget) and not conjunction_covers(conjunction, other, budget)
            for other in later
        ):
            continue
        kept.append(conjunction)
    return kept


def canonical_order(conjunction: Conjunction) -> list[tuple[str, str, str]]:
    """By attribute names, then by constraint; any total order on values would do."""
    return [(name, type(constraint).__name__, repr(constraint)) for name, constraint in conjunction.constraints]
