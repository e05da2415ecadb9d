"""Filters read by templates, one by one and by column, are those that the parser reads; errors are the parser's."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.broker.filters.oracle import filters, predicates, write

from lavant.broker.filters import FILTER_LIMITS, Filter
from lavant.broker.filters.algebra.normal_form import normalise
from lavant.broker.filters.language.ast import Node
from lavant.broker.filters.model import parse_syntax
from lavant.broker.matching.plain.encoder import decode_filters, encode_filters
from lavant.broker.matching.plain.templates import TEXTS_OF_SHAPE_MIN, encode_texts
from lavant.core.errors import LavantError

PIECES = [
    *"()=<>,-+.5'\"\\%_ \n\0é[]",
    *["<=", ">=", "!=", "and", "or", "not", " like ", " in ", " between ", "exists", "true", "x", "y2", "1e5", "1e999"],
    *[
        "'a'",
        "''",
        "'a%'",
        "'%a%'",
        "'it''s'",
        "-0",
        "99999999999999999999",
        "0.5",
        "3",
        "'" + "long" * 300 + "'",
        "\ud800",
    ],
]


def parsed(text: str) -> Filter:
    return Filter(normalise(parse_syntax(text, FILTER_LIMITS), FILTER_LIMITS))


def outcome(parse: object, text: str) -> object:
    try:
        return parse(text)  # type: ignore[operator]
    except LavantError as error:
        return type(error), str(error)


@given(st.one_of(filters(predicates()), predicates()))
def test_templates_read_what_the_parser_reads(node: Node) -> None:
    text = write(node)
    assert Filter.parse(text) == parsed(text)


@given(st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join))
@example("x between 1 and-5")
@example("x between 1 and-0")
@example("x = 1.e5")
@example('"x 1" = 1')
@example("x = 'unclosed and y = 5")
@example("x=1and y=2")
@example("x like '%a%b'")
@example("x5 = 5 and x.5 = .5")
def test_every_text_has_the_same_meaning_or_error_with_and_without_templates(text: str) -> None:
    assert outcome(Filter.parse, text) == outcome(parsed, text)


STRINGS = ["'x'", "'a'", "''", "'é'", "'it''s'", "'a\0'", "'\U0010ffff'"]
PATTERNS = [
    "'a%'",
    "'%b'",
    "'%c%'",
    "'%'",
    "'x'",
    r"'%\%%'",
    "'%\U0010ffff%'",
    "'\U0010ffff%'",
    "'é%'",
    "'%%d%%'",
    "'%'''",
]
TERMS: list[Callable[[Random], str]] = [
    lambda r: f"a {r.choice(['=', '<', '<=', '>', '>='])} {r.choice([0, -1, 2.5, '-0', '1e3', 99, '.5'])}",
    lambda r: f"b {r.choice(['=', '<', '<=', '>', '>='])} {r.choice(STRINGS)}",
    lambda r: f"c between {r.randint(0, 3)} and {r.randint(2, 5)}",
    lambda r: f"d like {r.choice(PATTERNS)}",
    lambda r: f"e like {r.choice(PATTERNS)} and f like {r.choice(PATTERNS)}",
    lambda r: f"g > {r.randint(0, 9)} and g <= {r.randint(9, 20)}",
    lambda r: f"h > {r.randint(0, 9)} and h < {r.randint(5, 20)}",
    lambda r: f"i in ({r.randint(0, 5)}, {r.randint(0, 5)})",
    lambda r: f"j != {r.randint(0, 5)}",
    lambda r: "exists(k) and l = true",
    lambda r: f"not m like {r.choice(PATTERNS)}",
    lambda r: f"b like {r.choice(PATTERNS)} and b >= {r.choice(STRINGS)}",
    lambda r: f"n = {r.choice(['1', STRINGS[1]])} and n > 0",
]


@pytest.mark.parametrize("seed", range(2))
def test_filters_encoded_by_column_are_those_that_the_parser_reads(seed: int) -> None:
    random = Random(seed)
    texts = [" and ".join(make(random) for make in random.sample(TERMS, random.randint(1, 2))) for _ in range(4000)]
    assert decode_filters(encode_filters(texts)) == [parsed(text) for text in texts]
    tables, rest = encode_texts(texts)
    assert len(tables) >= 10
    assert sum(len(table) for _, table in tables) + len(rest) == len(texts)


def test_the_first_bad_filter_among_many_is_refused_with_the_parsers_words() -> None:
    texts = [f"a > {number}" for number in range(3 * TEXTS_OF_SHAPE_MIN)]
    texts[20], texts[30] = "a > 99999999999999999999", "a >"
    with pytest.raises(LavantError) as refused:
        encode_filters(texts)
    assert str(refused.value) == outcome(parsed, texts[20])[1]  # type: ignore[index]
