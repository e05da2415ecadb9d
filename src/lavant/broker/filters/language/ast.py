"""The syntax tree of both syntaxes.

Leaves are predicates on one attribute; `!=`, `not in`, `not like` and `not between` are `Not` around a leaf where the
leaf has no operator of its own for it. Numbers are doubles already.
"""

from __future__ import annotations

import enum

import msgspec

Value = str | float | bool


class ComparisonOperator(enum.StrEnum):
    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


class LikeKind(enum.IntEnum):
    """The forms of pattern that `like` accepts; one without `%` is `=`."""

    PREFIX = 0
    SUFFIX = 1
    CONTAINS = 2


class Compare(msgspec.Struct, frozen=True):
    name: str
    operator: ComparisonOperator
    value: Value


class Between(msgspec.Struct, frozen=True):
    """low <= name <= high; both ends have one type."""

    name: str
    low: float | str
    high: float | str


class In(msgspec.Struct, frozen=True):
    """`values` have one type and are not empty."""

    name: str
    values: tuple[Value, ...]


class Like(msgspec.Struct, frozen=True):
    name: str
    kind: LikeKind
    literal: str


class Exists(msgspec.Struct, frozen=True):
    name: str


class Literal(msgspec.Struct, frozen=True):
    value: bool


class Not(msgspec.Struct, frozen=True):
    operand: Node


class And(msgspec.Struct, frozen=True):
    operands: tuple[Node, ...]


class Or(msgspec.Struct, frozen=True):
    operands: tuple[Node, ...]


Predicate = Compare | Between | In | Like | Exists
Node = Predicate | Literal | Not | And | Or
