"""The expression syntax: `class = 'STOCK' and volume > 300000 and not exists(halted)`.

    or-expression    and-expression { "or" and-expression }
    and-expression   unary { "and" unary }
    unary            "not" unary | "(" or-expression ")" | "exists" "(" name ")" | "true" | "false" | predicate
    predicate        name ( "=" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) value
                     name [ "not" ] "between" value "and" value
                     name [ "not" ] "in" "(" value { "," value } ")"
                     name [ "not" ] "like" string

Recursive descent. Keywords are case-insensitive; attribute names are not.
"""

from __future__ import annotations

from lavant.broker.filters.language.ast import (
    And,
    Between,
    Compare,
    ComparisonOperator,
    Exists,
    In,
    Literal,
    Node,
    Not,
    Or,
)
from lavant.broker.filters.language.patterns import PatternProblem, read_like
from lavant.broker.filters.language.tokens import (
    END,
    EXPRESSION,
    KEYWORDS,
    TokenReader,
    is_number,
    is_quoted_name,
    is_string,
    is_word,
    shorten,
)
from lavant.broker.filters.limits import FilterLimits

_OPERATORS = {operator.value: operator for operator in ComparisonOperator} | {"<>": ComparisonOperator.NE}
_EQUALITY = (ComparisonOperator.EQ, ComparisonOperator.NE)


def parse_expression(text: str, limits: FilterLimits) -> Node:
    parser = _Parser(text, EXPRESSION, limits)
    node = parser.disjunction()
    if parser.token != END:
        raise parser.trailing()
    return node


class _Parser(TokenReader):
    __slots__ = ("_depth", "_predicates")

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._depth = 0
        self._predicates = 0

    def disjunction(self) -> Node:
        first = self._conjunction()
        if self.token.lower() != "or":
            return first
        operands = [first]
        while self.token.lower() == "or":
            self.advance()
            operands.append(self._conjunction())
        return Or(tuple(operands))

    def _conjunction(self) -> Node:
        first = self._unary()
        if self.token.lower() != "and":
            return first
        operands = [first]
        while self.token.lower() == "and":
            self.advance()
            operands.append(self._unary())
        return And(tuple(operands))

    def _unary(self) -> Node:
        token = self.token
        if token == "(":
            return self._parenthesised()
        if not is_word(token):
            return self._predicate()
        match token.lower():
            case "not":
                self._descend()
                self.advance()
                operand = self._unary()
                self._depth -= 1
                return Not(operand)
            case "exists":
                return self._exists()
            case "true" | "false" as word:
                self.advance()
                return Literal(word == "true")
            case _:
                return self._predicate()

    def _parenthesised(self) -> Node:
        self._descend()
        self.advance()
        node = self.disjunction()
        if self.token != ")":
            raise self.trailing() if self.token != END else self.error("expected ')' to close '(', found the end")
        self.advance()
        self._depth -= 1
        return node

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > self.limits.depth_max:
            raise self.error(
                f"parentheses and 'not' go {self._depth} deep, at most {self.limits.depth_max} are allowed"
            )

    def _exists(self) -> Node:
        self._count()
        self.advance()
        self.expect("(", "after 'exists'")
        name = self._attribute("after '('")
        self.expect(")", "after the attribute name")
        return Exists(name)

    def _predicate(self) -> Node:
        self._count()
        name = self._attribute("")
        operator = _OPERATORS.get(self.token)
        if operator is not None:
            return self._comparison(name, operator)
        word = self.token.lower()
        negated = word == "not"
        if negated:
            self.advance()
            word = self.token.lower()
        node: Node
        match word:
            case "in":
                self.advance()
                node = In(name, self.values(f"'{word}'"))
            case "like":
                node = self._like(name)
            case "between":
                node = self._between(name)
            case _:
                raise self._no_operator(name, negated)
        return Not(node) if negated else node

    def _comparison(self, name: str, operator: ComparisonOperator) -> Node:
        symbol = self.advance()
        value = self.value(f"'{symbol}'")
        if value.__class__ is bool and operator not in _EQUALITY:
            raise self.error(f"booleans have no order: use = or != instead of '{symbol}'", back=2)
        return Compare(name, operator, value)

    def _like(self, name: str) -> Node:
        self.advance()
        if not is_string(self.token):
            raise self.error(f"expected a pattern in single quotes after 'like', found {self.found()}")
        try:
            return read_like(name, self.string())
        except PatternProblem as problem:
            raise self.error(str(problem), back=1) from None

    def _between(self, name: str) -> Node:
        self.advance()
        low = self.value("'between'")
        if self.token.lower() != "and":
            raise self.error(f"expected 'and' between the two ends of 'between', found {self.found()}")
        self.advance()
        high = self.value("'and'")
        if isinstance(low, bool) or isinstance(high, bool):
            raise self.error("booleans have no order: 'between' takes two numbers or two strings", back=1)
        if type(low) is not type(high):
            raise self.error("'between' takes two numbers or two strings, found one of each", back=1)
        return Between(name, low, high)

    def _attribute(self, where: str) -> str:
        token = self.token
        if is_quoted_name(token) or (is_word(token) and token.lower() not in KEYWORDS):
            return self.name()
        problem = f"expected an attribute name{' ' + where if where else ''}, found {self.found()}"
        if token.lower() in KEYWORDS:
            problem += f'; an attribute of that name is written "{token}"'
        elif is_string(token) or is_number(token):
            problem += "; the attribute stands on the left, its value on the right"
        raise self.error(problem)

    def _count(self) -> None:
        self._predicates += 1
        if self._predicates > self.limits.predicates_max:
            raise self.error(f"a filter has at most {self.limits.predicates_max} predicates, this one has more")

    def _no_operator(self, name: str, negated: bool) -> Exception:
        if negated:
            return self.error(f"expected 'in', 'like' or 'between' after 'not', found {self.found()}")
        if self.token == "==":
            return self.error("'==' is not an operator: use =")
        if self.token.lower() == "is":
            return self.error(f"'is' is not an operator: use exists({shorten(name)}) or not exists({shorten(name)})")
        return self.error(
            f"expected an operator after '{shorten(name)}', found {self.found()}; "
            "operators are = != < <= > >= in, like, between, and not before the last three"
        )

    def trailing(self) -> Exception:
        return self.error(f"expected 'and' or 'or' after {self.previous()}, found {self.found()}")
