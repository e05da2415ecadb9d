"""Expressions as Python source: records become tuples, fields become indexes, declared values become literals."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable

from lavant.models.petri.language.colours import Product, RecordOf
from lavant.models.petri.language.expressions import (
    ARITHMETIC,
    COMPARISONS,
    RANDOM,
    Expression,
    Function,
    Scope,
    check_drawable,
    constant_of,
)

RANDOM_SOURCE = {  # of constants, which were checked when the net was built; the others are drawn by `draw`
    "exponential": "(_exponential() / {0})",
    "uniform": "({0} + ({1} - {0}) * _uniform())",
    "erlang": "(sum([_exponential() for _ in range({0})]) / {1})",
    "bernoulli": "(_uniform() < {0})",
    "discrete": "({0} + int(({1} - {0} + 1) * _uniform()))",
}


def python_of(expression: Expression, scope: Scope, *, clock: str = "now") -> str:
    """Source whose free names are the variables (`v_…`), the functions (`fn_…`), the clock and the random source."""
    return _Source(expression, scope, clock).of(expression.node)


def function_source(function: Function, scope: Scope) -> str:
    parameters = ", ".join(f"v_{name}" for name in function.parameters)
    return f"def fn_{function.name}({parameters}):\n    return {python_of(function.body, scope)}"


def draw(name: str, uniform: Callable[[], float], exponential: Callable[[], float], *arguments: float) -> float:
    """A random value whose arguments are known only when it is drawn: `_draw` in the source."""
    check_drawable(name, *arguments)
    first, second = arguments[0], arguments[-1]
    if name == "exponential":
        return exponential() / first
    if name == "uniform":
        return first + (second - first) * uniform()
    if name == "erlang":
        return sum(exponential() for _ in range(int(first))) / second
    if name == "gamma":
        return _gamma(second, uniform, exponential) / first
    if name == "lognormal":
        return math.exp(first + math.sqrt(second) * _normal(uniform, exponential))
    if name == "bernoulli":
        return uniform() < first
    return first + int((second - first + 1) * uniform())


def _normal(uniform: Callable[[], float], exponential: Callable[[], float]) -> float:
    """Box and Muller, 1958."""
    return math.sqrt(2.0 * exponential()) * math.cos(2.0 * math.pi * uniform())


def _gamma(shape: float, uniform: Callable[[], float], exponential: Callable[[], float]) -> float:
    """With rate 1: G. Marsaglia, W. W. Tsang, "A simple method for generating gamma variables", 2000."""
    if shape < 1:
        return _gamma(shape + 1.0, uniform, exponential) * math.exp(-exponential() / shape)
    d = shape - 1.0 / 3.0
    while True:
        x = _normal(uniform, exponential)
        v = (1.0 + x / math.sqrt(9.0 * d)) ** 3
        if v > 0 and exponential() > d * (v - 1.0 - math.log(v)) - 0.5 * x * x:
            return d * v


class _Source:
    def __init__(self, expression: Expression, scope: Scope, clock: str) -> None:
        self.types, self.names, self.scope, self.clock = expression.types, expression.names, scope, clock
        self.locals: list[str] = []

    def of(self, node: ast.AST) -> str:
        text: str = getattr(self, f"_{type(node).__name__.lower()}")(node)
        return text

    def _all(self, nodes: list[ast.expr]) -> list[str]:
        return [self.of(node) for node in nodes]

    def _constant(self, node: ast.Constant) -> str:
        return repr(node.value)

    def _name(self, node: ast.Name) -> str:
        if node.id in self.locals or node.id in self.names:
            return f"v_{node.id}"
        if node.id in self.scope.values:
            return repr(self.scope.values[node.id])
        return repr(node.id)

    def _attribute(self, node: ast.Attribute) -> str:
        record = self.types[node.value]
        assert isinstance(record, RecordOf)
        return f"{self.of(node.value)}[{record.position(node.attr)}]"

    def _subscript(self, node: ast.Subscript) -> str:
        assert isinstance(self.types[node.value], Product)
        return f"{self.of(node.value)}[{self.of(node.slice)}]"

    def _tuple(self, node: ast.Tuple | ast.List) -> str:
        return f"({''.join(f'{each}, ' for each in self._all(node.elts))})"

    _list = _tuple

    def _starred(self, node: ast.Starred) -> str:
        return f"*{self.of(node.value)}"

    def _ifexp(self, node: ast.IfExp) -> str:
        return f"({self.of(node.body)} if {self.of(node.test)} else {self.of(node.orelse)})"

    def _boolop(self, node: ast.BoolOp) -> str:
        word = " and " if isinstance(node.op, ast.And) else " or "
        return f"({word.join(self._all(node.values))})"

    def _unaryop(self, node: ast.UnaryOp) -> str:
        return f"({'not ' if isinstance(node.op, ast.Not) else '-'}{self.of(node.operand)})"

    def _binop(self, node: ast.BinOp) -> str:
        return f"({self.of(node.left)} {ARITHMETIC[type(node.op)]} {self.of(node.right)})"

    def _compare(self, node: ast.Compare) -> str:
        text = self.of(node.left)
        for operator, right in zip(node.ops, node.comparators, strict=True):
            sign = {ast.In: "in", ast.NotIn: "not in"}.get(type(operator), COMPARISONS.get(type(operator)))
            text += f" {sign} {self.of(right)}"
        return f"({text})"

    def _loop(self, node: ast.ListComp | ast.GeneratorExp) -> str:
        loop = node.generators[0]
        assert isinstance(loop.target, ast.Name)
        source = self.of(loop.iter)
        self.locals.append(loop.target.id)
        conditions = "".join(f" if {self.of(each)}" for each in loop.ifs)
        text = f"{self.of(node.elt)} for v_{loop.target.id} in {source}{conditions}"
        self.locals.pop()
        return text

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp) -> str:
        return f"tuple([{self._loop(node)}])"

    _generatorexp = _listcomp

    def _call(self, node: ast.Call) -> str:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name == "time":
            return self.clock
        if name == "first" and isinstance(node.args[0], ast.GeneratorExp):
            return f"next(({self._loop(node.args[0])}))"
        if name in ("any", "all") and isinstance(node.args[0], ast.GeneratorExp):
            return f"{name}([{self._loop(node.args[0])}])"
        record = self.scope.colours.get(name)
        if name == "replace" or isinstance(record, RecordOf):
            return self._record(node)
        arguments = self._all(node.args)
        if name in RANDOM and name not in self.scope.functions:
            if name in RANDOM_SOURCE and all(self._is_constant(each) for each in node.args):
                return RANDOM_SOURCE[name].format(*arguments)
            return f"_draw({name!r}, _uniform, _exponential, {', '.join(arguments)})"
        if name in ("first", "rest", "len", "any", "all", "real"):
            patterns = {"first": "{0}[0]", "rest": "{0}[1:]", "real": "float({0})"}
            return patterns.get(name, f"{name}({{0}})").format(*arguments)
        return f"fn_{name}({', '.join(arguments)})"

    def _is_constant(self, node: ast.expr) -> bool:
        hidden = {*self.locals, *self.names}
        return constant_of(node, {n: value for n, value in self.scope.values.items() if n not in hidden}) is not None

    def _record(self, node: ast.Call) -> str:
        record = self.types[node]
        assert isinstance(record, RecordOf)
        given = {keyword.arg: self.of(keyword.value) for keyword in node.keywords}
        base = self.of(node.args[0]) if node.args else ""
        parts = (given.get(name, f"{base}[{at}]") for at, (name, _) in enumerate(record.fields))
        return f"({''.join(f'{part}, ' for part in parts)})"
