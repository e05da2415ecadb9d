"""Expressions as CPN ML, the language of inscriptions in CPN Tools."""

from __future__ import annotations

import ast

from lavant.models.petri.language.colours import ColourSet, Int, ListOf, Real, RecordOf
from lavant.models.petri.language.expressions import Expression, Function, Scope, parse, text_of, typed
from lavant.models.petri.language.inscriptions import Choice, Multiset, Term, terms_of

_OPERATORS = {ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "div", ast.Mod: "mod"}
_COMPARISONS = {ast.Eq: "=", ast.NotEq: "<>", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_OF_LIST = {"first": "hd", "rest": "tl", "len": "length"}


def ml_of(expression: Expression, wanted: ColourSet | None = None) -> str:
    """The expression; an integer becomes a real number where one is wanted."""
    writer = _Writer(expression.types)
    return writer.of(expression.node, is_real=isinstance(wanted, Real))


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


def ml_putting(multiset: Multiset, colour: ColourSet) -> str:
    """The multiset of an arc that puts."""
    if len(multiset) == 1 and isinstance(multiset[0], Term) and multiset[0].count is None:
        return _term(multiset[0], colour, plain=True)
    return "++".join(_part(each, colour) for each in multiset) if multiset else "empty"


def _part(each: Term | Choice, colour: ColourSet) -> str:
    if isinstance(each, Term):
        return _term(each, colour, plain=False)
    then, otherwise = (
        "++".join(_part(part, colour) for part in branch) if branch else "empty"
        for branch in (each.then, each.otherwise)
    )
    return f"(if {ml_of(each.test)} then {then} else {otherwise})"


def _term(term: Term, colour: ColourSet, *, plain: bool) -> str:
    delay = f"@+{ml_of(term.delay, Real('REAL'))}" if term.delay is not None else ""
    if term.is_each:
        return f"{ml_of(term.token)}{delay}"
    token = ml_of(term.token, colour)
    count = ml_of(term.count) if term.count is not None else "1"
    return f"{token}{delay}" if plain else f"{count}`{token}{delay}"


def _pattern(node: ast.expr, scope: Scope, colour: ColourSet) -> str:
    if isinstance(node, ast.Name) and (node.id == "_" or node.id in scope.variables):
        return node.id
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
        fields = (f"{name}={_pattern(given[name], scope, part)}" for name, part in colour.fields if name in given)
        rest = [", ..."] if len(given) < len(colour.fields) else []
        return "{" + ", ".join(fields) + "".join(rest) + "}"
    return ml_of(typed(node, scope, colour), colour)


def _argument(text: str) -> str:
    """In parentheses, unless it is a name or in brackets: `f g(x)` would apply `f` to `g`."""
    return text if text.isidentifier() or text[0] in "([{0123456789" else f"({text})"


class _Writer:
    def __init__(self, types: dict[ast.AST, ColourSet]) -> None:
        self.types = types

    def of(self, node: ast.AST, *, is_real: bool = False) -> str:
        text: str = getattr(self, f"_{type(node).__name__.lower()}")(node)
        if is_real and isinstance(self.types.get(node), Int):
            return f"{text}.0" if isinstance(node, ast.Constant) else f"Real.fromInt({text})"
        return text

    def _as(self, node: ast.AST, wanted: ColourSet | None) -> str:
        return self.of(node, is_real=isinstance(wanted, Real))

    def _constant(self, node: ast.Constant) -> str:
        if isinstance(node.value, bool):
            return "true" if node.value else "false"
        if isinstance(node.value, str):
            escaped = node.value.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{escaped}"'
        return str(node.value).replace("-", "~")

    def _name(self, node: ast.Name) -> str:
        return node.id

    def _attribute(self, node: ast.Attribute) -> str:
        return f"(#{node.attr} {_argument(self.of(node.value))})"

    def _subscript(self, node: ast.Subscript) -> str:
        assert isinstance(node.slice, ast.Constant)
        assert isinstance(node.slice.value, int)
        return f"(#{node.slice.value + 1} {_argument(self.of(node.value))})"

    def _tuple(self, node: ast.Tuple) -> str:
        parts = self.types[node].parts() or (None,) * len(node.elts)
        return f"({', '.join(self._as(each, part) for each, part in zip(node.elts, parts, strict=True))})"

    def _list(self, node: ast.List) -> str:
        colour = self.types[node]
        of = colour.of if isinstance(colour, ListOf) else None
        if not any(isinstance(each, ast.Starred) for each in node.elts):
            return f"[{', '.join(self._as(each, of) for each in node.elts)}]"
        parts = [self.of(e.value) if isinstance(e, ast.Starred) else f"[{self._as(e, of)}]" for e in node.elts]
        return f"({' ^^ '.join(parts)})"

    def _ifexp(self, node: ast.IfExp) -> str:
        colour = self.types[node]
        return f"(if {self.of(node.test)} then {self._as(node.body, colour)} else {self._as(node.orelse, colour)})"

    def _boolop(self, node: ast.BoolOp) -> str:
        word = " andalso " if isinstance(node.op, ast.And) else " orelse "
        return f"({word.join(map(self.of, node.values))})"

    def _unaryop(self, node: ast.UnaryOp) -> str:
        return f"({'not' if isinstance(node.op, ast.Not) else '~'} {_argument(self.of(node.operand))})"

    def _binop(self, node: ast.BinOp) -> str:
        colour = self.types[node]
        if isinstance(colour, ListOf):
            return f"({self.of(node.left)} ^^ {self.of(node.right)})"
        sign = _OPERATORS.get(type(node.op), "+")
        return f"({self._as(node.left, colour)} {sign} {self._as(node.right, colour)})"

    def _compare(self, node: ast.Compare) -> str:
        parts, left = [], node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.In | ast.NotIn):
                found = f"mem {_argument(self.of(right))} {_argument(self.of(left))}"
                parts.append(f"({found})" if isinstance(operator, ast.In) else f"(not ({found}))")
            else:
                parts.append(self._comparison(left, operator, right))
            left = right
        return parts[0] if len(parts) == 1 else f"({' andalso '.join(parts)})"

    def _comparison(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> str:
        is_real = any(isinstance(self.types.get(each), Real) for each in (left, right))
        shown = self.of(left, is_real=is_real), self.of(right, is_real=is_real)
        if is_real and isinstance(operator, ast.Eq | ast.NotEq):
            equal = f"Real.==({shown[0]}, {shown[1]})"
            return equal if isinstance(operator, ast.Eq) else f"(not ({equal}))"
        return f"({shown[0]} {_COMPARISONS[type(operator)]} {shown[1]})"

    def _filtered(self, node: ast.ListComp | ast.GeneratorExp) -> tuple[str, str]:
        """The element with its type, which `#` needs, and the list of those that fulfil the conditions."""
        loop = node.generators[0]
        colour = self.types[loop.iter]
        assert isinstance(loop.target, ast.Name)
        assert isinstance(colour, ListOf)
        is_declared = colour.of.name not in ("list", "product")
        element = f"({loop.target.id}: {colour.of.name})" if is_declared else loop.target.id
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
        wants_real = name in ("exponential", "uniform", "bernoulli", "erlang")
        shown = [
            self.of(each, is_real=wants_real and not (name == "erlang" and at == 0))
            for at, each in enumerate(node.args)
        ]
        called = f"{name}({', '.join(shown)})"
        return f"({called} = 1)" if name == "bernoulli" else called

    def _quantified(self, name: str, node: ast.expr) -> str:
        word = {"any": "List.exists", "all": "List.all"}[name]
        if not isinstance(node, ast.ListComp | ast.GeneratorExp):
            return f"({word} (fn each => each) {_argument(self.of(node))})"
        element, source = self._filtered(node)
        return f"({word} (fn {element} => {self.of(node.elt)}) {source})"

    def _record(self, node: ast.Call, record: RecordOf) -> str:
        fields = dict(record.fields)
        given = [(str(each.arg), self._as(each.value, fields[str(each.arg)])) for each in node.keywords]
        if not node.args:
            return "{" + ", ".join(f"{name}={value}" for name, value in given) + "}"
        text = self.of(node.args[0])
        for name, value in given:
            text = f"({record.name}.set_{name} {text} {_argument(value)})"
        return text
