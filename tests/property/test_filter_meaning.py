"""The normal form says what three-valued logic on the syntax tree says, and both syntaxes print and read it."""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.unit.broker.filters.oracle import (
    NUMBERS,
    attribute_values,
    filters,
    near,
    predicates,
    publications,
    truth,
    write,
)

from lavant.broker.filters import CANONICAL_LIMITS, Filter, parse
from lavant.broker.filters.algebra.conjunctions import conjoin
from lavant.broker.filters.algebra.constraints import Numbers, Pattern, PatternKind, Present, Strings
from lavant.broker.filters.algebra.intervals import T, complement, contains, intersection, is_subset, union
from lavant.broker.filters.algebra.string_search import SearchBudget
from lavant.broker.filters.explanation import explain
from lavant.broker.filters.language.ast import Node
from lavant.broker.filters.language.expressions import parse_expression
from lavant.broker.filters.limits import FILTER_LIMITS
from lavant.core.errors import InvalidValue
from lavant.core.publications.attributes import AttributeValue

FILTERS = filters(predicates())
ONE_ATTRIBUTE = filters(predicates(names=("x",)), leaves_max=12)
Publications = list[dict[str, AttributeValue]]


@pytest.mark.soak
@given(FILTERS, st.lists(publications(), min_size=1, max_size=8))
def test_a_filter_matches_exactly_where_its_tree_is_true_soak(node: Node, some: Publications) -> None:
    check_meaning(node, some)


@given(FILTERS, st.lists(publications(), min_size=1, max_size=8))
def test_a_filter_matches_exactly_where_its_tree_is_true(node: Node, some: Publications) -> None:
    check_meaning(node, some)


@given(ONE_ATTRIBUTE, st.lists(publications(names=("x",)), min_size=1, max_size=8))
def test_many_predicates_on_one_attribute_match_exactly_where_their_tree_is_true(
    node: Node, some: Publications
) -> None:
    check_meaning(node, some)


def check_meaning(node: Node, some: Publications) -> None:
    filter = parse(write(node))
    for attributes in some:
        expected = truth(node, attributes)
        event(f"truth is {expected}")
        assert filter.matches(attributes) is (expected is True)
        # Why it did or did not match agrees with whether it did.
        assert all(line.held for line in explain(filter, attributes)) is (expected is True)


@given(st.one_of(FILTERS, ONE_ATTRIBUTE))
def test_what_is_printed_reads_back_to_an_equal_filter(node: Node) -> None:
    filter = parse(write(node))
    assert parse(str(filter), CANONICAL_LIMITS) == filter
    assert parse(filter.triples(), CANONICAL_LIMITS) == filter
    assert hash(parse(str(filter), CANONICAL_LIMITS)) == hash(filter)


@given(FILTERS)
def test_the_parser_reads_the_tree_that_was_written(node: Node) -> None:
    read = parse_expression(write(node), FILTER_LIMITS)
    assert write(read) == write(parse_expression(write(read), FILTER_LIMITS))
    for attributes in ({}, {"x": "a", "y": 1.0}, {"x": 1.0, "y": "a", "in": True, "odd name": ""}):
        assert truth(read, attributes) == truth(node, attributes)  # type: ignore[arg-type]


@given(FILTERS)
def test_conjunctions_are_sorted_reduced_and_name_an_attribute_once(node: Node) -> None:
    filter = parse(write(node))
    assert Filter.of(reversed(filter.conjunctions)) == filter
    for conjunction in filter.conjunctions:
        names = [name for name, _ in conjunction.constraints]
        assert names == sorted(set(names))
        for _, constraint in conjunction.constraints:
            if isinstance(constraint, Numbers | Strings):
                check_canonical(constraint)


def check_canonical(constraint: Numbers | Strings) -> None:
    """There is one way to write a set of intervals."""
    flat = [end for interval in constraint.intervals for end in interval]
    inner = flat[1:-1]
    assert flat
    assert None not in inner
    assert inner == sorted(set(inner))  # type: ignore[type-var]
    assert flat[0] not in ("", -max(NUMBERS))


