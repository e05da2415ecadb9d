"""Which predicate failed?"""

from __future__ import annotations

from lavant.broker.filters import Explained, explain, parse


def test_each_predicate_is_named_with_its_value() -> None:
    filter = parse("class = 'STOCK' and volume > 300000 and exists(date)")
    assert explain(filter, {"class": "STOCK", "volume": 7}) == [
        Explained("class = 'STOCK'", "STOCK", True),
        Explained("exists(date)", None, False),
        Explained("volume > 300000", 7, False),
    ]


def test_of_alternatives_the_closest_is_explained() -> None:
    filter = parse("a = 1 and b = 1 and c = 1 or d = 1 and e = 1")
    assert explain(filter, {"a": 1, "b": 1, "c": 2}) == [
        Explained("a = 1", 1, True),
        Explained("b = 1", 1, True),
        Explained("c = 1", 2, False),
    ]


def test_several_predicates_on_one_attribute_are_told_apart() -> None:
    filter = parse("x > 'b' and x like '%z' and x not like '%q%'")
    assert explain(filter, {"x": "cq"}) == [
        Explained("x > 'b'", "cq", True),
        Explained("x like '%z'", "cq", False),
        Explained("x not like '%q%'", "cq", False),
    ]


def test_alternatives_on_one_attribute_are_one_predicate() -> None:
    assert explain(parse("x < 1 or x > 2 and x != 5"), {"x": 5}) == [Explained("x < 1 or x > 2 and x != 5", 5, False)]


def test_everything_and_nothing_explain_themselves() -> None:
    assert explain(parse("true"), {}) == [Explained("true", None, True)]
    assert explain(parse("false"), {}) == [Explained("false", None, False)]
