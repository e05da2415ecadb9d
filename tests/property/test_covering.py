"""Covering and intersection against enumeration of a universe that is small, but large enough to decide.

Filters draw on few values, so the universe of one attribute is: absent, the booleans, the numbers drawn with their
neighbours and midpoints, and all short strings over the letters drawn, one above them and, at the start where order is
decided, one below. The set of values for which a predicate is true is a bit mask over that universe, and so is the set
for which it is false.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.unit.broker.filters.oracle import NUMBERS, STRINGS, filters, near, predicate_truth, predicates, write

from lavant.broker.filters import Filter, covers, equivalent, intersects, parse
from lavant.broker.filters.algebra.constraints import Pattern, PatternKind, Strings
from lavant.broker.filters.algebra.string_search import SearchBudget, search
from lavant.broker.filters.language.ast import (
    And,
    Between,
    Compare,
    ComparisonOperator,
    Exists,
    In,
    Like,
    LikeKind,
    Literal,
    Node,
    Not,
    Or,
    Predicate,
)
from lavant.core.publications.attributes import AttributeValue

LITERALS = ("a", "b", "ab", "ba", "aa", "bb")


def strings_over(letters: str, length_max: int) -> list[str]:
    return ["".join(word) for length in range(length_max + 1) for word in product(letters, repeat=length)]


UNIVERSE: list[AttributeValue | None] = [
    None,
    False,
    True,
    *near(NUMBERS),
    *sorted({start + rest for start in strings_over("\0abc", 2) for rest in strings_over("abc", 6)}),
]
ALL = (1 << len(UNIVERSE)) - 1


_known: dict[str, tuple[int, int]] = {}


def masks(predicate: Predicate) -> tuple[int, int]:
    """Where in the universe the predicate is true, and where it is false."""
    key = repr(predicate)  # not the predicate: x = 0 and x = false are equal in Python
    if key not in _known:
        truths = [predicate_truth(predicate, value) for value in UNIVERSE]
        _known[key] = _mask(truths, True), _mask(truths, False)
    return _known[key]


def _mask(truths: list[bool | None], wanted: bool) -> int:
    return int("".join("1" if truth is wanted else "0" for truth in reversed(truths)), 2)


def true_and_false(node: Node) -> tuple[int, int]:
    """The masks of a filter on the one attribute x."""
    match node:
        case Literal(value):
            return (ALL, 0) if value else (0, ALL)
        case Not(operand):
            true, false = true_and_false(operand)
            return false, true
        case And(operands) | Or(operands):
            trues, falses = zip(*map(true_and_false, operands), strict=True)
            meet, join = (trues, falses) if isinstance(node, And) else (falses, trues)
            all_of, any_of = ALL, 0
            for mask in meet:
                all_of &= mask
            for mask in join:
                any_of |= mask
            return (all_of, any_of) if isinstance(node, And) else (any_of, all_of)
        case _:
            return masks(node)


X = predicates(names=("x",), strings=STRINGS, literals=LITERALS)
ON_X = filters(X, leaves_max=4)
LIKE_ON_X = st.builds(Like, st.just("x"), st.sampled_from(LikeKind), st.sampled_from(LITERALS))
STRINGS_ON_X = st.one_of(
    st.builds(Compare, st.just("x"), st.sampled_from(ComparisonOperator), st.sampled_from(STRINGS)),
    st.builds(Between, st.just("x"), st.sampled_from(STRINGS), st.sampled_from(STRINGS)),
    LIKE_ON_X,
    LIKE_ON_X,
)
PATTERNS_ON_X = st.lists(st.one_of(STRINGS_ON_X, st.builds(Not, STRINGS_ON_X)), min_size=1, max_size=3).map(
    lambda leaves: And(tuple(leaves))
)
EITHER = st.one_of(ON_X, PATTERNS_ON_X)


def test_all_pairs_of_predicates_are_decided_exactly() -> None:
    leaves: list[Node] = [
        *(Compare("x", operator, value) for operator in ComparisonOperator for value in (*NUMBERS, *STRINGS)),
        *(Like("x", kind, literal) for kind in LikeKind for literal in ("", *LITERALS)),
        *(Compare("x", ComparisonOperator.EQ, value) for value in (False, True)),
        *(In("x", values) for values in ((False, True), ("a", "ab", "b"), (0.0, 1.0))),
        Between("x", "a", "b"),
        Exists("x"),
    ]
    leaves += [Not(leaf) for leaf in leaves]
    known = [(parse(write(leaf)), true_and_false(leaf)[0]) for leaf in leaves]
    for (left, true_left), (right, true_right) in product(known, repeat=2):
        assert covers(left, right) is (true_right & ~true_left == 0), (str(left), str(right))
        assert intersects(left, right) is bool(true_left & true_right), (str(left), str(right))


WORDS = strings_over("ab\0", 7)
ENDS = st.lists(st.text("ab\0", min_size=1, max_size=3), max_size=4, unique=True).map(sorted)
PATTERNS = st.builds(Pattern, st.sampled_from(PatternKind), st.text("ab", min_size=1, max_size=4), st.booleans())


@settings(max_examples=200)
@given(ENDS, st.booleans(), st.lists(PATTERNS, min_size=1, max_size=3, unique=True))
def test_the_search_finds_a_shortest_string_if_there_is_one(
    ends: list[str], from_start: bool, patterns: list[Pattern]
) -> None:
    flat = [*([None] if from_start else []), *ends]
    flat += [None] if len(flat) % 2 else []
    strings = Strings(tuple(zip(flat[::2], flat[1::2], strict=True)), tuple(sorted(patterns)))
    expected = next((word for word in WORDS if strings.holds(word)), None)
    found = search(strings, SearchBudget())
    event(f"found: {type(found).__name__}")
    assert found is not None
    if expected is not None:
        assert isinstance(found, str)
        assert len(found) <= len(expected)
    if isinstance(found, str):
        assert strings.holds(found)


@given(EITHER, EITHER)
def test_covering_and_intersection_are_those_of_the_sets(f: Node, g: Node) -> None:
    check(f, g)


@settings(max_examples=300)
@given(PATTERNS_ON_X, PATTERNS_ON_X)
def test_patterns_and_intervals_of_strings_are_decided_exactly(f: Node, g: Node) -> None:
    check(f, g)


@pytest.mark.soak
@given(EITHER, EITHER)
def test_covering_and_intersection_are_those_of_the_sets_soak(f: Node, g: Node) -> None:
    check(f, g)


def check(f: Node, g: Node) -> None:
    left, right = parse(write(f)), parse(write(g))
    true_left, true_right = true_and_false(f)[0], true_and_false(g)[0]
    assert bool(left.conjunctions) is bool(true_left), "satisfiable exactly if something matches"
    assert intersects(left, right) is intersects(right, left) is bool(true_left & true_right)
    subset = true_right & ~true_left == 0
    event(f"covers: {subset}")
    if len(left.conjunctions) <= 1 or not subset:
        assert covers(left, right) is subset
        assert equivalent(left, right) is (subset and covers(right, left))
    assert covers(left, left)
    assert equivalent(left, left)


TWO = st.tuples(PATTERNS_ON_X | ON_X, ON_X)


@given(TWO, TWO)
def test_conjunctions_cover_attribute_by_attribute(f: tuple[Node, Node], g: tuple[Node, Node]) -> None:
    """The publications of `on x and on y` are a rectangle; one that is not empty lies in another side by side."""
    left, right = on_x_and_y(f), on_x_and_y(g)
    sides = [(true_and_false(mine)[0], true_and_false(other)[0]) for mine, other in zip(f, g, strict=True)]
    empty = any(other == 0 for _, other in sides)
    subset = empty or all(other & ~mine == 0 for mine, other in sides)
    event(f"covers: {subset}")
    assert intersects(left, right) is all(mine & other for mine, other in sides)
    if len(left.conjunctions) <= 1 or not subset:
        assert covers(left, right) is subset


def on_x_and_y(nodes: tuple[Node, Node]) -> Filter:
    on_x, on_y = write(nodes[0]), write(nodes[1]).replace('"x"', '"y"')
    return parse(f"({on_x}) and ({on_y})")


@given(EITHER, EITHER, EITHER)
def test_covering_is_a_preorder(f: Node, g: Node, h: Node) -> None:
    first, second, third = (parse(write(node)) for node in (f, g, h))
    union = parse(f"({write(f)}) or ({write(g)})")
    both = parse(f"({write(f)}) and ({write(g)})")
    assert covers(first, both)
    assert covers(second, both)
    if len(union.conjunctions) == 1 or (len(first.conjunctions) <= 1 and len(second.conjunctions) <= 1):
        assert covers(union, first)
        assert covers(union, second)
    if covers(first, second) and covers(second, third):
        assert covers(first, third)


@given(EITHER)
def test_everything_covers_and_nothing_is_covered(f: Node) -> None:
    filter = parse(write(f))
    assert covers(parse("true"), filter)
    assert covers(filter, parse("false"))
    assert not intersects(filter, parse("false"))
    assert intersects(filter, parse("true")) is bool(filter.conjunctions)
