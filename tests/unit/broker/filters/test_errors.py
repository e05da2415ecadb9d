"""What people see who write a filter wrong."""

from __future__ import annotations

import pytest

from lavant.broker.filters import parse
from lavant.core.errors import FilterSyntaxError

OPERATORS = "operators are = != < <= > >= in, like, between, and not before the last three"
PATTERNS = r"patterns are 'x', 'x%', '%x', '%x%' and '%', where \% \_ \\ stand for the characters themselves"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "class = 'STOCK' and volume > and price < 5",
            "expected a value after '>', found 'and'\n"
            "  class = 'STOCK' and volume > and price < 5\n"
            "                               ^",
        ),
        (
            "symbol = IBM",
            "expected a value after '=', found 'IBM'; quote strings: 'IBM'\n"
            "  symbol = IBM\n"
            "           ^",
        ),
        (
            "symbol = 'IBM and volume > 5",
            "string is not closed: expected another '; write it twice to mean itself\n"
            "  symbol = 'IBM and volume > 5\n"
            "           ^",
        ),
        (
            "volume == 5",
            "'==' is not an operator: use =\n"
            "  volume == 5\n"
            "         ^",
        ),
        (
            "name like 'a%b'",
            f"'%' in the middle of a pattern is not supported; {PATTERNS}\n"
            "  name like 'a%b'\n"
            "            ^",
        ),
        (
            "volume > 5 price < 3",
            "expected 'and' or 'or' after 5, found 'price'\n"
            "  volume > 5 price < 3\n"
            "             ^",
        ),
        (
            "[class,eq,'STOCK'],[volume,>>,5]",
            "expected ',' after '>', found '>'\n"
            "  [class,eq,'STOCK'],[volume,>>,5]\n"
            "                              ^",
        ),
        (
            "a = 1 and\n  (b = 2 or c ~ 3)",
            f"expected an operator after 'c', found '~'; {OPERATORS}\n"
            "    (b = 2 or c ~ 3)\n"
            "                ^",
        ),
    ],
)  # fmt: skip
def test_an_error_shows_the_place_and_what_to_do(text: str, message: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 0, "the filter is empty; to accept everything write: true"),
        ("  ", 2, "the filter is empty"),
        ("volume", 6, "expected an operator after 'volume', found the end"),
        ("volume >", 8, "expected a value after '>', found the end"),
        ("volume 5", 7, "expected an operator after 'volume', found the number 5"),
        ("5 < volume", 0, "expected an attribute name, found the number 5; the attribute stands on the left"),
        ("'a' = x", 0, "expected an attribute name, found the string 'a'; the attribute stands on the left"),
        ("in = 5", 0, "expected an attribute name, found 'in'; an attribute of that name is written \"in\""),
        ("x = nan", 4, "'nan' is not a value: no attribute is NaN or infinite"),
        ("x < Infinity", 4, "'Infinity' is not a value"),
        ("x = 1e999", 4, "number 1e999 is beyond the range of doubles"),
        ("x = 9007199254740993", 4, "integer 9007199254740993 is beyond ±2^53, where doubles skip integers"),
        ("x = -" + "9" * 5000, 4, "integer -99999"),
        ('x = "a"', 4, "a value stands in single quotes: 'a'"),
        ('"x = 5', 0, "attribute name is not closed"),
        ("x = 'it''s", 4, "string is not closed"),
        ("x is null", 2, "'is' is not an operator: use exists(x) or not exists(x)"),
        ("x < true", 2, "booleans have no order: use = or != instead of '<'"),
        ("x between true and false", 19, "booleans have no order"),
        ("x between 1 and 'a'", 16, "'between' takes two numbers or two strings, found one of each"),
        ("x between 1 or 2", 12, "expected 'and' between the two ends of 'between', found 'or'"),
        ("x in (1, 'a')", 9, "a list holds values of one type, found a string after a number"),
        ("x in (1, true)", 9, "a list holds values of one type, found a boolean after a number"),
        ("x in ()", 6, "expected a value after '(', found ')'"),
        ("x in 1", 5, "expected '(' and a list of values after 'in', found the number 1"),
        ("x in (1 2)", 8, "expected ')' or ',' in a list of values, found the number 2"),
        ("x not 5", 6, "expected 'in', 'like' or 'between' after 'not', found the number 5"),
        ("x like 5", 7, "expected a pattern in single quotes after 'like', found the number 5"),
        ("x like 'a_'", 7, r"'_' (any one character) is not supported, write \_ for the character itself"),
        (r"x like 'a\b'", 7, r"'\' stands before %, _ or \ only"),
        ("(x = 1", 6, "expected ')' to close '(', found the end"),
        ("x = 1)", 5, "expected 'and' or 'or' after 1, found ')'"),
        ("(x = 1 y", 7, "expected 'and' or 'or' after 1, found 'y'"),
        ("exists x", 7, "expected '(' after 'exists', found 'x'"),
        ("exists(5)", 7, "expected an attribute name after '(', found the number 5"),
        ("x = 5 and", 9, "expected an attribute name, found the end"),
        ("x = 5 and € = 3", 10, "expected an attribute name, found '€'"),
        ('"@id" = 5', 0, "attribute name '@id' starts with '@'"),
        ('"" = 5', 0, "an attribute name must not be empty"),
        ('"a\nb" = 5', 0, "holds a control character"),
        ("x" * 129 + " = 5", 0, "has 129 characters, at most 128 are allowed"),
        ("x = '\ud800'", 5, "a lone surrogate is not a character"),
        ("[x,>]", 4, "expected ',' after '>', found ']'"),
        ("[x,>,5", 6, "expected ']' to end the triple, found the end"),
        ("[x,like,'a']", 3, "expected an operator, found 'like'; operators are eq, neq,"),
        ("[x,==,5]", 3, "expected an operator, found '=='; use ="),
        ("[x,str-prefix,5]", 14, "expected a string in single quotes after 'str-prefix', found the number 5"),
        ("[x,<,true]", 3, "booleans have no order: use eq or neq instead of '<'"),
        ("[x,not-between,(1,2,3)]", 21, "'not-between' takes two numbers or two strings in parentheses"),
        ("[x,eq,IBM]", 6, "expected a value after 'eq', found 'IBM'; quote strings: 'IBM'"),
        ("[5,eq,6]", 1, "expected an attribute name after '[', found the number 5"),
        ("[x,eq,6] and [y,eq,5]", 9, "expected ',' or 'or' after ']', found 'and'"),
        ("[x,eq,6] or y = 5", 12, "expected '[' to begin a triple, found 'y'"),
    ],
)
def test_an_error_says_what_was_found_and_what_was_expected(text: str, position: int, problem: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert problem in caught.value.problem
    assert caught.value.position == position
