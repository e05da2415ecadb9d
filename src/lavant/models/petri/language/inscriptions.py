"""Inscriptions of arcs: patterns that take tokens out of places, and multisets that put tokens into them.

An arc that takes holds patterns: ``msg``, ``(id, visible)``, ``[head, *tail]``, ``2`token``, ``x ++ y``. An arc that
puts holds a multiset: ``msg``, ``2`token``, ``x ++ y``, ``x if ok else empty``, ``each(list)``, perhaps with a delay:
``msg @+ delay``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from lavant.core.errors import InvalidValue
from lavant.models.petri.language.colours import ColourSet, ListOf, Product, RecordOf, alike
from lavant.models.petri.language.expressions import (
    BOOL,
    INT,
    REAL,
    Expression,
    Scope,
    constant_of,
    described,
    parse,
    require_once,
    text_of,
    typed,
)

COUNT_MAX = 1_000
"""Tokens that one term of a taking arc may ask for."""

PUT_MAX = 1_000_000
"""Equal tokens that one term of a putting arc may put."""


class Step(msgspec.Struct, frozen=True):
    """One step of matching a token: at `path` within it, bind a variable, compare a value, or check a list's length."""

    path: str
    bind: str | None = None
    equal: Expression | None = None
    length: tuple[int, bool] | None = None
    """Least length, and whether the list may be longer."""


class TokenPattern(msgspec.Struct, frozen=True):
    """What one term of a taking arc matches, and how many equal tokens of it the arc takes."""

    count: int
    steps: tuple[Step, ...]

    def binds(self) -> list[str]:
        return [step.bind for step in self.steps if step.bind is not None]


class Term(msgspec.Struct, frozen=True):
    """`count` equal tokens, or one for each element of a list."""

    token: Expression
    count: Expression | None = None
    delay: Expression | None = None
    is_each: bool = False


class Choice(msgspec.Struct, frozen=True):
    """One multiset or another."""

    test: Expression
    then: tuple[Term | Choice, ...]
    otherwise: tuple[Term | Choice, ...]


Multiset = tuple[Term | Choice, ...]


def token_count(count: int) -> int:
    """How many tokens a term puts; as in CPN ML, fewer than none is an error.

    >>> token_count(0)
    0
    """
    if not 0 <= count <= PUT_MAX:
        raise InvalidValue(f"{count} tokens cannot be put; a number of tokens is between 0 and {PUT_MAX:,}")
    return count


def expressions_in(multiset: Multiset) -> Iterator[Expression]:
    yield from marking_expressions(multiset)
    yield from delays_in(multiset)


def marking_expressions(multiset: Multiset) -> Iterator[Expression]:
    """Those that decide which tokens there are, not when."""
    for each in multiset:
        if isinstance(each, Choice):
            yield each.test
            yield from marking_expressions(each.then)
            yield from marking_expressions(each.otherwise)
        else:
            yield from (part for part in (each.token, each.count) if part is not None)


def delays_in(multiset: Multiset) -> Iterator[Expression]:
    for each in multiset:
        if isinstance(each, Choice):
            yield from delays_in(each.then)
            yield from delays_in(each.otherwise)
        elif each.delay is not None:
            yield each.delay


def parse_taking(text: str, scope: Scope, colour: ColourSet) -> tuple[TokenPattern, ...]:
    return tuple(_pattern(node, scope, colour) for node in terms_of(parse(text)))


def parse_putting(text: str, scope: Scope, colour: ColourSet) -> Multiset:
    return _multiset(parse(text), scope, colour, None)


def typed_delay(node: ast.expr, scope: Scope) -> Expression:
    delay = typed(node, scope, REAL)
    value = constant_of(node, scope.values)
    if value is not None and value < 0:
        raise InvalidValue(f"the delay `{text_of(node)}` is below 0")
    return delay


