"""Reaching a limit is a clear error, and comes before the work."""

from __future__ import annotations

import pytest

from lavant.broker.filters import CANONICAL_LIMITS, FILTER_LIMITS, FilterLimits, parse
from lavant.core.errors import FilterSyntaxError, LimitExceeded


def test_a_text_may_be_long_but_not_too_long() -> None:
    assert parse("x = 5" + " " * (FILTER_LIMITS.text_length_max - 5)).matches({"x": 5})
    with pytest.raises(LimitExceeded, match="a filter has 8193 characters, at most 8192 are allowed"):
        parse("x = 5" + " " * (FILTER_LIMITS.text_length_max - 4))


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("not ", ""), ("not (", ")")])
def test_nesting_has_a_bound(opening: str, closing: str) -> None:
    levels = FILTER_LIMITS.depth_max // opening.count("(") if opening == "(" else FILTER_LIMITS.depth_max
    levels = levels // 2 if opening == "not (" else levels
    parse(opening * levels + "x = 5" + closing * levels)
    with pytest.raises(FilterSyntaxError, match="parentheses and 'not' go 33 deep, at most 32 are allowed"):
        parse(opening * (levels + 1) + "x = 5" + closing * (levels + 1))


def test_nesting_is_about_depth_not_number() -> None:
    assert parse(" and ".join(["not (x = 5)"] * 100)).matches({"x": 4})


@pytest.mark.parametrize(("one", "joint", "word"), [("x>1", " or ", "predicates"), ("[x,>,1]", ",", "triples")])
def test_predicates_have_a_bound(one: str, joint: str, word: str) -> None:
    parse(joint.join([one] * 256))
    with pytest.raises(FilterSyntaxError, match=f"a filter has at most 256 {word}"):
        parse(joint.join([one] * 257))


def test_lists_have_a_bound() -> None:
    values = [str(value) for value in range(1025)]
    assert parse(f"x in ({','.join(values[:1024])})").matches({"x": 1023})
    with pytest.raises(FilterSyntaxError, match="a list holds at most 1024 values"):
        parse(f"x in ({','.join(values)})")


def test_strings_have_a_bound_in_bytes() -> None:
    assert parse(f"x = '{'ä' * 512}'").matches({"x": "ä" * 512})
    with pytest.raises(FilterSyntaxError, match="string has 1026 bytes, at most 1024 are allowed"):
        parse(f"x = '{'ä' * 513}'")


def test_patterns_of_one_attribute_have_a_bound() -> None:
    patterns = [f"x like '%{number:02}%'" for number in range(17)]
    parse(" and ".join(patterns[:16]))
    parse(" or ".join(patterns))  # that is one pattern in each of 17 conjunctions
    with pytest.raises(LimitExceeded, match=r"attribute 'x' has 17 suffix and contains patterns .* at most 16"):
        parse(" and ".join(patterns))


def test_expansion_is_bounded_while_it_grows() -> None:
    clauses = [f"(a{number} = 1 or b{number} = 1)" for number in range(40)]
    assert len(parse(" and ".join(clauses[:6])).conjunctions) == 64
    for count in (7, 40):  # 2^40 conjunctions would not end
        with pytest.raises(LimitExceeded, match="expands into more than 64 alternatives"):
            parse(" and ".join(clauses[:count]))
    with pytest.raises(LimitExceeded, match="expands into more than 64 alternatives"):
        parse("not (" + " or ".join(f"(a{number} = 1 and b{number} = 1)" for number in range(40)) + ")")


def test_alternatives_on_one_attribute_count_once() -> None:
    assert len(parse(" or ".join(f"x = {number}" for number in range(256))).conjunctions) == 1
    assert len(parse(" or ".join(f"x = {number} and y = 'a'" for number in range(128))).conjunctions) == 1


def test_limits_are_arguments() -> None:
    strict = FilterLimits(predicates_max=1)
    parse("x = 1", strict)
    with pytest.raises(FilterSyntaxError, match="at most 1 predicates"):
        parse("x = 1 and y = 2", strict)


def test_what_a_filter_at_the_limits_prints_can_be_read() -> None:
    values = ",".join(map(str, range(1, 600)))
    clauses = " and ".join(f"(a{number}=1 or b{number}=1)" for number in range(6))
    large = parse(f"x not in ({values}) and {clauses}")
    assert len(str(large)) > FILTER_LIMITS.text_length_max
    assert parse(str(large), CANONICAL_LIMITS) == large
    assert parse(large.triples(), CANONICAL_LIMITS) == large
