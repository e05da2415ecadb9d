"""The canonical text of filters, short and in both syntaxes."""

from __future__ import annotations

import pytest

from lavant.broker.filters import parse


@pytest.mark.parametrize(
    ("text", "expression", "triples"),
    [
        ("true", "true", "true"),
        ("false", "false", "false"),
        ("x>300000", "x > 300000", "[x,>,300000]"),
        ("x>=300000.0", "x >= 300000", "[x,>=,300000]"),
        ("x<0.1", "x < 0.1", "[x,<,0.1]"),
        ("x<=0.1", "x <= 0.1", "[x,<=,0.1]"),
        ("x >= 1 and x <= 2", "x between 1 and 2", "[x,>=,1],[x,<=,2]"),
        ("x > 1 and x <= 2", "x > 1 and x <= 2", "[x,>,1],[x,<=,2]"),
        ("x in (2, 1, 2)", "x in (1, 2)", "[x,in,(1,2)]"),
        ("x in (1)", "x = 1", "[x,=,1]"),
        ("not x = 5", "x != 5", "[x,!=,5]"),
        ("x != 5 and x > 0 and x != 7", "x > 0 and x not in (5, 7)", "[x,>,0],[x,not-in,(5,7)]"),
        ("x between 5 and 5", "x = 5", "[x,=,5]"),
        ("x = -0.0", "x = 0", "[x,=,0]"),
        ("x > 0 or x < 0", "x != 0", "[x,!=,0]"),
        ("x not between 1 and 2", "x < 1 or x > 2", "[x,not-between,(1,2)]"),
        ("x = 9007199254740992", "x = 9007199254740992", "[x,=,9007199254740992]"),
        ("x = 1e16", "x = 1e+16", "[x,=,1e+16]"),
        ("x < 1e308 or x >= 1e308", "x >= -1.7976931348623157e+308", "[x,>=,-1.7976931348623157e+308]"),
        ("x = 'it''s'", "x = 'it''s'", "[x,eq,'it''s']"),
        ("x != 'a'", "x != 'a'", "[x,neq,'a']"),
        ("x > 'a'", "x > 'a'", "[x,>,'a']"),
        ("x >= 'a' and x <= 'b'", "x between 'a' and 'b'", "[x,>=,'a'],[x,<=,'b']"),
        ("x >= 'a' and x < 'b'", "x like 'a%'", "[x,str-prefix,'a']"),
        ("x not like 'a%'", "x not like 'a%'", "[x,not-str-prefix,'a']"),
        (r"x like '\%%'", r"x like '\%%'", "[x,str-prefix,'%']"),
        ("x like '%'", "x like '%'", "[x,str-prefix,'']"),
        ("x like '%a' and x > 'b'", "x > 'b' and x like '%a'", "[x,>,'b'],[x,str-suffix,'a']"),
        ("not x like '%a%'", "x not like '%a%'", "[x,not-str-contains,'a']"),
        ("x not like '%a'", "x not like '%a'", "[x,not-str-suffix,'a']"),
        ("x < 'a' or x >= 'c'", "x < 'a' or x >= 'c'", "[x,not-between,('a','b')],[x,not-str-prefix,'b']"),
        ("x = true", "x = true", "[x,eq,true]"),
        ("x != true", "x = false", "[x,eq,false]"),
        ("x in (true, false)", "x in (false, true)", "[x,in,(false,true)]"),
        ("exists(x)", "exists(x)", "[x,isPresent,0]"),
        ("not exists(x)", "not exists(x)", "[x,isAbsent,0]"),
        ('"in" = 1 and "a b" = 2', '"a b" = 2 and "in" = 1', '["a b",=,2],["in",=,1]'),
        ("b = 1 or a = 1", "a = 1 or b = 1", "[a,=,1] or [b,=,1]"),
        ("(x < 1 or x > 2) and y = 1", "(x < 1 or x > 2) and y = 1", "[x,not-between,(1,2)],[y,=,1]"),
    ],
)
def test_the_canonical_text_is_short(text: str, expression: str, triples: str) -> None:
    filter = parse(text)
    assert str(filter) == expression
    assert filter.triples() == triples
    assert parse(expression) == parse(triples) == filter


def test_the_order_of_writing_does_not_show() -> None:
    parts = ["a = 1", "b like '%x'", "not exists(c)"]
    assert len({str(parse(" and ".join(order))) for order in (parts, parts[::-1], parts[1:] + parts[:1])}) == 1
    assert len({parse(" or ".join(order)) for order in (parts, parts[::-1], parts[1:] + parts[:1])}) == 1
