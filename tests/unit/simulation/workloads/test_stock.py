"""Quotes and subscriptions as the table of templates says."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from lavant.broker.matching import PlainMatcher
from lavant.broker.matching.plain.table import FilterTable
from lavant.simulation.workloads.stock import DATES, SHARES, StockWorkload

WORKLOAD = StockWorkload(symbols=40, subscriptions=20_000, seed=3)
TEMPLATES = [
    (("class", "="), ("symbol", "="), ("high", ">")),
    (("class", "="), ("symbol", "="), ("low", "<")),
    (("class", "="), ("symbol", "="), ("volume", ">")),
    (("class", "="), ("symbol", "=")),
    (("class", "="), ("volume", ">")),
    (("class", "="),),
]


def template_of(table: FilterTable, row: int) -> tuple[tuple[str, str], ...]:
    predicates = []
    for p in range(table.row_start[row], table.row_start[row + 1]):
        low, high = table.low[p], table.high[p]
        operator = "=" if low == high else ("<" if low == -math.inf else ">")
        predicates.append((table.dimensions[table.dimension[p]][0], operator))
    return tuple(predicates)


def test_templates_have_the_shares_of_the_table() -> None:
    table = WORKLOAD.filters()
    counts = Counter(template_of(table, row) for row in range(table.rows))
    assert set(counts) == set(TEMPLATES)
    assert math.isclose(sum(SHARES), 1.0)
    for template, share in zip(TEMPLATES, (0.20, 0.20, 0.20, 0.34, 0.05, 0.01), strict=True):
        deviation = math.sqrt(share * (1 - share) * len(table))
        assert abs(counts[template] - share * len(table)) < 4 * deviation


def test_templates_are_mixed() -> None:
    table = WORKLOAD.filters()
    first = Counter(template_of(table, row) for row in range(1000))
    assert len(first) >= 5


def test_a_quote_is_one_that_a_market_could_give() -> None:
    quotes = WORKLOAD.publications(500).to_dicts()
    for quote in quotes:
        assert quote["class"] == "STOCK"
        assert quote["symbol"] in WORKLOAD.symbol_names()
        assert quote["date"] in DATES
        assert 0 < quote["low"] <= min(quote["open"], quote["close"])
        assert quote["high"] >= max(quote["open"], quote["close"])
        assert isinstance(quote["volume"], int)
        assert quote["volume"] >= 0
    assert len({quote["symbol"] for quote in quotes}) == WORKLOAD.symbols


def test_a_quote_matches_about_its_symbols_share_of_the_subscriptions() -> None:
    matcher = PlainMatcher()
    matcher.add(np.arange(WORKLOAD.subscriptions), WORKLOAD.filters())
    share = len(matcher.match(WORKLOAD.publications(400)).ids) / 400 / WORKLOAD.subscriptions
    # Of those to one symbol, the 34 % without a bound match, and half of the 60 % with one; of the rest, half and all.
    assert math.isclose(share, (0.34 + 0.60 / 2) / WORKLOAD.symbols + 0.05 / 2 + 0.01, rel_tol=0.15)


def test_streams_differ_and_repeat() -> None:
    one, other, again = (WORKLOAD.publications(20, stream=stream) for stream in (0, 1, 0))
    assert one.to_dicts() == again.to_dicts()
    assert one.to_dicts() != other.to_dicts()
    assert StockWorkload(symbols=40, seed=4).publications(20).to_dicts() != one.to_dicts()


@pytest.mark.parametrize("symbols", [1, 26, 27, 700, 17_577])
def test_symbols_have_names_of_their_own(symbols: int) -> None:
    names = StockWorkload(symbols=symbols).symbol_names()
    assert len(set(names)) == len(names) == symbols
    assert names[0] == "AAA"
    assert all(len(name) >= 3 for name in names)
