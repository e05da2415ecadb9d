"""Covering and intersection, by example; `tests/property/test_covering.py` has the rest."""

from __future__ import annotations

import pytest

from lavant.broker.filters import covers, equivalent, intersects, parse
from lavant.broker.filters.algebra.constraints import Pattern, PatternKind, Strings
from lavant.broker.filters.algebra.string_search import SearchBudget, search


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("a > 5", "a > 9"),
        ("true", "x = 1"),
        ("x = 1", "false"),
        ("class = 'STOCK'", "class = 'STOCK' and symbol = 'YHOO'"),
        ("exists(x)", "x like '%a'"),
        ("exists(x)", "x = true"),
        ("x != 5", "x in (4, 6)"),
        ("x like '%oo'", "x like '%hoo'"),
        ("x like '%o%'", "x like '%hoo' and y = 1"),
        ("x like '%a%'", "x like 'ba%'"),
        ("x not like '%ab%'", "x not like '%b%'"),
        ("x > 'b' and x like '%b'", "x like 'b%' and x like '%bb'"),
        ("x like '%ab%' or y = 1", "x like '%a%' and x like '%ab' or y = 1 and z = 1"),
        ("x < 5 or x >= 5", "x != 7"),
    ],
)
def test_one_covers_the_other_but_not_the_reverse(outer: str, inner: str) -> None:
    assert covers(parse(outer), parse(inner))
    assert not covers(parse(inner), parse(outer))
    assert not equivalent(parse(inner), parse(outer))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "y = 1"),
        ("x = 1", "x = true"),
        ("x = 1", "x = '1'"),
        ("x != 1", "not exists(x)"),
        ("x like 'a%'", "x like '%a'"),
    ],
)
def test_neither_covers_the_other(one: str, other: str) -> None:
    assert not covers(parse(one), parse(other))
    assert not covers(parse(other), parse(one))


def test_filters_with_different_normal_forms_may_mean_the_same() -> None:
    one, other = parse("x like 'a%' and x like '%a%'"), parse("x like 'a%'")
    assert one != other
    assert equivalent(one, other)


def test_alternatives_that_cover_only_together_are_not_found_to() -> None:
    """Documented: sound, not complete."""
    assert not covers(parse("x < 5 and a = 1 or x >= 5"), parse("a = 1 and x > 0"))


@pytest.mark.parametrize(
    ("advertised", "wanted", "expected"),
    [
        ("a > 1", "a > 5", True),
        ("a > 1", "a < 1", False),
        ("class = 'STOCK' and exists(volume)", "volume > 1000", True),
        ("class = 'STOCK' and exists(volume)", "not exists(volume)", False),
        ("class = 'STOCK'", "further = 1", True),
        ("x like '%ab'", "x like 'ba%'", True),
        ("x like '%ab'", "x < 'a'", True),
        ("x like '%ab' and x not like '%b%'", "true", False),
        ("x like 'a%'", "x like 'b%'", False),
        ("x = 1 or y = 2", "y = 2 and x = 3", True),
    ],
)
def test_a_subscription_meets_an_advertisement(advertised: str, wanted: str, expected: bool) -> None:
    assert intersects(parse(advertised), parse(wanted)) is expected
    assert intersects(parse(wanted), parse(advertised)) is expected


def contains(literal: str) -> Pattern:
    return Pattern(PatternKind.CONTAINS, literal)


def test_the_search_finds_a_shortest_string() -> None:
    found = search(Strings((("b", "c"),), (contains("ab"), contains("bb"))), SearchBudget())
    assert found == "babb"


def test_the_search_knows_when_there_is_none() -> None:
    without = Pattern(PatternKind.CONTAINS, "b", negated=True)
    assert search(Strings((("b", "c"),), (without,)), SearchBudget()) is False


def test_the_search_never_tries_surrogates() -> None:
    below = Pattern(PatternKind.CONTAINS, "\ud7ff", negated=True)
    above = Pattern(PatternKind.CONTAINS, "\ue000", negated=True)
    assert search(Strings((("\ud7ff", "\ue001"),), (below, above)), SearchBudget()) is False


def test_where_the_search_gives_up_the_answer_is_the_safe_one() -> None:
    # Each 'a' needs another letter after it, and no letter may be followed by 'a': one such pair fits, not eight.
    pairs = " and ".join(f"x like '%a{letter}%'" for letter in "bcdefghijk")
    barred = " and ".join(f"x not like '%{letter}a%'" for letter in "bcde")
    hard = parse(f"{pairs} and {barred}")
    assert search(hard.conjunctions[0].constraints[0][1], SearchBudget(1000)) is None  # type: ignore[arg-type]
    assert not covers(parse("x like '%b'"), hard)
    assert intersects(parse("x like '%b'"), hard)
    assert covers(hard, hard)
