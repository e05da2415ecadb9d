"""Tables of filters, taken apart and put together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.broker.filters.oracle import filters, predicates, publications, write
from tests.unit.broker.matching.plain.brute_force import expected, matched, matcher_of

from lavant.broker.filters.language.ast import Node
from lavant.broker.matching.plain import table as tables
from lavant.broker.matching.plain.encoder import encode_filters
from lavant.broker.matching.plain.matcher import PlainMatcher
from lavant.broker.matching.plain.table import FilterTable
from lavant.core.errors import LimitExceeded
from lavant.core.publications.attributes import AttributeValue

NODES = st.lists(filters(predicates()), min_size=1, max_size=6)
ROWS = st.lists(publications(), min_size=1, max_size=4)
TEXTS = ["s = 'b' and a > 1", "s in ('d', 'f') or t like '%x'", "t != 'c' and t < 'h'", "false", "n not in (1, 2, 3)"]
SAMPLE: list[dict[str, AttributeValue]] = [
    {"s": "b", "a": 2},
    {"s": "f"},
    {"t": "ax"},
    {"t": "c"},
    {"t": "g", "n": 2},
    {"n": 4},
]


@given(NODES, ROWS, st.data())
def test_filters_that_are_taken_match_as_before(
    nodes: list[Node], rows: list[dict[str, AttributeValue]], data: st.DataObject
) -> None:
    texts = [write(node) for node in nodes]
    chosen = data.draw(st.lists(st.integers(0, len(texts) - 1), unique=True, min_size=1))
    taken = encode_filters(texts).take(np.array(chosen))
    assert matched(matcher_of(taken), rows) == expected([texts[i] for i in chosen], rows)


@given(st.lists(NODES, min_size=1, max_size=3), ROWS)
def test_tables_that_are_joined_match_as_before(parts: list[list[Node]], rows: list[dict[str, AttributeValue]]) -> None:
    texts = [[write(node) for node in part] for part in parts]
    joined = FilterTable.concatenate([encode_filters(part) for part in texts])
    assert matched(matcher_of(joined), rows) == expected([text for part in texts for text in part], rows)


def test_a_table_survives_its_arrays() -> None:
    table = encode_filters(TEXTS)
    again = FilterTable.from_arrays(*table.to_arrays())
    assert again.dimensions == table.dimensions
    assert matched(matcher_of(again), SAMPLE) == expected(TEXTS, SAMPLE)


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_strings_and_dimensions_of_filters_that_are_gone_do_not_stay(number: int) -> None:
    alone, taken = encode_filters([TEXTS[number]]), encode_filters(TEXTS).take(np.array([number]))
    assert taken.dimensions == alone.dimensions
    assert taken.strings.data.tobytes() == alone.strings.data.tobytes()
    assert taken.low.tolist() == alone.low.tolist()
    assert taken.high.tolist() == alone.high.tolist()
    assert matched(matcher_of(taken), SAMPLE) == expected([TEXTS[number]], SAMPLE)


def test_a_matcher_forgets_the_strings_of_those_who_left() -> None:
    matcher = PlainMatcher()
    matcher.add(range(100), ["s = 'stays'"] * 100)
    for round in range(30):
        ids = range(1000, 1100)
        matcher.add(ids, [f"name{round} = 'visitor {round} {i}'" for i in range(100)])
        matcher.add([2000 + round], ["s = 'stays'"])
        matcher.remove(ids)
    entries = sum(placed.filters.strings.entries for placed in matcher._state.segments)
    dimensions = max(len(placed.filters.dimensions) for placed in matcher._state.segments)
    assert entries < 150
    assert dimensions <= 3


def test_what_compares_more_attributes_than_a_segment_holds_stays_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "DIMENSIONS_MAX", 10)
    matcher = PlainMatcher()
    for i in range(40):
        matcher.add([i], [f"a{i} = 1"])
    take_effect = matcher.joining()
    if take_effect is not None:
        take_effect()
    assert 4 <= matcher.statistics().segments <= 10
    assert matcher.joining() is None, "what cannot be joined is left alone"
    matcher.add([40], ["a9 = 1"])
    matcher.remove(range(10, 40))
    assert matched(matcher, [{"a9": 1, "a10": 1}, {"a0": 1}]) == [[9, 40], [0]]
    with pytest.raises(LimitExceeded, match="compare 11 attributes"):
        encode_filters([f"b{i} = 1" for i in range(11)])
