"""What filters mean, by example; `tests/property/test_filter_meaning.py` has the rest."""

from __future__ import annotations

import pytest

from lavant.broker.filters import parse
from lavant.core.publications.attributes import AttributeValue

ABSENT = None


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("x = 5", [5, 5.0], [6, "5", True, ABSENT]),
        ("x != 5", [6, 4.999], [5, 5.0, "5", True, ABSENT]),
        ("x <> 5", [6], [5, ABSENT]),
        ("not (x = 5)", [6], [5, "5", ABSENT]),
        ("not (x > 5)", [5, -1], [6, "a", ABSENT]),
        ("not not x > 5", [6], [5, "a", ABSENT]),
        ("x = 1", [1, 1.0], [True]),
        ("x = true", [True], [1, "true", False, ABSENT]),
        ("x != true", [False], [0, True, ABSENT]),
        ("x in (true, false)", [True, False], [0, 1, ABSENT]),
        ("x = 0", [0, -0.0], [5e-324]),
        ("x = -0.0", [0, -0.0], [-5e-324]),
        ("x > 0", [5e-324], [0, -0.0]),
        ("x between 2 and 3", [2, 2.5, 3], [1.9999999999999998, 3.0000000000000004, "2", ABSENT]),
        ("x not between 2 and 3", [1, 4], [2, 3, "a", ABSENT]),
        ("x between 3 and 2", [], [2, 3]),
        ("x not between 3 and 2", [2, 3], ["a", ABSENT]),
        ("x between 'b' and 'd'", ["b", "cz", "d"], ["a", "da", 3, ABSENT]),
        ("x in (1, 2.5)", [1, 2.5], [2, "1", ABSENT]),
        ("x not in (1, 2.5)", [2], [1, 2.5, "1", ABSENT]),
        ("x in ('a', 'it''s')", ["a", "it's"], ["b", ABSENT]),
        ("x < 'b'", ["", "a", "az", "B", "b"[:0]], ["b", "c", 1, ABSENT]),
        ("x >= 'Z'", ["Z", "a", "ä", "\U0001f600"], ["A", ABSENT]),
        ("x like 'Ya%'", ["Ya", "Yahoo"], ["Yb", "ya", 1, ABSENT]),
        ("x like '%oo'", ["oo", "Yahoo"], ["ooo!", ABSENT]),
        ("x like '%ho%'", ["ho", "Yahoo"], ["h o", ABSENT]),
        ("x like 'IBM'", ["IBM"], ["IBM ", ABSENT]),
        ("x like '%'", ["", "a"], [1, True, ABSENT]),
        ("x like '%%'", ["", "a"], [1]),
        ("x not like '%'", [], ["", 1, ABSENT]),
        (r"x like '100\%%'", ["100%", "100%!"], ["100", "1000"]),
        (r"x like '%\_%'", ["a_b"], ["ab"]),
        (r"x like '\\%'", ["\\"], ["a"]),
        ("x not like 'Ya%'", ["Yb"], ["Ya", 1, ABSENT]),
        ("x not like '%oo'", ["a"], ["oo", ABSENT]),
        ("exists(x)", [0, "", False], [ABSENT]),
        ("not exists(x)", [ABSENT], [0, "", False]),
        ("x = 1 or x = 'a'", [1, "a"], [2, "b", ABSENT]),
        ("not (x = 1 or x = 'a')", [], [1, 2, "a", "b", ABSENT]),
        ("not (x = 1 and x = 'a')", [2, "b"], [1, "a", ABSENT]),
        ("not (exists(x) and x > 5)", [ABSENT, 5], [6, "a"]),
        ("true", [1, ABSENT], []),
        ("not true", [], [1, ABSENT]),
        ("X = 1", [], [1]),
        ("x >= 1.5e3 AND x <= +2E3 Or x = .5", [1500, 2000, 0.5], [1499, 2001]),
        ("[x,=,5]", [5], ["5", ABSENT]),
        ("[x,eq,5]", [5], ["5", ABSENT]),
        ("[x,eq,'a']", ["a"], ["b", ABSENT]),
        ("[x,=,true]", [True], [1]),
        ("[x,neq,'a']", ["b"], ["a", 1, ABSENT]),
        ("[x,!=,5],[x,<>,6]", [4], [5, 6, "a"]),
        ("[x,str-prefix,'Ya']", ["Yahoo"], ["Yb", ABSENT]),
        ("[x,str-suffix,'oo']", ["Yahoo"], ["o", ABSENT]),
        ("[x,str-contains,'ho']", ["Yahoo"], ["ha", ABSENT]),
        ("[x,not-str-prefix,'Y']", ["a"], ["Y", 1, ABSENT]),
        ("[x,not-str-suffix,'Y']", ["a"], ["Y", 1, ABSENT]),
        ("[x,not-str-contains,'Y']", ["a"], ["Y", 1, ABSENT]),
        ("[x,str-prefix,'%']", ["%a"], ["a"]),
        ("[x,isPresent,'00-00-00']", [0, ""], [ABSENT]),
        ("[x,ispresent]", [0, ""], [ABSENT]),
        ("[x,isAbsent,0]", [ABSENT], [0]),
        ("[x,in,(1,2)]", [1, 2], [3]),
        ("[x,not-in,('a','b')]", ["c"], ["a", 3]),
        ("[x,not-between,(1,2)]", [0, 3], [1, 2, "a"]),
        (" [x,>,1] , [x,<,3] or [x,>=,9] ", [2, 9], [1, 3]),
    ],
)
def test_a_filter_matches_these_values_and_no_others(
    text: str, matching: list[AttributeValue | None], others: list[AttributeValue | None]
) -> None:
    filter = parse(text)
    for value in matching:
        assert filter.matches({} if value is None else {"x": value}), value
    for value in others:
        assert not filter.matches({} if value is None else {"x": value}), value


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('"in" = 1', "in"),
        ('"a ""b""" = 1', 'a "b"'),
        ("a.b_1 = 1", "a.b_1"),
        ('"Größe" = 1', "Größe"),
        ("[in,=,1]", "in"),
    ],
)
def test_names_may_be_quoted(text: str, name: str) -> None:
    assert parse(text).matches({name: 1})


