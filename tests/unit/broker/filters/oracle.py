"""The meaning of filters a second time, straight from the definition: three-valued logic on the syntax tree.

Shares nothing with the normal form, so that each can find the other's mistakes. Also random filters and publications,
from few values that lie close together: boundaries are where mistakes are.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

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
    Predicate,
)
from lavant.core.publications.attributes import AttributeValue

COMPARE: dict[ComparisonOperator, Any] = {
    ComparisonOperator.EQ: operator.eq,
    ComparisonOperator.NE: operator.ne,
    ComparisonOperator.LT: operator.lt,
    ComparisonOperator.LE: operator.le,
    ComparisonOperator.GT: operator.gt,
    ComparisonOperator.GE: operator.ge,
}
LIKE = {LikeKind.PREFIX: str.startswith, LikeKind.SUFFIX: str.endswith, LikeKind.CONTAINS: str.__contains__}
LARGEST = sys.float_info.max
NUMBERS = (-LARGEST, -2.5, -5e-324, 0.0, 5e-324, 1.0, math.nextafter(1.0, 2.0), 2.0, 3.0, 2.0**53, 1e300, LARGEST)
STRINGS = ("", "a", "b", "ab", "ba", "aa", "bb", "a\0")
ODD_STRINGS = ("%", "a_", "\\", "o'x", "''", "\ud7ff", "\ue000", "\U0010ffff", "a\U0010ffff", " or ", "\n", "Ä")
NAMES = ("x", "y", "class.name", "in", "odd name", 'quo"te')


def truth(node: Node, attributes: Mapping[str, AttributeValue]) -> bool | None:
    """True, False, or None for unknown (Kleene's strong logic)."""
    match node:
        case Literal(value):
            return value
        case Not(operand):
            inner = truth(operand, attributes)
            return None if inner is None else not inner
        case And(operands):
            known = [truth(each, attributes) for each in operands]
            return False if False in known else (None if None in known else True)
        case Or(operands):
            known = [truth(each, attributes) for each in operands]
            return True if True in known else (None if None in known else False)
        case _:
            return predicate_truth(node, attributes.get(node.name))


def predicate_truth(predicate: Predicate, value: AttributeValue | None) -> bool | None:
    if isinstance(predicate, Exists):
        return value is not None
    match predicate:
        case Compare(_, comparison, other):
            return bool(COMPARE[comparison](value, other)) if kind(value) == kind(other) else None
        case In(_, values):
            return value in values if kind(value) == kind(values[0]) else None
        case Between(_, low, high):
            return low <= value <= high if kind(value) == kind(low) else None  # type: ignore[operator]
        case Like(_, like, literal):
            return bool(LIKE[like](value, literal)) if isinstance(value, str) else None


def kind(value: AttributeValue | None) -> str:
    if value is None:
        return "absent"
    return {bool: "boolean", int: "number", float: "number", str: "string"}[type(value)]


def write(node: Node) -> str:
    """The tree as an expression, with parentheses everywhere."""
    match node:
        case Literal(value):
            return "TRUE" if value else "False"
        case Not(operand):
            return f"NOT ({write(operand)})"
        case And(operands):
            return " AND ".join(f"({write(each)})" for each in operands)
        case Or(operands):
            return " or ".join(f"({write(each)})" for each in operands)
        case Exists(name):
            return f"Exists({write_name(name)})"
        case Compare(name, comparison, value):
            return f"{write_name(name)}{comparison.value}{write_value(value)}"
        case Between(name, low, high):
            return f"{write_name(name)} between {write_value(low)} and {write_value(high)}"
        case In(name, values):
            return f"{write_name(name)} in ({','.join(map(write_value, values))})"
        case Like(name, like, literal):
            escaped = literal.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            before = "" if like is LikeKind.PREFIX else "%"
            after = "" if like is LikeKind.SUFFIX else "%"
            return f"{write_name(name)} like {write_value(before + escaped + after)}"


def write_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def write_value(value: AttributeValue) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def predicates(
    names: Sequence[str] = NAMES, strings: Sequence[str] = STRINGS + ODD_STRINGS, literals: Sequence[str] | None = None
) -> st.SearchStrategy[Predicate]:
    name = st.sampled_from(names)
    number, string = st.sampled_from(NUMBERS), st.sampled_from(strings)
    literal = string if literals is None else st.sampled_from(literals)
    lists = st.one_of(*(st.lists(each, min_size=1, max_size=4).map(tuple) for each in (number, string, st.booleans())))
    return st.one_of(
        st.builds(Compare, name, st.sampled_from(ComparisonOperator), st.one_of(number, string)),
        st.builds(Compare, name, st.sampled_from([ComparisonOperator.EQ, ComparisonOperator.NE]), st.booleans()),
        st.builds(Between, name, number, number),
        st.builds(Between, name, string, string),
        st.builds(In, name, lists),
        st.builds(Like, name, st.sampled_from(LikeKind), literal),
        st.builds(Like, name, st.sampled_from(LikeKind), literal),
        st.builds(Exists, name),
    )


def filters(leaves: st.SearchStrategy[Predicate], leaves_max: int = 6) -> st.SearchStrategy[Node]:
    return st.recursive(
        st.one_of(leaves, leaves, leaves, st.builds(Literal, st.booleans())),
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
            st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        ),
        max_leaves=leaves_max,
    )


def near(values: Sequence[float]) -> list[float]:
    """The numbers, their neighbours, and one between each two."""
    ordered = sorted(values)
    around = [math.nextafter(value, toward) for value in ordered for toward in (-math.inf, math.inf)]
    between = [low / 2 + high / 2 for low, high in pairwise(ordered)]
    return sorted({value + 0.0 for value in (*ordered, *around, *between) if math.isfinite(value)})


def attribute_values() -> st.SearchStrategy[AttributeValue]:
    strings = [*STRINGS, *ODD_STRINGS, *(s + t for s in STRINGS for t in ("\0", "a", "c", "\U0010ffff"))]
    return st.one_of(
        st.sampled_from([*near(NUMBERS), 0, 1, 2, 2**53, -0.0]),
        st.sampled_from(strings),
        st.text(st.sampled_from("abc\0"), max_size=4),
        st.booleans(),
    )


def publications(names: Sequence[str] = NAMES) -> st.SearchStrategy[dict[str, AttributeValue]]:
    return st.dictionaries(st.sampled_from(names), attribute_values(), max_size=len(names))