def terms_of(node: ast.expr) -> Iterator[ast.expr]:
    """The terms of `a ++ b`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from terms_of(node.left)
        yield from terms_of(node.right)
    else:
        yield node


def _pattern(node: ast.expr, scope: Scope, colour: ColourSet) -> TokenPattern:
    _require_count(node)
    count = 1
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        number: object = scope.values.get(node.left.id) if isinstance(node.left, ast.Name) else None
        if isinstance(node.left, ast.Constant):
            number = node.left.value
        if not isinstance(number, int) or not 1 <= number <= COUNT_MAX:
            raise InvalidValue(f"`{text_of(node)}`: an arc takes a fixed number of tokens, from 1 to {COUNT_MAX}")
        count = number
        node = node.right
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
        raise InvalidValue(f"`{text_of(node)}`: only an arc that puts tokens has a delay")
    return TokenPattern(count, tuple(_steps(node, scope, colour, "")))


def _require_count(node: ast.expr) -> None:
    """Refuse ``-1`x``, which Python reads as the negative of a power."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.BinOp) and isinstance(node.operand.op, ast.Pow):
        raise InvalidValue(f"`{text_of(node)}`: a number of tokens is 0 or more")


def _steps(node: ast.expr, scope: Scope, colour: ColourSet, path: str) -> Iterator[Step]:
    if isinstance(node, ast.Name) and node.id == "_":
        return
    if isinstance(node, ast.Name) and node.id in scope.variables:
        if not alike(colour, scope.variables[node.id]):
            given = described(scope.variables[node.id])
            raise InvalidValue(f"variable `{node.id}` is of colour set {given}, not {described(colour)}")
        yield Step(path, bind=node.id)
    elif isinstance(node, ast.Tuple) and isinstance(colour, Product) and len(node.elts) == len(colour.of):
        for at, (each, part) in enumerate(zip(node.elts, colour.of, strict=True)):
            yield from _steps(each, scope, part, f"{path}[{at}]")
    elif isinstance(node, ast.Call) and isinstance(colour, RecordOf) and text_of(node.func) == colour.name:
        typed_fields = dict(colour.fields)
        require_once(node)
        if node.args or not {keyword.arg for keyword in node.keywords} <= set(typed_fields):
            raise InvalidValue(f"`{text_of(node)}`: the fields of {colour.name} are {', '.join(typed_fields)}")
        for keyword in node.keywords:
            name = str(keyword.arg)
            yield from _steps(keyword.value, scope, typed_fields[name], f"{path}[{colour.position(name)}]")
    elif isinstance(node, ast.List) and isinstance(colour, ListOf):
        yield from _list_steps(node, scope, colour, path)
    else:
        equal = typed(node, scope, colour)
        if equal.is_random or "time" in equal.calls:
            raise InvalidValue(f"`{text_of(node)}` depends on chance or on the clock; which token is taken must not")
        if len(colour.values() or ()) != 1:
            yield Step(path, equal=equal)


def _list_steps(node: ast.List, scope: Scope, colour: ListOf, path: str) -> Iterator[Step]:
    tail = node.elts[-1] if node.elts and isinstance(node.elts[-1], ast.Starred) else None
    heads = node.elts[:-1] if tail is not None else node.elts
    yield Step(path, length=(len(heads), tail is not None))
    for at, each in enumerate(heads):
        yield from _steps(each, scope, colour.of, f"{path}[{at}]")
    if isinstance(tail, ast.Starred):
        yield from _steps(tail.value, scope, colour, f"{path}[{len(heads)}:]")


def _multiset(node: ast.expr, scope: Scope, colour: ColourSet, delay: Expression | None) -> Multiset:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
        if not colour.timed or delay is not None:
            why = "two delays" if delay is not None else f"colour set {colour.name} is not timed"
            raise InvalidValue(f"`{text_of(node)}`: {why}")
        return _multiset(node.left, scope, colour, typed_delay(node.right, scope))
    _require_count(node)
    terms = list(terms_of(node))
    if len(terms) > 1:
        return tuple(part for each in terms for part in _multiset(each, scope, colour, delay))
    if isinstance(node, ast.Name) and node.id == "empty":
        return ()
    if isinstance(node, ast.IfExp):
        then, otherwise = (_multiset(each, scope, colour, delay) for each in (node.body, node.orelse))
        if all(isinstance(each, tuple) and len(each) == 1 for each in (then, otherwise)) and not _is_multiset(node):
            return (Term(typed(node, scope, colour), delay=delay),)
        return (Choice(typed(node.test, scope, BOOL), then, otherwise),)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return (Term(typed(node.right, scope, colour), count=typed(node.left, scope, INT), delay=delay),)
    if isinstance(node, ast.Call) and text_of(node.func) == "each" and len(node.args) == 1:
        return (Term(typed(node.args[0], scope, ListOf("list", colour)), delay=delay, is_each=True),)
    return (Term(typed(node, scope, colour), delay=delay),)


def _is_multiset(node: ast.expr) -> bool:
    """Whether an expression can be read as a multiset only."""
    if isinstance(node, ast.IfExp):
        return _is_multiset(node.body) or _is_multiset(node.orelse)
    if isinstance(node, ast.Name):
        return node.id == "empty"
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Pow | ast.BitXor | ast.BitOr)
    return isinstance(node, ast.Call) and text_of(node.func) == "each"
