"""Explains which predicate of a filter failed on a publication."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lavant.broker.filters.algebra.conjunctions import Conjunction
from lavant.broker.filters.algebra.decomposition import predicates_of
from lavant.broker.filters.algebra.predicates import constraint_of
from lavant.broker.filters.language.ast import And, Literal, Node, Not, Or
from lavant.broker.filters.language.printer import node_text
from lavant.broker.filters.model import Filter
from lavant.core.publications.attributes import AttributeValue


class Explained(NamedTuple):
    """A predicate, the value it was tested on (None: absent), and whether it held."""

    predicate: str
    value: AttributeValue | None
    held: bool


def explain(filter: Filter, attributes: Mapping[str, AttributeValue]) -> list[Explained]:
    """Each predicate of the conjunction that came closest: fewest failures, the first of equals.

    >>> for line in explain(Filter.parse("class = 'STOCK' and volume > 300000"), {"class": "STOCK", "volume": 7}):
    ...     print(line)
    Explained(predicate="class = 'STOCK'", value='STOCK', held=True)
    Explained(predicate='volume > 300000', value=7, held=False)
    """
    if not filter.conjunctions:
        return [Explained("false", None, False)]
    explained = [_explain(conjunction, attributes) for conjunction in filter.conjunctions]
    return min(explained, key=lambda lines: sum(not line.held for line in lines))


def _explain(conjunction: Conjunction, attributes: Mapping[str, AttributeValue]) -> list[Explained]:
    if not conjunction.constraints:
        return [Explained("true", None, True)]
    return [
        Explained(node_text(node), attributes.get(name), _holds(node, attributes.get(name)))
        for name, constraint in conjunction.constraints
        for node in predicates_of(name, constraint, alternatives=True)
    ]


def _holds(node: Node, value: AttributeValue | None, positive: bool = True) -> bool:
    """Predicates of one attribute, and alternatives of them."""
    match node:
        case Or(operands):
            return any(_holds(operand, value) for operand in operands)
        case And(operands):
            return all(_holds(operand, value) for operand in operands)
        case Not(operand):
            return _holds(operand, value, not positive)
        case Literal():
            raise AssertionError("no predicate on an attribute")
        case _:
            constraint = constraint_of(node, positive)
            return constraint is not None and constraint.holds(value)
