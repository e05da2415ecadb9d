"""Expressions of inscriptions: in Python's syntax, typed with colour sets, so that mistakes show when a net is built.

| in an inscription | meaning | in CPN ML |
| --- | --- | --- |
| `msg.id`, `pair[0]` | field of a record, component of a product | `#id msg`, `#1 pair` |
| `Msg(id=n, AT=time())`, `replace(msg, OT=t)` | a record, one with another field | `{id=n, …}`, `Msg.set_OT msg t` |
| `[head, *tail]`, `xs + ys`, `x in xs` | lists | `head::tail`, `xs ^^ ys`, `mem xs x` |
| `text + "s"` | strings | `text ^ "s"` |
| `[f(x) for x in xs if g(x)]`, `any(…)`, `all(…)` | a list from another, conditions on it | `List.filter`, … |
| `first(xs)`, `rest(xs)`, `len(xs)` | of a list | `hd`, `tl`, `length` |
| `a if c else b`, `and`, `or`, `not`, `==`, `<`, … | as in Python | `if c then a else b`, `andalso`, … |
| `time()` | the model's clock | `time()` |
| `exponential(r)`, `uniform(a, b)`, `erlang(n, r)`, `bernoulli(p)`, `discrete(a, b)` | a random value | the same |
| `gamma(r, k)` | a random value with rate r and shape k: its mean is k/r | the same |
| `lognormal(m, v)` | a random value whose logarithm has mean m and variance v | `Math.exp(normal(m, v))` |
"""

from __future__ import annotations

import ast
import math
import re
import textwrap
from collections.abc import Mapping
from typing import Any

import msgspec

from lavant.core.errors import InvalidValue
from lavant.models.petri.language.colours import (
    NOTHING,
    Bool,
    ColourSet,
    Enumeration,
    Int,
    ListOf,
    Product,
    Real,
    RecordOf,
    String,
    Unit,
    accepts,
)

INT, REAL, BOOL, STRING, UNIT = Int("INT"), Real("REAL"), Bool("BOOL"), String("STRING"), Unit("UNIT")

