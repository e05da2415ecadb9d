"""Reads filters that differ from an earlier one only in their constants, without parsing them again.

A text is cut at its constants, the numbers and strings. What lies between is its *shape*:

    category = 'books' and price < 9.5      shape: "category = ", " and price < ", ""; a string and a number

The first text of a shape is parsed. If it is a conjunction of predicates, the shape becomes a template, and other texts
of the same shape are read by putting their constants in. Every text that a template does not fit exactly, for a long
string or a bad pattern, say, is left to the parser, which also words all errors.

The last `SHAPES_KNOWN` shapes are kept, of texts of up to `TEXT_LENGTH_MAX` characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from lavant.broker.filters.language.ast import And, Between, Compare, In, Like, Literal, Not, Or, Predicate, Value
from lavant.broker.filters.language.expressions import parse_expression
from lavant.broker.filters.language.patterns import PatternProblem, read_like
from lavant.broker.filters.language.tokens import EXPRESSION, is_number, is_string
from lavant.broker.filters.limits import FilterLimits
from lavant.core.errors import LavantError

SHAPES_KNOWN = 1024
TEXT_LENGTH_MAX = 512
NUMBER_LENGTH_MAX = 15
"""An integer of so many characters is exact as a double."""
BYTES_OF_CHARACTER_MAX = 4
STRING, NUMBER = "'", "1"
"""In place of constants."""

_CONSTANT = re.compile(
    r"""((?<![A-Za-z0-9_.])[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|'[^']*+(?:''[^']*+)*+')"""
)

Term = tuple[Predicate, bool]
"""A predicate, and whether it is to hold or its negation."""
Shape = tuple[str, ...]


class TemplateTerm(NamedTuple):
    """A predicate of a template, or its negation."""

    example: Predicate
    is_positive: bool
    slot: int
    """The number of its first constant."""
    make: Callable[[Sequence[Value]], Predicate]
    """The predicate with the constants of a text."""


def read_template(text: str, limits: FilterLimits) -> list[Term] | None:
    """The predicates of a conjunction whose shape is known, or parses; None if the parser must read the text.

    >>> from lavant.broker.filters.limits import FILTER_LIMITS
    >>> read_template("price < 9.5", FILTER_LIMITS)
    [(Compare(name='price', operator=<ComparisonOperator.LT: '<'>, value=9.5), True)]
    >>> read_template("price < 9.5 or price > 20", FILTER_LIMITS)
    """
    parts = cut(text, limits)
    if parts is None:
        return None
    shape, values = parts
    terms = template_of(shape, limits)
    if terms is None:
        return None
    try:
        return [(term.make(values), term.is_positive) for term in terms]
    except PatternProblem:
        return None


def cut(text: str, limits: FilterLimits) -> tuple[Shape, list[Value]] | None:
    """The shape and the constants of a text; None if it is too long, or has unusual constants."""
    if len(text) > TEXT_LENGTH_MAX or len(text) > limits.text_length_max or not _is_encodable(text):
        return None
    parts = _CONSTANT.split(text)
    values: list[Value] = []
    for place in range(1, len(parts), 2):
        constant = parts[place]
        if constant[0] == "'":
            if BYTES_OF_CHARACTER_MAX * len(constant) > limits.string_bytes_max:
                return None
            values.append(constant[1:-1].replace("''", "'"))
            parts[place] = STRING
        elif len(constant) > NUMBER_LENGTH_MAX or "e" in constant or "E" in constant:
            return None
        else:
            values.append(float(constant) + 0.0)  # + 0.0: never -0.0
            parts[place] = NUMBER
    return tuple(parts), values


def _is_encodable(text: str) -> bool:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


@lru_cache(SHAPES_KNOWN)
def template_of(shape: Shape, limits: FilterLimits) -> list[TemplateTerm] | None:
    """The predicates of the texts of this shape; None if they are no conjunctions."""
    text, constants = _example(shape)
    try:
        node = parse_expression(text, limits)
    except LavantError:
        return None
    operands = node.operands if isinstance(node, And) else (node,)
    slot = 0
    terms: list[TemplateTerm] = []
    for operand in operands:
        inner, is_positive = (operand.operand, False) if isinstance(operand, Not) else (operand, True)
        if isinstance(inner, And | Or | Not | Literal):
            return None
        size, make = _maker(inner, slot)
        terms.append(TemplateTerm(inner, is_positive, slot, make))
        slot += size
    tokens = [token for token in EXPRESSION.findall(text.rstrip()) if is_number(token) or is_string(token)]
    return terms if tokens == constants else None


def _example(shape: Shape) -> tuple[str, list[str]]:
    """A text of this shape, and its constants. Strings are patterns, so that `like` differs from `=`."""
    parts = list(shape)
    for place in range(1, len(parts), 2):
        parts[place] = "'%x%'" if parts[place] == STRING else "1"
    return "".join(parts), parts[1::2]


def _maker(node: Predicate, slot: int) -> tuple[int, Callable[[Sequence[Value]], Predicate]]:
    """How many constants the predicate has, and what makes it from those at this slot."""
    match node:
        case Compare(name, operator, value) if not isinstance(value, bool):
            return 1, lambda values: Compare(name, operator, values[slot])
        case Between(name):
            return 2, lambda values: Between(name, values[slot], values[slot + 1])
        case In(name, members) if not isinstance(members[0], bool):
            end = slot + len(members)
            return len(members), lambda values: In(name, tuple(values[slot:end]))
        case Like(name):
            return 1, lambda values: read_like(name, values[slot])
        case _:
            return 0, lambda values: node
