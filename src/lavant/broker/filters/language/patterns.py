r"""`like` patterns: the five supported forms, read and written.

    'x'     equals x            'x%'    starts with x       '%'     any string
    '%x'    ends with x         '%x%'   contains x

`\%`, `\_` and `\\` stand for the characters themselves. Other shapes (a `%` inside, `_` for one character) are refused:
covering is decided exactly for these, and an index exists for them.
"""

from __future__ import annotations

import re

from lavant.broker.filters.language.ast import Compare, ComparisonOperator, Like, LikeKind

_PATTERN = re.compile(r"(%*)((?:[^%_\\]|\\[%_\\])*)(%*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_SPECIAL = re.compile(r"[%_\\]")
_SUPPORTED = r"patterns are 'x', 'x%', '%x', '%x%' and '%', where \% \_ \\ stand for the characters themselves"


class PatternProblem(ValueError):
    """Why a pattern is refused."""


def read_like(name: str, pattern: str) -> Compare | Like:
    match = _PATTERN.match(pattern)
    assert match is not None, "every part may be empty"
    if match.end() < len(pattern):
        raise PatternProblem(_what_is_wrong(pattern, match.end()))
    before, escaped, after = match.groups()
    literal = _ESCAPED.sub(r"\1", escaped)
    if not before and not after:
        return Compare(name, ComparisonOperator.EQ, literal)
    if not literal:  # '%', '%%'
        return Like(name, LikeKind.PREFIX, "")
    if not before:
        return Like(name, LikeKind.PREFIX, literal)
    return Like(name, LikeKind.CONTAINS if after else LikeKind.SUFFIX, literal)


def write_like(kind: LikeKind, literal: str) -> str:
    """The pattern that `read_like` reads back to the same."""
    escaped = _SPECIAL.sub(r"\\\g<0>", literal)
    match kind:
        case LikeKind.PREFIX:
            return escaped + "%"
        case LikeKind.SUFFIX:
            return "%" + escaped
        case LikeKind.CONTAINS:
            return "%" + escaped + "%"


def _what_is_wrong(pattern: str, position: int) -> str:
    match pattern[position]:
        case "_":
            return rf"'_' (any one character) is not supported, write \_ for the character itself; {_SUPPORTED}"
        case "\\":
            return rf"'\' stands before %, _ or \ only; {_SUPPORTED}"
        case _:
            return f"'%' in the middle of a pattern is not supported; {_SUPPORTED}"