def alternate(ends: list[T], from_start: bool) -> tuple[tuple[T | None, T | None], ...]:
    """Intervals between every other two of the ends, the first without a low end if `from_start`."""
    flat: list[T | None] = [None] if from_start else []
    flat.extend(sorted(ends))
    if len(flat) % 2:
        flat.append(None)
    return tuple(zip(flat[::2], flat[1::2], strict=True))


NUMBER_ENDS = st.lists(st.sampled_from(near(NUMBERS)[1:]), min_size=1, max_size=7, unique=True)
STRING_ENDS = st.lists(
    st.text("\0ab\ud7ff\ue000\U0010ffff", min_size=1, max_size=3), min_size=1, max_size=7, unique=True
)
PATTERNS = st.builds(Pattern, st.sampled_from(PatternKind), st.text("ab%", min_size=1, max_size=3), st.booleans())


@settings(max_examples=300)
@given(NUMBER_ENDS, st.booleans())
def test_any_set_of_numbers_can_be_printed(ends: list[float], from_start: bool) -> None:
    check_round_trip(Numbers(alternate(ends, from_start)))


@settings(max_examples=300)
@given(STRING_ENDS, st.booleans(), st.lists(PATTERNS, max_size=2, unique=True))
def test_any_set_of_strings_can_be_printed(ends: list[str], from_start: bool, patterns: list[Pattern]) -> None:
    check_round_trip(Strings(alternate(ends, from_start), tuple(sorted(patterns))))


def check_round_trip(constraint: Numbers | Strings) -> None:
    conjunction = conjoin([("x", constraint), ("y", Present())], FILTER_LIMITS, SearchBudget())
    filter = Filter(() if conjunction is None else (conjunction,))
    assert parse(str(filter), CANONICAL_LIMITS) == filter
    assert parse(filter.triples(), CANONICAL_LIMITS) == filter


number_sets = st.lists(st.sampled_from(NUMBERS[1:]), max_size=6, unique=True).map(
    lambda ends: tuple(zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False))
)


@given(number_sets, number_sets, st.lists(st.sampled_from(NUMBERS[1:]), max_size=40))
def test_interval_algebra_is_set_algebra(
    left: tuple[tuple[float, float], ...], right: tuple[tuple[float, float], ...], points: list[float]
) -> None:
    both, either, neither = intersection(left, right), union((*left, *right)), complement(union((*left, *right)))
    inside = [value for value in near(NUMBERS) if contains(left, value)]
    for value in near(NUMBERS):
        in_left, in_right = contains(left, value), contains(right, value)
        assert contains(both, value) is (in_left and in_right)
        assert contains(either, value) is (in_left or in_right)
        assert contains(neither, value) is not (in_left or in_right)
    if is_subset(left, right):
        assert all(contains(right, value) for value in inside)


@given(st.lists(st.sampled_from([*near(NUMBERS)]), min_size=1, max_size=60), attribute_values())
def test_long_lists_are_searched_as_short_ones_are(values: list[float], value: AttributeValue) -> None:
    listed = parse(f"x in ({','.join(map(repr, values))})")
    expected = not isinstance(value, bool | str) and value in values
    assert listed.matches({"x": value}) is expected


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_an_error_of_ours(text: str) -> None:
    check_total(text)


TOKENS = [
    "x",
    "and",
    "or",
    "not",
    "in",
    "(",
    ")",
    ",",
    "'a'",
    "'",
    '"',
    "5",
    "-",
    "=",
    "<",
    "like",
    "between",
    "[",
    "]",
]
TOKENS += ["exists", "true", "'a%'", "1e999", "str-prefix", "isPresent", "not-in", "==", "\\", "%", "nan", "\ud800"]


@given(st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join))
def test_any_sequence_of_tokens_is_a_filter_or_an_error_of_ours(text: str) -> None:
    check_total(text)


def check_total(text: str) -> None:
    try:
        filter = parse(text)
    except InvalidValue:
        return
    assert parse(str(filter), CANONICAL_LIMITS) == filter