def test_both_syntaxes_have_one_meaning() -> None:
    triples = parse("[class,eq,'STOCK'],[volume,>,300000],[name,str-prefix,'Ya'],[date,isPresent,'00-00-00']")
    assert triples == parse("class = 'STOCK' and volume > 300000 and name like 'Ya%' and exists(date)")
    assert hash(triples) == hash(parse(str(triples)))


def test_and_binds_closer_than_or_and_not_closest() -> None:
    assert parse("a = 1 or b = 1 and c = 1") == parse("a = 1 or (b = 1 and c = 1)")
    assert parse("not a = 1 and b = 1") == parse("(not (a = 1)) and b = 1")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("x > 5 and x < 3", 0),
        ("x = 1 and x = 'a'", 0),
        ("x = 1 and not exists(x)", 0),
        ("x like '%a' and x like '%b'", 0),
        ("x like 'a%' and x not like '%a%'", 0),
        ("x = 'ab' and x like '%a'", 0),
        ("x > 5 or x > 7", 1),
        ("x > 5 or x > 7 and y = 1", 1),
        ("x = 1 or x = 2 or x > 5", 1),
        ("x = 1 or y = 1", 2),
        ("x like '%a' or x like '%ba'", 1),
        ("x like '%a' or x like '%b'", 2),
        ("exists(x) or not exists(x)", 1),
        ("class = 'A' and x = 1 or class = 'A' and x = 2", 1),
        ("true or x = 1", 1),
        ("false and x = 1", 0),
    ],
)
def test_the_normal_form_keeps_what_is_needed(text: str, count: int) -> None:
    assert len(parse(text).conjunctions) == count
