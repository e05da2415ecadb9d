"""Prints the normal form in both syntaxes. Parsing the text again gives an equal filter."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lavant.broker.filters.algebra.conjunctions import Conjunction
from lavant.broker.filters.algebra.decomposition import predicates_of
from lavant.broker.filters.language.ast import (
    And,
    Between,
    Compare,
    ComparisonOperator,
    Exists,
    In,
    Like,
    LikeKind,
    Literal,
    Node,
    Not,
    Or,
)
from lavant.broker.filters.language.ast import Value as AstValue
from lavant.broker.filters.language.numerals import numeral
from lavant.broker.filters.language.patterns import write_like
from lavant.broker.filters.language.tokens import KEYWORDS

_BARE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_STRING_TESTS = {LikeKind.PREFIX: "str-prefix", LikeKind.SUFFIX: "str-suffix", LikeKind.CONTAINS: "str-contains"}


def expression_text(conjunctions: Sequence[Conjunction]) -> str:
    return " or ".join(_conjunction(conjunction) for conjunction in conjunctions) or "false"


def triples_text(conjunctions: Sequence[Conjunction]) -> str:
    """As triples; a filter that accepts everything or nothing has none and is `true` or `false` here too."""
    texts = [
        ",".join(
            _triple(predicate)
            for name, constraint in conjunction.constraints
            for predicate in predicates_of(name, constraint, alternatives=False)
        )
        for conjunction in conjunctions
    ]
    return " or ".join(text or "true" for text in texts) or "false"


def _conjunction(conjunction: Conjunction) -> str:
    nodes = [
        node
        for name, constraint in conjunction.constraints
        for node in predicates_of(name, constraint, alternatives=True)
    ]
    if len(nodes) == 1:  # `or` needs no parentheses if nothing is joined to it
        return node_text(nodes[0])
    return " and ".join(f"({node_text(node)})" if isinstance(node, Or) else node_text(node) for node in nodes) or "true"


def node_text(node: Node) -> str:
    """A predicate, its negation, or alternatives of them, as an expression."""
    match node:
        case Or(operands):
            return " or ".join(node_text(operand) for operand in operands)
        case And(operands):
            return " and ".join(node_text(operand) for operand in operands)
        case Not(In() | Like() | Between() as operand):
            return _predicate(operand, "not ")
        case Not(operand):
            return f"not {node_text(operand)}"
        case Literal(value):
            return "true" if value else "false"
        case _:
            return _predicate(node, "")


def _predicate(predicate: Compare | Between | In | Like | Exists, negation: str) -> str:
    name = name_text(predicate.name)
    match predicate:
        case Compare(_, operator, value):
            return f"{name} {operator.value} {value_text(value)}"
        case Between(_, low, high):
            return f"{name} {negation}between {value_text(low)} and {value_text(high)}"
        case In(_, values):
            return f"{name} {negation}in ({', '.join(map(value_text, values))})"
        case Like(_, kind, literal):
            return f"{name} {negation}like {value_text(write_like(kind, literal))}"
        case Exists():
            return f"exists({name})"


def _triple(node: Node) -> str:
    match node:
        case Exists(name):
            return _bracketed(name, "isPresent", "0")
        case Not(Exists(name)):
            return _bracketed(name, "isAbsent", "0")
        case Compare(name, operator, value):
            return _bracketed(name, _comparison(operator, value), value_text(value))
        case Between(name, low, high):
            bounds = Compare(name, ComparisonOperator.GE, low), Compare(name, ComparisonOperator.LE, high)
            return ",".join(_triple(bound) for bound in bounds)
        case Not(Between(name, low, high)):
            return _bracketed(name, "not-between", f"({value_text(low)},{value_text(high)})")
        case In() | Not(In()):
            negation, inner = ("not-", node.operand) if isinstance(node, Not) else ("", node)
            assert isinstance(inner, In)
            return _bracketed(inner.name, f"{negation}in", f"({','.join(map(value_text, inner.values))})")
        case Like(name, kind, literal):
            return _bracketed(name, _STRING_TESTS[kind], value_text(literal))
        case Not(Like(name, kind, literal)):
            return _bracketed(name, f"not-{_STRING_TESTS[kind]}", value_text(literal))
        case _:
            raise AssertionError(node)


def _bracketed(name: str, operator: str, operand: str) -> str:
    return f"[{name_text(name)},{operator},{operand}]"


def _comparison(operator: ComparisonOperator, value: AstValue) -> str:
    """PADRES writes eq for strings, = for numbers."""
    if not isinstance(value, float):
        return {ComparisonOperator.EQ: "eq", ComparisonOperator.NE: "neq"}.get(operator, operator.value)
    return operator.value


def name_text(name: str) -> str:
    """The attribute name, in double quotes where it needs them."""
    if _BARE_NAME.fullmatch(name) and name.lower() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def value_text(value: AstValue) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case _:
            return numeral(value)
