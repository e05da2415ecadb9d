"""Which of the two syntaxes is it? Triples begin with a bracket, expressions never do."""

from __future__ import annotations

from lavant.broker.filters.ast import Node
from lavant.broker.filters.expressions import parse_expression
from lavant.broker.filters.limits import FilterLimits
from lavant.broker.filters.triples import parse_triples
from lavant.core.errors import FilterSyntaxError


def parse_syntax(text: str, limits: FilterLimits) -> Node:
    """The syntax tree of an expression or of triples."""
    start = text.lstrip()
    if start.startswith("["):
        return parse_triples(text, limits)
    if not start:
        raise FilterSyntaxError(text, len(text), "the filter is empty; to accept everything write: true")
    return parse_expression(text, limits)