BUILT_IN: dict[str, tuple[tuple[ColourSet, ...], ColourSet]] = {
    "time": ((), REAL),
    "real": ((INT,), REAL),
    "exponential": ((REAL,), REAL),
    "uniform": ((REAL, REAL), REAL),
    "erlang": ((INT, REAL), REAL),
    "gamma": ((REAL, REAL), REAL),
    "lognormal": ((REAL, REAL), REAL),
    "bernoulli": ((REAL,), BOOL),
    "discrete": ((INT, INT), INT),
}
_SIGNS = {"`": "**", "@+": "^", "++": "|"}
_SIGN = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`|@\+|\+\+|#.*""")
SHOWN_MAX = 200
"""Characters of an inscription in a message."""
RANDOM = ("exponential", "uniform", "erlang", "gamma", "lognormal", "bernoulli", "discrete")
ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}
COMPARISONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


class Function(msgspec.Struct, frozen=True):
    """A function that inscriptions may call, itself an expression."""

    name: str
    parameters: dict[str, ColourSet]
    text: str
    body: Expression


class Scope(msgspec.Struct):
    """The names that an expression may use."""

    colours: dict[str, ColourSet] = msgspec.field(default_factory=dict)
    variables: dict[str, ColourSet] = msgspec.field(default_factory=dict)
    values: dict[str, int | float | bool | str] = msgspec.field(default_factory=dict)
    functions: dict[str, Function] = msgspec.field(default_factory=dict)

    def enumerated(self, name: str) -> Enumeration | None:
        return next((c for c in self.colours.values() if isinstance(c, Enumeration) and name in c.names), None)


class Expression(msgspec.Struct, frozen=True):
    """A parsed expression with the colour set of each of its parts, and the variables in it."""

    node: ast.expr
    colour: ColourSet
    types: dict[ast.AST, ColourSet]
    names: frozenset[str]
    calls: frozenset[str]
    """Functions that it calls, directly or through others."""
    widened: frozenset[ast.AST] = frozenset()
    """Integers that stand for real numbers, which CPN ML wants converted."""

    @property
    def is_random(self) -> bool:
        return not self.calls.isdisjoint(RANDOM)


def parse(text: str) -> ast.expr:
    """The syntax tree of an inscription.

    The signs of CPN ML that Python lacks are read as operators of the same precedence, which inscriptions do not use:
    a backquote, as in ``2`x``, as a power, `@+` as `^` and `++` as `|`. It may have several lines, and comments.
    """
    try:
        return ast.parse(" ".join(_in_python(text).split("\n")).strip(), mode="eval").body
    except (SyntaxError, RecursionError) as error:
        raise _unreadable(text, error) from None


def parse_action(text: str) -> list[tuple[str, ast.expr]]:
    """The variables that an action sets, with their expressions."""
    try:
        statements = ast.parse(textwrap.dedent(_in_python(text))).body
    except (SyntaxError, RecursionError) as error:
        raise _unreadable(text, error) from None
    found = []
    for each in statements:
        if not isinstance(each, ast.Assign) or len(each.targets) != 1 or not isinstance(each.targets[0], ast.Name):
            raise InvalidValue(f"`{text_of(each)}` is not of the form `variable = expression`")
        found.append((each.targets[0].id, each.value))
    return found


def _in_python(text: str) -> str:
    if not isinstance(text, str):
        raise InvalidValue(f"{text!r} is no inscription; write it as a text, in quotes")
    return _SIGN.sub(lambda found: "" if found[0][0] == "#" else _SIGNS.get(found[0], found[0]), text)


def _unreadable(text: str, error: SyntaxError | RecursionError) -> InvalidValue:
    shown = " ".join(text.splitlines())
    shown = shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}…"
    why = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply"
    return InvalidValue(f"`{shown}` cannot be read: {why}")


def typed(node: ast.expr | str, scope: Scope, wanted: ColourSet | None = None) -> Expression:
    """Check an expression, and that it has the colour set `wanted`."""
    tree = node if isinstance(node, ast.expr) else parse(node)
    typing = _Typing(scope)
    try:
        colour = typing.check(tree, wanted) if wanted is not None else typing.infer(tree)
    except RecursionError as error:
        raise _unreadable("…", error) from None
    names, calls = frozenset(typing.names), frozenset(typing.calls)
    return Expression(tree, colour, typing.types, names, calls, frozenset(typing.widened))


def text_of(node: ast.AST) -> str:
    return ast.unparse(node).replace(" ** ", "`").replace("**", "`").replace(" ^ ", " @+ ").replace(" | ", " ++ ")


class _Typing:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.types: dict[ast.AST, ColourSet] = {}
        self.names: set[str] = set()
        self.calls: set[str] = set()
        self.widened: set[ast.AST] = set()
        self.locals: dict[str, ColourSet] = {}

    def check(self, node: ast.expr, wanted: ColourSet) -> ColourSet:
        found = self.infer(node, wanted)
        if not accepts(wanted, found):
            raise InvalidValue(f"`{text_of(node)}` is of colour set {described(found)}, not {described(wanted)}")
        if isinstance(node, ast.List) and not node.elts:
            self.types[node] = found = wanted
        if isinstance(wanted, Real) and isinstance(found, Int):
            self.widened.add(node)
        if isinstance(wanted, Int) and (value := self._value(node)) is not None:
            wanted.token(value)
        return found

    def _value(self, node: ast.expr) -> Any:
        """The value of a constant, or None."""
        hidden = {*self.locals, *self.scope.variables}
        return constant_of(node, {name: each for name, each in self.scope.values.items() if name not in hidden})

    def infer(self, node: ast.expr, wanted: ColourSet | None = None) -> ColourSet:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise InvalidValue(f"`{text_of(node)}` is not part of the language of inscriptions")
        colour: ColourSet = method(node, wanted)
        self.types[node] = colour
        return colour

    def _constant(self, node: ast.Constant, _: ColourSet | None) -> ColourSet:
        for kind, colour in ((bool, BOOL), (int, INT), (float, REAL), (str, STRING)):
            if isinstance(node.value, kind) and node.value not in (math.inf, -math.inf):
                return colour
        raise InvalidValue(f"`{text_of(node)}` is no value of any colour set")

    def _name(self, node: ast.Name, wanted: ColourSet | None) -> ColourSet:
        name, scope = node.id, self.scope
        if name in self.locals:
            return self.locals[name]
        if name in scope.variables:
            self.names.add(name)
            return scope.variables[name]
        if isinstance(wanted, Enumeration) and name in wanted.names:
            return wanted
        if name in scope.values:
            value = scope.values[name]
            return self._constant(ast.Constant(value), None)
        found = scope.enumerated(name)
        if found is None:
            raise InvalidValue(f"`{name}` is no variable, value or enumerated colour; declare it")
        return found

    def _attribute(self, node: ast.Attribute, _: ColourSet | None) -> ColourSet:
        colour = self.infer(node.value)
        if isinstance(colour, RecordOf):
            for name, part in colour.fields:
                if name == node.attr:
                    return part
        raise InvalidValue(f"{described(colour)} has no field `{node.attr}`, which `{text_of(node)}` wants")

    def _subscript(self, node: ast.Subscript, _: ColourSet | None) -> ColourSet:
        colour = self.infer(node.value)
        at = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(colour, Product) and type(at) is int and 0 <= at < len(colour.of):
            return colour.of[at]
        raise InvalidValue(f"`{text_of(node)}` is no component of {described(colour)}, which count from 0")

    def _tuple(self, node: ast.Tuple, wanted: ColourSet | None) -> ColourSet:
        if not node.elts:
            return UNIT
        wants = wanted.of if isinstance(wanted, Product) and len(wanted.of) == len(node.elts) else None
        parts = tuple(
            self.infer(each) if wants is None else self.check(each, wants[at]) for at, each in enumerate(node.elts)
        )
        return wanted if wants is not None and wanted is not None else Product("product", parts)

    def _list(self, node: ast.List, wanted: ColourSet | None) -> ColourSet:
        of = wanted.of if isinstance(wanted, ListOf) else None
        for each in node.elts:
            if isinstance(each, ast.Starred):
                colour = self.infer(each.value, wanted)
                if not isinstance(colour, ListOf):
                    raise InvalidValue(f"`{text_of(each)}` is no list, but of colour set {described(colour)}")
                of = of if of is not None else colour.of
            else:
                of = self.check(each, of) if of is not None and of != NOTHING else self.infer(each)
        if isinstance(wanted, ListOf):
            return wanted
        return ListOf("list", NOTHING if of is None else of)

    def _starred(self, node: ast.Starred, _: ColourSet | None) -> ColourSet:
        raise InvalidValue(f"`{text_of(node)}` may only stand in a list, as in [head, *tail]")

    def _ifexp(self, node: ast.IfExp, wanted: ColourSet | None) -> ColourSet:
        self.check(node.test, BOOL)
        colour, other = self.infer(node.body, wanted), self.infer(node.orelse, wanted)
        if (isinstance(colour, ListOf) and colour.of == NOTHING) or isinstance(other, Real):
            self.check(node.body, other)
            return other
        self.check(node.orelse, colour)
        return colour

    def _boolop(self, node: ast.BoolOp, _: ColourSet | None) -> ColourSet:
        for each in node.values:
            self.check(each, BOOL)
        return BOOL

    def _unaryop(self, node: ast.UnaryOp, _: ColourSet | None) -> ColourSet:
        if isinstance(node.op, ast.Not):
            return self.check(node.operand, BOOL)
        if isinstance(node.op, ast.USub):
            return self._number(node.operand)
        raise InvalidValue(f"`{text_of(node)}` is not part of the language of inscriptions")

    def _binop(self, node: ast.BinOp, wanted: ColourSet | None) -> ColourSet:
        if isinstance(node.op, ast.Pow):
            raise InvalidValue(f"`{text_of(node)}` is a multiset; put a computed number in parentheses: (n - 1)`x")
        if isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod) and self._value(node.right) == 0:
            raise InvalidValue(f"`{text_of(node)}` divides by zero")
        if type(node.op) not in ARITHMETIC:
            raise InvalidValue(f"`{text_of(node)}` is not part of the language of inscriptions")
        if isinstance(node.op, ast.Add):
            left = self.infer(node.left, wanted if isinstance(wanted, ListOf) else None)
            if isinstance(left, ListOf):
                if left.of == NOTHING:
                    return self.check(node.right, left)
                self.check(node.right, left)
                return left
            if isinstance(left, String):
                return self.check(node.right, STRING)
        colours = (self._number(node.left), self._number(node.right))
        if not isinstance(node.op, ast.Div) and not any(isinstance(each, Real) for each in colours):
            return INT
        self._widen(node.left, node.right)
        return REAL

    def _widen(self, *nodes: ast.expr) -> None:
        self.widened.update(each for each in nodes if isinstance(self.types[each], Int))

    def _number(self, node: ast.expr) -> ColourSet:
        colour = self.infer(node)
        if not isinstance(colour, Int | Real):
            raise InvalidValue(f"`{text_of(node)}` is no number, but of colour set {described(colour)}")
        return colour

    def _compare(self, node: ast.Compare, _: ColourSet | None) -> ColourSet:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.In | ast.NotIn):
                colour = self.infer(right)
                if not isinstance(colour, ListOf):
                    raise InvalidValue(f"`{text_of(right)}` is no list, but of colour set {described(colour)}")
                self.check(left, colour.of)
            elif type(operator) in COMPARISONS:
                colour = self.infer(left)
                if not isinstance(operator, ast.Eq | ast.NotEq) and not isinstance(colour, Int | Real | String):
                    raise InvalidValue(f"`{text_of(node)}`: {described(colour)} has no order; numbers and texts have")
                if not isinstance(colour, Int):
                    self.check(right, colour)
                elif isinstance(self._number(right), Real):
                    self._widen(left)
            else:
                raise InvalidValue(f"`{text_of(node)}` is not part of the language of inscriptions")
            left = right
        return BOOL

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp, _: ColourSet | None) -> ColourSet:
        if len(node.generators) != 1 or not isinstance(node.generators[0].target, ast.Name):
            raise InvalidValue(f"`{text_of(node)}`: a list is made with one `for` and one name")
        loop = node.generators[0]
        source, name = self.infer(loop.iter), node.generators[0].target.id
        if self.scope.enumerated(name) is not None:
            raise InvalidValue(f"`{text_of(node)}`: {name} is a value of an enumeration; choose another name")
        if not isinstance(source, ListOf):
            raise InvalidValue(f"`{text_of(loop.iter)}` is no list, but of colour set {described(source)}")
        before, self.locals = self.locals, {**self.locals, name: source.of}
        for condition in loop.ifs:
            self.check(condition, BOOL)
        colour = self.infer(node.elt)
        self.locals = before
        return ListOf("list", colour)

    def _generatorexp(self, node: ast.GeneratorExp, wanted: ColourSet | None) -> ColourSet:
        return self._listcomp(node, wanted)

    def _call(self, node: ast.Call, wanted: ColourSet | None) -> ColourSet:
        name = node.func.id if isinstance(node.func, ast.Name) else text_of(node.func)
        if name in ("first", "rest", "len", "any", "all"):
            return self._of_list(name, node)
        if name == "replace":
            return self._replace(node)
        record = self.scope.colours.get(name)
        if isinstance(record, RecordOf):
            return self._fields(node, record)
        if name in self.scope.functions:
            function = self.scope.functions[name]
            wants, result = tuple(function.parameters.values()), function.body.colour
            self.calls |= function.body.calls
        elif name in BUILT_IN:
            wants, result = BUILT_IN[name]
            self.calls.add(name)
        else:
            raise InvalidValue(f"`{name}` is no function and no record; declare it")
        if node.keywords or len(node.args) != len(wants):
            raise InvalidValue(f"`{text_of(node)}`: {name} takes {len(wants)} arguments, without names")
        for each, colour in zip(node.args, wants, strict=True):
            self.check(each, colour)
        if name in RANDOM and name not in self.scope.functions:
            values = [self._value(each) for each in node.args]
            if None not in values:
                check_drawable(name, *values)
        return result

    def _of_list(self, name: str, node: ast.Call) -> ColourSet:
        if len(node.args) != 1 or node.keywords:
            raise InvalidValue(f"`{text_of(node)}`: {name} takes one list")
        colour = self.infer(node.args[0])
        if not isinstance(colour, ListOf):
            raise InvalidValue(f"`{text_of(node.args[0])}` is no list, but of colour set {described(colour)}")
        if name in ("any", "all"):
            if not accepts(BOOL, colour.of):
                raise InvalidValue(f"`{text_of(node)}`: {name} takes a list of BOOL, not of {described(colour.of)}")
            return BOOL
        return {"first": colour.of, "rest": colour, "len": INT}[name]

    def _replace(self, node: ast.Call) -> ColourSet:
        record = self.infer(node.args[0]) if len(node.args) == 1 else None
        if not isinstance(record, RecordOf) or not isinstance(node.args[0], ast.Name) or not node.keywords:
            raise InvalidValue(f"`{text_of(node)}`: replace takes a variable with a record and fields, as in id=1")
        self._keywords(node, record)
        return record

    def _fields(self, node: ast.Call, record: RecordOf) -> ColourSet:
        given, wants = [each.arg for each in node.keywords], [name for name, _ in record.fields]
        if node.args or sorted(map(str, given)) != sorted(wants):
            raise InvalidValue(f"`{text_of(node)}`: the fields of {record.name} are {', '.join(wants)}")
        self._keywords(node, record)
        return record

    def _keywords(self, node: ast.Call, record: RecordOf) -> None:
        fields: Mapping[str | None, ColourSet] = dict(record.fields)
        require_once(node)
        for keyword in node.keywords:
            if keyword.arg not in fields:
                raise InvalidValue(f"`{text_of(node)}`: {record.name} has no field `{keyword.arg}`")
            self.check(keyword.value, fields[keyword.arg])


def require_once(node: ast.Call) -> None:
    """Refuse a record with a field that is given twice."""
    given = [each.arg for each in node.keywords]
    for name in given:
        if given.count(name) > 1:
            raise InvalidValue(f"`{text_of(node)}`: field `{name}` is given twice")


def constant_of(node: ast.AST, values: Mapping[str, Any]) -> Any:
    """The value of a literal or of a declared constant; None for any other expression."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant_of(node.operand, values)
        return None if value is None else -value
    return values.get(node.id) if isinstance(node, ast.Name) else None


