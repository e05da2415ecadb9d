"""Splits text into tokens with one compiled regular expression.

A token is just its text. Its first character tells its kind (see `is_word` and friends), and its position is computed
only when an error must point there, so the common case costs one call of `findall`. The time is linear in the text:
blanks are always followed by a token, and an unclosed quote takes the rest of the text.
"""

from __future__ import annotations

import re

from lavant.broker.filters.limits import FilterLimits
from lavant.core.errors import FilterSyntaxError, InvalidValue, LimitExceeded
from lavant.core.publications.attributes import INTEGER_MAX, check_name

_REST = r"""
  | [+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?
  | '[^']*+(?:''[^']*+)*+' | '.*
  | "[^"]*+(?:""[^"]*+)*+" | ".*
  | <=|>=|<>|!=|==
  | \S
)"""
EXPRESSION = re.compile(r"\s*( [A-Za-z_][A-Za-z0-9_.]*" + _REST, re.VERBOSE | re.DOTALL)
TRIPLES = re.compile(r"\s*( [A-Za-z_][A-Za-z0-9_.-]*" + _REST, re.VERBOSE | re.DOTALL)  # operators such as str-prefix

END = ""
_WORD_START = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_NUMBER_START = frozenset("0123456789+-.")
_INTEGER_DIGITS_MAX = len(str(INTEGER_MAX))
_NOT_FINITE = frozenset(("nan", "inf", "infinity"))


def is_word(token: str) -> bool:
    return token[:1] in _WORD_START


def is_number(token: str) -> bool:
    return token[:1] in _NUMBER_START and token not in ("+", "-", ".")


def is_string(token: str) -> bool:
    return token[:1] == "'" and token.count("'") % 2 == 0


def is_quoted_name(token: str) -> bool:
    return token[:1] == '"' and token.count('"') % 2 == 0


def is_unclosed(token: str) -> bool:
    return token[:1] in ("'", '"') and token.count(token[0]) % 2 == 1


class TokenReader:
    """Reads tokens one by one, extracts values and names, and makes errors that point at them."""

    __slots__ = ("_grammar", "_index", "limits", "text", "token", "tokens")

    def __init__(self, text: str, grammar: re.Pattern[str], limits: FilterLimits) -> None:
        check_text(text, limits)
        self.text = text
        self.limits = limits
        self._grammar = grammar
        self.tokens = grammar.findall(text.rstrip())
        self.tokens.append(END)
        self._index = 0
        self.token: str = self.tokens[0]

    def advance(self) -> str:
        """Step over the current token and return it."""
        token = self.token
        self._index += 1
        self.token = self.tokens[self._index]
        return token

    def expect(self, token: str, where: str) -> None:
        if self.token != token:
            raise self.error(f"expected '{token}' {where}, found {self.found()}")
        self.advance()

    def previous(self) -> str:
        return shorten(self.tokens[self._index - 1])

    def found(self) -> str:
        return describe(self.token)

    def error(self, problem: str, *, back: int = 0) -> FilterSyntaxError:
        """An error at the current token, or `back` tokens before it."""
        index = self._index - back
        if is_unclosed(self.tokens[index]):
            quote = self.tokens[index][0]
            kind = "string" if quote == "'" else "attribute name"
            problem = f"{kind} is not closed: expected another {quote}; write it twice to mean itself"
        return FilterSyntaxError(self.text, self._position(index), problem)

    def _position(self, index: int) -> int:
        if index == len(self.tokens) - 1:
            return len(self.text.rstrip())
        for number, match in enumerate(self._grammar.finditer(self.text.rstrip())):
            if number == index:
                return match.start(1)
        raise AssertionError("findall and finditer see the same tokens")

    def name(self) -> str:
        """The attribute name at the current token, which is a word or in double quotes."""
        token = self.advance()
        name = token[1:-1].replace('""', '"') if token[0] == '"' else token
        try:
            return check_name(name)
        except InvalidValue as error:
            raise self.error(str(error), back=1) from None

    def string(self) -> str:
        token = self.advance()
        value = token[1:-1].replace("''", "'")
        size_bytes = len(value) if value.isascii() else len(value.encode())
        if size_bytes > self.limits.string_bytes_max:
            problem = f"string has {size_bytes} bytes, at most {self.limits.string_bytes_max} are allowed"
            raise self.error(problem, back=1)
        return value

    def number(self) -> float:
        token = self.advance()
        digits = token.lstrip("+-")
        if digits.isdigit():
            significant = digits.lstrip("0")
            if len(significant) > _INTEGER_DIGITS_MAX or int(significant or "0") > INTEGER_MAX:
                problem = (
                    f"integer {shorten(token)} is beyond ±2^53, where doubles skip integers; compare with a string"
                )
                raise self.error(problem, back=1)
        value = float(token) + 0.0  # + 0.0: never -0.0
        if value - value != 0.0:
            raise self.error(f"number {shorten(token)} is beyond the range of doubles (±1.8e308)", back=1)
        return value

    def value(self, after: str) -> str | float | bool:
        """The string, number or boolean at the current token."""
        token = self.token
        if is_string(token):
            return self.string()
        if is_number(token):
            return self.number()
        word = token.lower()
        if word in ("true", "false"):
            self.advance()
            return word == "true"
        if word.lstrip("+-") in _NOT_FINITE:
            raise self.error(f"'{token}' is not a value: no attribute is NaN or infinite")
        if is_quoted_name(token):
            raise self.error(f"a value stands in single quotes: '{shorten(token[1:-1])}'")
        if is_word(token) and word not in KEYWORDS:
            raise self.error(f"expected a value after {after}, found {self.found()}; quote strings: '{shorten(token)}'")
        raise self.error(f"expected a value after {after}, found {self.found()}")

    def values(self, after: str) -> tuple[str | float | bool, ...]:
        """A parenthesised list of values of one type."""
        self.expect("(", f"and a list of values after {after}")
        values = [self.value("'('")]
        kind = type(values[0])
        while self.token == ",":
            self.advance()
            values.append(self.value("','"))
            if type(values[-1]) is not kind:
                problem = f"a list holds values of one type, found a {KINDS[type(values[-1])]} after a {KINDS[kind]}"
                raise self.error(problem, back=1)
            if len(values) > self.limits.list_values_max:
                raise self.error(f"a list holds at most {self.limits.list_values_max} values, this one more", back=1)
        self.expect(")", "or ',' in a list of values")
        return tuple(values)


KINDS = {str: "string", float: "number", bool: "boolean"}
KEYWORDS = frozenset(("and", "or", "not", "in", "like", "between", "exists", "true", "false"))


def check_text(text: str, limits: FilterLimits) -> None:
    """Raise unless the text is short enough and has no lone surrogates."""
    if len(text) > limits.text_length_max:
        raise LimitExceeded(f"a filter has {len(text)} characters, at most {limits.text_length_max} are allowed")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            shown = text.encode("ascii", "replace").decode()
            raise FilterSyntaxError(shown, error.start, "a lone surrogate is not a character; remove it") from None


def describe(token: str) -> str:
    """The token as an error names it."""
    if token == END:
        return "the end"
    if is_string(token):
        return f"the string {shorten(token)}"
    if is_number(token):
        return f"the number {shorten(token)}"
    return f"'{shorten(token)}'"


def shorten(token: str) -> str:
    return token if len(token) <= 40 else token[:39] + "…"
