"""Expressions as CPN ML, the language of inscriptions in CPN Tools."""

from __future__ import annotations

import ast

from lavant.core.errors import InvalidValue
from lavant.models.petri.language.colours import (
    ColourSet,
    Enumeration,
    ListOf,
    Real,
    RecordOf,
    String,
    ml_number,
    ml_text,
)
from lavant.models.petri.language.expressions import Expression, Function, Scope, parse, text_of, typed
from lavant.models.petri.language.inscriptions import Choice, Multiset, Term, terms_of

_OPERATORS = {ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "div", ast.Mod: "mod"}
_COMPARISONS = {ast.Eq: "=", ast.NotEq: "<>", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_OF_LIST = {"first": "hd", "rest": "tl", "len": "length"}
_WORDS = (
    "abstype and andalso as case color colset datatype div do else end eqtype exception fn fun functor handle if in "
    "include infix infixr let local mod nonfix not o of op open orelse product raise rec record sharing sig signature "
    "struct structure subset then timed type union val var where while with withtype hd length mem tl true false "
    "P_HIGH P_NORMAL P_LOW"
)
"""Words of CPN ML, and functions that inscriptions are written with."""


def ml_name(name: str) -> str:
    """The name, which CPN ML must allow."""
    if not name.isascii() or name.startswith("_") or name in _WORDS.split():
        raise InvalidValue(f"{name!r} cannot be a name in CPN ML; choose another one for the export")
    return name


def ml_names(scope: Scope) -> None:
    """Refuse declarations whose names CPN ML does not allow."""
    for colour in scope.colours.values():
        fields = [name for name, _ in colour.fields] if isinstance(colour, RecordOf) else []
        values = colour.names if isinstance(colour, Enumeration) else ()
        for name in (colour.name, *fields, *values):
            ml_name(name)
    for function in scope.functions.values():
        for name in (function.name, *function.parameters):
            ml_name(name)
    for name in (*scope.variables, *scope.values):
        ml_name(name)


def ml_value(value: object) -> str:
    """A constant."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ml_text(value) if isinstance(value, str) else ml_number(str(value))


def ml_of(expression: Expression) -> str:
    return _Writer(expression).of(expression.node)


def ml_function(function: Function) -> str:
    parameters = ", ".join(f"{name}: {colour.name}" for name, colour in function.parameters.items())
    return f"fun {function.name} ({parameters}) = {ml_of(function.body)};"


def ml_taking(text: str, scope: Scope, colour: ColourSet) -> str:
    """The patterns of an arc that takes."""
    parts = []
    for node in terms_of(parse(text)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            parts.append(f"{text_of(node.left)}`{_pattern(node.right, scope, colour)}")
        else:
            parts.append(_pattern(node, scope, colour))
    return parts[0] if len(parts) == 1 else "++".join(part if "`" in part else f"1`{part}" for part in parts)


def ml_putting(multiset: Multiset) -> str:
    """The multiset of an arc that puts. If one of its tokens is delayed, all get a time stamp, and `+++` adds them."""
    if len(multiset) == 1 and isinstance(multiset[0], Term) and multiset[0].count is None:
        token, delay = multiset[0].token, multiset[0].delay
        return ml_of(token) if delay is None else f"{ml_of(token)}@+{ml_of(delay)}"
    return _sum(multiset, is_timed=_is_delayed(multiset))


def _is_delayed(multiset: Multiset) -> bool:
    return any(
        _is_delayed(each.then + each.otherwise) if isinstance(each, Choice) else each.delay is not None
        for each in multiset
    )


def _sum(multiset: Multiset, *, is_timed: bool) -> str:
    parts = (_part(each, is_timed=is_timed) for each in multiset)
    return ("+++" if is_timed else "++").join(parts) if multiset else "empty"


def _part(each: Term | Choice, *, is_timed: bool) -> str:
    if isinstance(each, Choice):
        then, otherwise = (_sum(branch, is_timed=is_timed) for branch in (each.then, each.otherwise))
        return f"(if {ml_of(each.test)} then {then} else {otherwise})"
    tokens = ml_of(each.token)
    if not each.is_each:
        tokens = f"{'1' if each.count is None else ml_of(each.count)}`{tokens}"
    if not is_timed:
        return tokens
    return f"{tokens}@+{'0.0' if each.delay is None else ml_of(each.delay)}"


def _pattern(node: ast.expr, scope: Scope, colour: ColourSet) -> str:
    if isinstance(node, ast.Name) and node.id in scope.variables:
        return node.id
    if isinstance(node, ast.Name) and node.id == "_":
        raise InvalidValue("`_`: an arc of CPN ML names every part of its tokens; take a variable for the export")
    if isinstance(node, ast.Tuple) and node.elts:
        parts = colour.parts()
        return f"({', '.join(_pattern(each, scope, part) for each, part in zip(node.elts, parts, strict=True))})"
    if isinstance(node, ast.List) and isinstance(colour, ListOf):
        heads = [each for each in node.elts if not isinstance(each, ast.Starred)]
        shown = [_pattern(each, scope, colour.of) for each in heads]
        if len(heads) == len(node.elts):
            return f"[{', '.join(shown)}]"
        tail = node.elts[-1]
        assert isinstance(tail, ast.Starred)
        return "::".join([*shown, _pattern(tail.value, scope, colour)])
    if isinstance(node, ast.Call) and isinstance(colour, RecordOf) and text_of(node.func) == colour.name:
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if missing := [name for name, _ in colour.fields if name not in given]:
            raise InvalidValue(f"`{text_of(node)}`: an arc of CPN ML names every field; add {', '.join(missing)}")
        return "{" + ", ".join(f"{name}={_pattern(given[name], scope, part)}" for name, part in colour.fields) + "}"
    return ml_of(typed(node, scope, colour))


def _argument(text: str) -> str:
    """In parentheses, unless it is a name or in brackets: `f g(x)` would apply `f` to `g`."""
    return text if text.isidentifier() or text[0] in "([{0123456789" else f"({text})"


def _has_real(colour: ColourSet) -> bool:
    return isinstance(colour, Real) or any(map(_has_real, colour.parts()))


class _Writer:
    def __init__(self, expression: Expression) -> None:
        self.types, self.widened, self.calls = expression.types, expression.widened, expression.calls

    def of(self, node: ast.AST) -> str:
        text: str = getattr(self, f"_{type(node).__name__.lower()}")(node)
        if node in self.widened:
            return f"{text}.0" if isinstance(node, ast.Constant) else f"Real.fromInt({text})"
        return text

    def _constant(self, node: ast.Constant) -> str:
        return ml_value(node.value)

    def _name(self, node: ast.Name) -> str:
        return node.id

    def _attribute(self, node: ast.Attribute) -> str:
        return f"(#{node.attr} {_argument(self.of(node.value))})"

    def _subscript(self, node: ast.Subscript) -> str:
        assert isinstance(node.slice, ast.Constant)
        assert isinstance(node.slice.value, int)
        return f"(#{node.slice.value + 1} {_argument(self.of(node.value))})"

    def _tuple(self, node: ast.Tuple) -> str:
        return f"({', '.join(map(self.of, node.elts))})"

    def _list(self, node: ast.List) -> str:
        if not any(isinstance(each, ast.Starred) for each in node.elts):
            return f"[{', '.join(map(self.of, node.elts))}]"
        parts = [self.of(e.value) if isinstance(e, ast.Starred) else f"[{self.of(e)}]" for e in node.elts]
        return f"({' ^^ '.join(parts)})"

    def _ifexp(self, node: ast.IfExp) -> str:
        return f"(if {self.of(node.test)} then {self.of(node.body)} else {self.of(node.orelse)})"

    def _boolop(self, node: ast.BoolOp) -> str:
        word = " andalso " if isinstance(node.op, ast.And) else " orelse "
        return f"({word.join(map(self.of, node.values))})"

    def _unaryop(self, node: ast.UnaryOp) -> str:
        return f"({'not' if isinstance(node.op, ast.Not) else '~'} {_argument(self.of(node.operand))})"

    def _binop(self, node: ast.BinOp) -> str:
        colour = self.types[node]
        adds = "^^" if isinstance(colour, ListOf) else "^" if isinstance(colour, String) else "+"
        sign = _OPERATORS.get(type(node.op), adds)
        if sign in ("div", "mod") and isinstance(colour, Real):
            raise InvalidValue(f"`{text_of(node)}`: CPN ML has {sign} for integers only")
        return f"({self.of(node.left)} {sign} {self.of(node.right)})"

    def _compare(self, node: ast.Compare) -> str:
        parts, left = [], node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.In | ast.NotIn):
                self._require_equality(left, node)
                found = f"mem {_argument(self.of(right))} {_argument(self.of(left))}"
                parts.append(f"({found})" if isinstance(operator, ast.In) else f"(not ({found}))")
            else:
                parts.append(self._comparison(left, operator, right))
            left = right
        return parts[0] if len(parts) == 1 else f"({' andalso '.join(parts)})"

    def _comparison(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> str:
        shown = self.of(left), self.of(right)
        if isinstance(operator, ast.Eq | ast.NotEq):
            if any(isinstance(self.types[each], Real) for each in (left, right)):
                equal = f"Real.==({shown[0]}, {shown[1]})"
                return equal if isinstance(operator, ast.Eq) else f"(not ({equal}))"
            self._require_equality(left, ast.Compare(left, [operator], [right]))
        return f"({shown[0]} {_COMPARISONS[type(operator)]} {shown[1]})"

    def _require_equality(self, value: ast.expr, whole: ast.Compare) -> None:
        if _has_real(self.types[value]):
            raise InvalidValue(f"`{text_of(whole)}`: CPN ML cannot compare real numbers within other values")

    def _filtered(self, node: ast.ListComp | ast.GeneratorExp) -> tuple[str, str]:
        """The element with its type, which `#` needs, and the list of those that fulfil the conditions."""
        loop = node.generators[0]
        colour = self.types[loop.iter]
        assert isinstance(loop.target, ast.Name)
        assert isinstance(colour, ListOf)
        is_declared = colour.of.name not in ("list", "product")
        element = f"({ml_name(loop.target.id)}: {colour.of.name})" if is_declared else ml_name(loop.target.id)
        source = _argument(self.of(loop.iter))
        if loop.ifs:
            source = f"(List.filter (fn {element} => {' andalso '.join(map(self.of, loop.ifs))}) {source})"
        return element, source

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp) -> str:
        element, source = self._filtered(node)
        target = node.generators[0].target
        if isinstance(node.elt, ast.Name) and isinstance(target, ast.Name) and node.elt.id == target.id:
            return source
        return f"(List.map (fn {element} => {self.of(node.elt)}) {source})"

    _generatorexp = _listcomp

    def _call(self, node: ast.Call) -> str:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name in ("any", "all"):
            return self._quantified(name, node.args[0])
        if name in _OF_LIST:
            return f"({_OF_LIST[name]} {_argument(self.of(node.args[0]))})"
        record = self.types[node]
        if node.keywords and isinstance(record, RecordOf):
            return self._record(node, record)
        if name == "real":
            return f"Real.fromInt({self.of(node.args[0])})"
        arguments = ", ".join(map(self.of, node.args))
        if name == "lognormal" and name in self.calls:
            return f"Math.exp(normal({arguments}))"
        return f"(bernoulli({arguments}) = 1)" if name == "bernoulli" else f"{name}({arguments})"

    def _quantified(self, name: str, node: ast.expr) -> str:
        word = {"any": "List.exists", "all": "List.all"}[name]
        if not isinstance(node, ast.ListComp | ast.GeneratorExp):
            return f"({word} (fn each => each) {_argument(self.of(node))})"
        element, source = self._filtered(node)
        return f"({word} (fn {element} => {self.of(node.elt)}) {source})"

    def _record(self, node: ast.Call, record: RecordOf) -> str:
        given = [(str(each.arg), self.of(each.value)) for each in node.keywords]
        if not node.args:
            return "{" + ", ".join(f"{name}={value}" for name, value in given) + "}"
        text = self.of(node.args[0])
        for name, value in given:
            text = f"({record.name}.set_{name} {text} {_argument(value)})"
        return text
