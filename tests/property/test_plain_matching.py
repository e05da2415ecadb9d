"""The index never differs from trying every filter."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.broker.filters.oracle import filters, predicates, publications, write

from lavant.broker.filters import Filter
from lavant.broker.filters.language.ast import Node
from lavant.broker.matching import PlainMatcher, ScanMatcher
from lavant.broker.matching.plain import bitmaps
from lavant.broker.matching.plain import groups as grouping
from lavant.broker.matching.plain.encoder import decode_filters
from lavant.core.publications.attributes import AttributeValue
from lavant.core.publications.batch import PublicationBatch

NODES = st.lists(filters(predicates()), min_size=1, max_size=12)
BATCHES = st.lists(publications(), min_size=1, max_size=8)


def check_against_scan(texts: list[str], rows: list[dict[str, AttributeValue]], steps: int = 1) -> None:
    """Add in several steps, take some away again, and compare after each."""
    scan, plain = ScanMatcher(), PlainMatcher()
    batch = PublicationBatch.from_dicts(rows)
    for ids in np.array_split(np.arange(len(texts)), steps):
        for matcher in (scan, plain):
            matcher.add(ids, [texts[i] for i in ids])
        assert_same(scan, plain, batch)
    for matcher in (scan, plain):
        matcher.remove(np.arange(0, len(texts), 3))
    assert_same(scan, plain, batch)


def assert_same(scan: ScanMatcher, plain: PlainMatcher, batch: PublicationBatch) -> None:
    expected, found = scan.match(batch).sorted(), plain.match(batch).sorted()
    assert found.offsets.tolist() == expected.offsets.tolist()
    assert found.ids.tolist() == expected.ids.tolist()


@given(NODES, BATCHES)
def test_it_finds_what_a_scan_finds(nodes: list[Node], rows: list[dict[str, AttributeValue]]) -> None:
    check_against_scan([write(node) for node in nodes], rows)


@pytest.mark.soak
@given(NODES, BATCHES)
def test_it_finds_what_a_scan_finds_soak(nodes: list[Node], rows: list[dict[str, AttributeValue]]) -> None:
    check_against_scan([write(node) for node in nodes], rows)


def check_decoding(nodes: list[Node]) -> None:
    """After merges and removals too, which leave out strings and dimensions of filters that are gone."""
    given = dict(enumerate(Filter.parse(write(node)) for node in nodes))
    matcher = PlainMatcher()
    for number, filter in given.items():
        matcher.add([number], [filter])
    gone = list(given)[::3]
    matcher.remove(gone)
    found = {
        int(id): filter
        for ids, table in matcher.subscriptions()
        for id, filter in zip(ids, decode_filters(table), strict=True)
    }
    assert found == {number: filter for number, filter in given.items() if number not in gone}


@given(st.lists(st.one_of(filters(predicates()), filters(predicates(names=("x",)), leaves_max=12)), max_size=12))
def test_what_it_holds_decodes_to_the_same_filters(nodes: list[Node]) -> None:
    check_decoding(nodes)


@pytest.mark.soak
@given(st.lists(st.one_of(filters(predicates()), filters(predicates(names=("x",)), leaves_max=12)), max_size=12))
def test_what_it_holds_decodes_to_the_same_filters_soak(nodes: list[Node]) -> None:
    check_decoding(nodes)


# Hypothesis draws few filters; bitmaps, small groups and merges need many, so these come from a seed.

ATTRIBUTES = [f"a{i}" for i in range(6)]
STRINGS = ["IBM", "YHOO", "Yahoo", "SPY", "AIG", "", "Ya"]


def random_filter(random: Random) -> str:
    terms = [random_term(random, name) for name in random.sample(ATTRIBUTES, random.randint(1, 4))]
    text = " and ".join(terms)
    return f"{text} or {random_filter(random)}" if random.random() < 0.1 else text


def random_term(random: Random, name: str) -> str:
    low, high = sorted(random.choices(range(20), k=2))
    string = random.choice(STRINGS)
    return random.choice(
        [
            f"{name} between {low} and {high}",
            f"{name} between {low} and {high}.5",
            f"{name} > {low}",
            f"{name} <= {high}",
            f"{name} = {low}",
            f"{name} != {low}",
            f"{name} in ({low}, {high})",
            f"{name} not in ({', '.join(map(str, range(low, high + 1)))})",
            f"{name} = '{string}'",
            f"{name} in ('IBM', '{string}', 'SPY')",
            f"{name} like '{string}%'",
            f"{name} like '%{string}'",
            f"not {name} like '%{string}%'",
            f"{name} >= '{string}'",
            f"{name} = true",
            f"exists({name})",
            f"not exists({name})",
        ]
    )


def random_row(random: Random) -> dict[str, AttributeValue]:
    row: dict[str, AttributeValue] = {}
    for name in ATTRIBUTES:
        kind = random.random()
        if kind < 0.5:
            row[name] = random.choice([random.randint(-1, 20), random.randint(0, 40) / 2])
        elif kind < 0.8:
            row[name] = random.choice([*STRINGS, "Ya!", "I", "hoo"])
        elif kind < 0.9:
            row[name] = random.random() < 0.5
    return row


@pytest.mark.parametrize("seed", range(6))
def test_it_finds_what_a_scan_finds_among_many(seed: int) -> None:
    random = Random(seed)
    texts = [random_filter(random) for _ in range(700)]
    rows = [random_row(random) for _ in range(40)]
    check_against_scan(texts, rows, steps=1 + 6 * (seed % 2))


@pytest.mark.parametrize("seed", range(4))
def test_ranges_over_many_attributes_go_through_bitmaps(seed: int) -> None:
    random = Random(seed)
    names = [f"a{i}" for i in range(12)]

    def ranges() -> str:
        chosen = random.sample(names, 5)
        lows = [random.randint(0, 60) for _ in chosen]
        return " and ".join(
            f"{name} between {low} and {low + 60}" if random.random() < 0.8 else f"{name} != {low}"
            for name, low in zip(chosen, lows, strict=True)
        )

    texts = [f"class = 'C{random.randint(0, 1)}' and {ranges()}" for _ in range(1500)]
    rows: list[dict[str, AttributeValue]] = [
        {
            "class": f"C{random.randint(0, 2)}",
            **{name: random.randint(0, 120) for name in names if random.random() < 0.9},
        }
        for _ in range(150)
    ]
    check_against_scan(texts, rows)


def test_the_cases_above_reach_bitmaps_and_small_groups() -> None:
    random = Random(0)
    matcher = PlainMatcher()
    matcher.add(range(700), [random_filter(random) for _ in range(700)])
    (placed,) = matcher._state.segments
    segment = placed.segment
    assert len(segment.bitmaps.rows) > 0  # type: ignore[attr-defined]
    assert segment.bitmaps.rows.max() > bitmaps.BUCKET_ROWS_MIN  # type: ignore[attr-defined]
    groups = len(segment.index.group_form)  # type: ignore[attr-defined]
    assert groups < grouping.GROUPS_MAX + 2 * len(ATTRIBUTES) + 1