def check_drawable(name: str, first: float, second: float = 1.0) -> None:
    """Refuse arguments with which nothing can be drawn, as CPN ML does.

    >>> check_drawable("discrete", 3, 1)
    Traceback (most recent call last):
        ...
    lavant.core.errors.InvalidValue: discrete(3, 1) cannot be drawn; the first number is the least
    """
    is_right, wanted = {
        "exponential": (first > 0, "a rate is above 0"),
        "uniform": (first <= second, "the first number is the least"),
        "erlang": (first >= 1 and second > 0, "the first number is 1 or more, and a rate is above 0"),
        "gamma": (first > 0 and second > 0, "rate and shape are above 0"),
        "lognormal": (second >= 0, "a variance is 0 or more"),
        "bernoulli": (0 <= first <= 1, "a probability is between 0 and 1"),
        "discrete": (first <= second, "the first number is the least"),
    }[name]
    if not is_right:
        shown = f"{first:g}, {second:g}" if len(BUILT_IN[name][0]) > 1 else f"{first:g}"
        raise InvalidValue(f"{name}({shown}) cannot be drawn; {wanted}")


def described(colour: ColourSet) -> str:
    """
    >>> described(ListOf("list", INT)), described(Int("MsgTimeout"))
    ('list INT', 'MsgTimeout')
    """
    return colour.declaration() if colour.name in ("list", "product") else colour.name
