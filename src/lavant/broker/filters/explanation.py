"""Explains which predicate of a filter failed on a publication."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lavant.broker.filters.algebra.conjunctions import Conjunction
from lavant.broker.filters.algebra.decomposition import predicates_of
from lavant.broker.filters.algebra.predicates import constraint_of
from lavant.broker.filters.language.ast import And, Between, Compare, In, Like, Literal, Node, Not, Or
from lavant.broker.filters.language.expressions import parse_expression
from lavant.broker.filters.language.printer import node_text
from lavant.broker.filters.limits import NO_LIMITS
from lavant.broker.filters.model import Filter, filter_of
from lavant.core.errors import InvalidValue
from lavant.core.publications.attributes import AttributeValue


class Explained(NamedTuple):
    """A predicate, the value it was tested on (None: absent), and whether it held."""

    predicate: str
    value: AttributeValue | None
    held: bool

    @property
    def wanted(self) -> str | None:
        """The type that the predicate wants, if the value has another one and so cannot satisfy it.

        >>> Explained("volume > 5", "7", held=False).wanted
        'a number'
        """
        if self.held or self.value is None:
            return None
        kinds = _kinds(parse_expression(self.predicate, NO_LIMITS))
        return None if not kinds or kind_of(self.value) in kinds else " or ".join(sorted(kinds))


def explain(filter: Filter | str, attributes: Mapping[str, AttributeValue]) -> list[Explained]:
    """Each predicate of the conjunction that came closest: fewest failures, the first of equals. The filter may be
    its text.

    >>> for line in explain("class = 'STOCK' and volume > 300000", {"class": "STOCK", "volume": 7}):
    ...     print(line)
    Explained(predicate="class = 'STOCK'", value='STOCK', held=True)
    Explained(predicate='volume > 300000', value=7, held=False)
    """
    if not isinstance(attributes, Mapping):
        raise InvalidValue(f'attributes are a dict, such as {{"price": 121.5}}, got {attributes!r:.40}')
    conjunctions = filter_of(filter).conjunctions
    if not conjunctions:
        return [Explained("false", None, False)]
    explained = [_explain(conjunction, attributes) for conjunction in conjunctions]
    return min(explained, key=lambda lines: sum(not line.held for line in lines))


def _explain(conjunction: Conjunction, attributes: Mapping[str, AttributeValue]) -> list[Explained]:
    if not conjunction.constraints:
        return [Explained("true", None, True)]
    return [
        Explained(node_text(node), attributes.get(name), _holds(node, attributes.get(name)))
        for name, constraint in conjunction.constraints
        for node in predicates_of(name, constraint, alternatives=True)
    ]


def kind_of(value: AttributeValue) -> str:
    """
    >>> kind_of("5"), kind_of(5), kind_of(True)
    ('text', 'a number', 'a boolean')
    """
    match value:
        case bool():
            return "a boolean"
        case str():
            return "text"
        case _:
            return "a number"


def _kinds(node: Node) -> set[str]:
    """The types of values that a predicate compares with."""
    match node:
        case Or(operands) | And(operands):
            return {kind for operand in operands for kind in _kinds(operand)}
        case Not(operand):
            return _kinds(operand)
        case Compare(value=value):
            return {kind_of(value)}
        case Between(low=low):
            return {kind_of(low)}
        case In(values=values):
            return set(map(kind_of, values))
        case Like():
            return {"text"}
        case _:
            return set()


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
