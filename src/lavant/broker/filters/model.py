"""`Filter`: the condition of a subscription or advertisement, in one normal form with two syntaxes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from lavant.broker.filters.algebra.conjunctions import Conjunction
from lavant.broker.filters.algebra.normal_form import conjunction_of, normalise, reduce
from lavant.broker.filters.algebra.string_search import SearchBudget
from lavant.broker.filters.language.ast import Node
from lavant.broker.filters.language.expressions import parse_expression
from lavant.broker.filters.language.printer import expression_text, triples_text
from lavant.broker.filters.language.templates import read_template
from lavant.broker.filters.language.triples import parse_triples
from lavant.broker.filters.limits import FILTER_LIMITS, FilterLimits
from lavant.core.errors import FilterSyntaxError, InvalidValue
from lavant.core.publications.attributes import AttributeValue


def parse_syntax(text: str, limits: FilterLimits) -> Node:
    """The syntax tree of an expression or of triples."""
    start = text.lstrip()
    if start.startswith("["):
        return parse_triples(text, limits)
    if not start:
        raise FilterSyntaxError(text, len(text), "the filter is empty; to accept everything write: true")
    return parse_expression(text, limits)


class Filter(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A disjunction of conjunctions. Without any it matches nothing; an empty conjunction matches everything.

    Two filters are equal if their normal forms are; see `equivalent` for equality of meaning.

    >>> wanted = Filter.parse("volume > 300000 and symbol = 'YHOO' and class = 'STOCK'")
    >>> wanted.matches({"class": "STOCK", "symbol": "YHOO", "volume": 300001})
    True
    >>> print(wanted)
    class = 'STOCK' and symbol = 'YHOO' and volume > 300000
    >>> wanted.triples()
    "[class,eq,'STOCK'],[symbol,eq,'YHOO'],[volume,>,300000]"
    """

    conjunctions: tuple[Conjunction, ...]

    @classmethod
    def parse(cls, text: str, limits: FilterLimits = FILTER_LIMITS) -> Filter:
        """Parse an expression or triples."""
        if not isinstance(text, str):
            raise InvalidValue(f'a filter is a text, such as "price > 100", or a lavant.Filter, got {text!r:.40}')
        terms = read_template(text, limits)
        return cls(normalise(parse_syntax(text, limits), limits) if terms is None else conjunction_of(terms, limits))

    @classmethod
    def of(cls, conjunctions: Iterable[Conjunction]) -> Filter:
        """The filter that matches where any of these does."""
        return cls(reduce(conjunctions, SearchBudget()))

    def matches(self, attributes: Mapping[str, AttributeValue]) -> bool:
        for conjunction in self.conjunctions:  # noqa: SIM110 - a generator costs as much again
            if conjunction.matches(attributes):
                return True
        return False

    def __str__(self) -> str:
        return expression_text(self.conjunctions)

    def triples(self) -> str:
        return triples_text(self.conjunctions)


def filter_of(given: Filter | str) -> Filter:
    """A filter as it is, or that of a text.

    >>> filter_of(5)
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: a filter is a text, such as "price > 100", or a lavant.Filter, got 5
    """
    return given if isinstance(given, Filter) else Filter.parse(given)


def parse(text: str, limits: FilterLimits = FILTER_LIMITS) -> Filter:
    """Parse an expression or triples."""
    return Filter.parse(text, limits)
