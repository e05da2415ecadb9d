"""The stock workload: quotes and subscriptions to them.

The subscription templates and their probabilities are those of Cheung, "Dynamic Load Balancing in Distributed
Content-based Publish/Subscribe", Table 5.1; bounds are values of a random quote of the symbol, as there. The quotes are
drawn, not recorded: each symbol has a price level and a typical volume, and every quote varies about them.

    20 %  class = 'STOCK' and symbol = … and high > …          34 %  class = 'STOCK' and symbol = …
    20 %  class = 'STOCK' and symbol = … and low < …            5 %  class = 'STOCK' and volume > …
    20 %  class = 'STOCK' and symbol = … and volume > …         1 %  class = 'STOCK'
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lavant.broker.matching.plain.table import FilterTable
from lavant.broker.matching.plain.templates import Column, encode_template
from lavant.core.publications.batch import PublicationBatch

SHARES = (0.20, 0.20, 0.20, 0.34, 0.05, 0.01)
DATES = ("11-Apr-96", "12-Apr-96", "15-Apr-96", "16-Apr-96")


class StockWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """Quotes of `symbols` symbols and `subscriptions` subscriptions to them.

    >>> workload = StockWorkload(symbols=40, subscriptions=1000, seed=1)
    >>> len(workload.filters()), sorted(workload.publications(2).to_dicts()[0])
    (1000, ['class', 'close', 'date', 'high', 'low', 'open', 'symbol', 'volume'])
    """

    symbols: int = 500
    subscriptions: int = 100_000
    seed: int = 1

    def publications(self, count: int, *, stream: int = 0) -> PublicationBatch:
        """A batch of quotes; another `stream` gives other quotes of the same symbols."""
        random = np.random.default_rng([self.seed, 1, stream])
        symbol = random.integers(0, self.symbols, count)
        quotes = self.quotes(random, symbol)
        names = pa.array(self.symbol_names())
        columns: dict[str, Any] = {
            "class": pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["STOCK"]),
            "symbol": pa.DictionaryArray.from_arrays(symbol.astype(np.int32), names),
            **{name: pa.array(quotes[name]) for name in ("open", "high", "low", "close", "volume")},
            "date": pa.DictionaryArray.from_arrays(random.integers(0, len(DATES), count, np.int32), list(DATES)),
        }
        return PublicationBatch(pa.RecordBatch.from_pydict(columns))

    def filters(self) -> FilterTable:
        """The subscriptions' filters, templates mixed at random."""
        random = np.random.default_rng([self.seed, 2])
        counts = np.bincount(random.choice(len(SHARES), self.subscriptions, p=SHARES), minlength=len(SHARES))
        tables = [self._template(random, number, int(count)) for number, count in enumerate(counts) if count]
        return FilterTable.concatenate(tables).take(random.permutation(self.subscriptions))

    def symbol_names(self) -> list[str]:
        """Three letters or more each: AAA, AAB, …"""
        letters = [chr(ord("A") + i) for i in range(26)]
        names = []
        for number in range(self.symbols):
            a, b, c, more = number // 676 % 26, number // 26 % 26, number % 26, number // 17576
            names.append(letters[a] + letters[b] + letters[c] + (str(more) if more else ""))
        return names

    def _template(self, random: np.random.Generator, number: int, count: int) -> FilterTable:
        symbol = random.integers(0, self.symbols, count)
        quotes = self.quotes(random, symbol)
        names = np.array(self.symbol_names(), dtype=object)
        stock = Column("class", "=", ["STOCK"] * count)
        of_symbol = Column("symbol", "=", names[symbol].tolist())
        volume = Column("volume", ">", quotes["volume"])
        templates = (
            [stock, of_symbol, Column("high", ">", quotes["high"])],
            [stock, of_symbol, Column("low", "<", quotes["low"])],
            [stock, of_symbol, volume],
            [stock, of_symbol],
            [stock, volume],
            [stock],
        )
        return encode_template(templates[number])

    def quotes(self, random: np.random.Generator, symbol: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """One quote for each entry of `symbol`."""
        levels = np.random.default_rng([self.seed, 0])
        price = levels.lognormal(3.5, 0.7, self.symbols)[symbol]
        turnover = levels.lognormal(12.0, 1.0, self.symbols)[symbol]
        count = len(symbol)
        opening = price * random.lognormal(0.0, 0.10, count)
        closing = opening * random.lognormal(0.0, 0.02, count)
        high = np.maximum(opening, closing) * (1 + random.exponential(0.01, count))
        low = np.minimum(opening, closing) * (1 - np.minimum(random.exponential(0.01, count), 0.5))
        return {
            "open": opening.round(2),
            "high": high.round(2),
            "low": low.round(2),
            "close": closing.round(2),
            "volume": (turnover * random.lognormal(0.0, 0.5, count)).astype(np.int64),
        }
