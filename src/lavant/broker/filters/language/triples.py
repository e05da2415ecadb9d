"""The triple syntax of the PADRES system: `[class,eq,'STOCK'],[volume,>,300000],[date,isPresent,0]`.

    filter        conjunction { "or" conjunction }
    conjunction   triple { "," triple }
    triple        "[" name "," operator [ "," operand ] "]"

PADRES has eq, =, <, <=, >, >=, neq, !=, str-prefix, str-suffix, str-contains and isPresent, whose operand says
nothing. Added, so that every filter can be written: isAbsent, in and not-in with a parenthesised list, not-between with
the two ends in parentheses, and not-str-prefix, not-str-suffix, not-str-contains.

After A. K. Y. Cheung, Dynamic Load Balancing in Distributed Content-based Publish/Subscribe, section 2.1.2.
"""

from __future__ import annotations

from lavant.broker.filters.language.ast import (
    And,
    Between,
    Compare,
    ComparisonOperator,
    Exists,
    In,
    Like,
    LikeKind,
    Node,
    Not,
    Or,
)
from lavant.broker.filters.language.tokens import END, TRIPLES, TokenReader, is_quoted_name, is_string, is_word, shorten
from lavant.broker.filters.limits import FilterLimits

_COMPARISONS = {operator.value: operator for operator in ComparisonOperator} | {
    "eq": ComparisonOperator.EQ,
    "neq": ComparisonOperator.NE,
    "<>": ComparisonOperator.NE,
}
_PATTERNS = {"str-prefix": LikeKind.PREFIX, "str-suffix": LikeKind.SUFFIX, "str-contains": LikeKind.CONTAINS}
_KNOWN = (
    "eq, neq, =, !=, <, <=, >, >=, str-prefix, str-suffix, str-contains, isPresent, isAbsent, in, not-in, not-between, "
    "not-str-prefix, not-str-suffix, not-str-contains"
)


def parse_triples(text: str, limits: FilterLimits) -> Node:
    reader = TokenReader(text, TRIPLES, limits)
    left = limits.predicates_max
    conjunctions: list[Node] = []
    while True:
        triples = _conjunction(reader, left)
        left -= len(triples)
        conjunctions.append(And(tuple(triples)))
        if reader.token == END:
            return conjunctions[0] if len(conjunctions) == 1 else Or(tuple(conjunctions))
        if reader.token.lower() != "or":
            raise reader.error(f"expected ',' or 'or' after ']', found {reader.found()}")
        reader.advance()


def _conjunction(reader: TokenReader, predicates_max: int) -> list[Node]:
    triples: list[Node] = []
    while True:
        if len(triples) == predicates_max:
            raise reader.error(f"a filter has at most {reader.limits.predicates_max} triples, this one has more")
        triples.append(_triple(reader))
        if reader.token != ",":
            return triples
        reader.advance()


def _triple(reader: TokenReader) -> Node:
    reader.expect("[", "to begin a triple")
    if not (is_word(reader.token) or is_quoted_name(reader.token)):
        raise reader.error(f"expected an attribute name after '[', found {reader.found()}")
    name = reader.name()
    reader.expect(",", "after the attribute name")
    node = _test(reader, name)
    reader.expect("]", "to end the triple")
    return node


def _test(reader: TokenReader, name: str) -> Node:
    operator = reader.token.lower()
    if operator in ("ispresent", "isabsent"):
        reader.advance()
        if reader.token == ",":
            reader.advance()
            reader.value("','")
        return Exists(name) if operator == "ispresent" else Not(Exists(name))
    positive = operator.removeprefix("not-")
    if operator not in _COMPARISONS and positive not in _PATTERNS and operator not in ("in", "not-in", "not-between"):
        hint = "; use =" if operator == "==" else f"; operators are {_KNOWN}"
        raise reader.error(f"expected an operator, found {reader.found()}{hint}")
    symbol = reader.advance()
    reader.expect(",", f"after '{shorten(symbol)}'")
    if operator in _COMPARISONS:
        return _comparison(reader, name, symbol)
    node: Node
    if positive in _PATTERNS:
        if not is_string(reader.token):
            raise reader.error(f"expected a string in single quotes after '{symbol}', found {reader.found()}")
        node = Like(name, _PATTERNS[positive], reader.string())
    elif positive == "in":
        node = In(name, reader.values(f"'{symbol}'"))
    else:
        node = _between(reader, name, symbol)
    return node if positive == operator else Not(node)


def _comparison(reader: TokenReader, name: str, symbol: str) -> Node:
    operator = _COMPARISONS[symbol.lower()]
    value = reader.value(f"'{symbol}'")
    if isinstance(value, bool) and operator not in (ComparisonOperator.EQ, ComparisonOperator.NE):
        raise reader.error(f"booleans have no order: use eq or neq instead of '{symbol}'", back=3)
    return Compare(name, operator, value)


def _between(reader: TokenReader, name: str, symbol: str) -> Node:
    ends = reader.values(f"'{symbol}'")
    match ends:
        case (float() as low, float() as high):
            return Between(name, low, high)
        case (str() as start, str() as stop):
            return Between(name, start, stop)
        case _:
            raise reader.error(f"'{symbol}' takes two numbers or two strings in parentheses", back=1)
