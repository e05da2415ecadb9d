"""The workload of Section 5.1: publishers of stock quotes, and subscriptions from the templates of Table 5.1.

Each publisher publishes the quotes of one symbol at a constant rate, drawn between 0 and 60 a minute. A subscription
that attracts traffic takes a published symbol and the values of a random quote of it; one without traffic names a
symbol that nobody publishes. Quotes are drawn as in `workloads.stock`, or read from a file of daily quotes, whose
symbols are split into years if there are fewer of them than publishers.

Subscriptions are columns, ordered by the symbol they name; those that name none are at the end. So the kernel tests a
publication against the subscriptions of its symbol and the broad ones only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from lavant.core.errors import InvalidValue
from lavant.core.kernels.kernels import kernel
from lavant.simulation.workloads.stock import SHARES, StockWorkload

HIGH, LOW, VOLUME, SYMBOL, ANY_VOLUME, ANY = range(6)
"""The templates of Table 5.1, in its order."""

QUOTES_PER_SYMBOL = 2000
Floats = npt.NDArray[np.float64]


class QuoteTable(msgspec.Struct, frozen=True, kw_only=True):
    """Quotes of each symbol: arrays of symbols × quotes."""

    high: Floats
    low: Floats
    volume: Floats

    @classmethod
    def drawn(cls, symbols: int, seed: int) -> QuoteTable:
        random = np.random.default_rng([seed, 3])
        symbol = np.repeat(np.arange(symbols), QUOTES_PER_SYMBOL)
        quotes = StockWorkload(symbols=symbols, seed=seed).quotes(random, symbol)
        return cls(**{name: quotes[name].reshape(symbols, -1).astype(np.float64) for name in ("high", "low", "volume")})

    @classmethod
    def read(cls, path: Path, symbols: int) -> QuoteTable:
        """Daily quotes from a Parquet file with the columns symbol, date, high, low and volume."""
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        columns = ["symbol", "date", "high", "low", "volume"]
        try:
            table = pq.read_table(path, columns=columns)
            table = table.sort_by([("symbol", "ascending"), ("date", "ascending")])
        except (OSError, pa.ArrowException, KeyError) as error:
            reason = str(error).splitlines()[0]
            raise InvalidValue(f"{path} is no Parquet file with the columns {', '.join(columns)}: {reason}") from None
        names = table["symbol"].to_numpy(zero_copy_only=False)
        _, starts, counts = np.unique(names, return_index=True, return_counts=True)
        length = _years(counts, symbols, path)
        parts = [
            (start + part * length, start + (part + 1) * length)
            for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
            for part in range(count // length)
        ][:symbols]
        values_of = {name: table[name].to_numpy().astype(np.float64) for name in ("high", "low", "volume")}
        return cls(**{name: np.stack([values[a:b] for a, b in parts]) for name, values in values_of.items()})


def _years(counts: npt.NDArray[np.int64], symbols: int, path: Path) -> int:
    """The longest history that enough symbols, or parts of their histories, have."""
    for length in range(QUOTES_PER_SYMBOL, 49, -50):
        if int((counts // length).sum()) >= symbols:
            return length
    raise InvalidValue(f"{path} has quotes for fewer than {symbols} publishers of 50 days each; take fewer publishers")


class QuoteSubscriptions(msgspec.Struct, frozen=True, kw_only=True):
    """Subscriptions as columns, and where those of each symbol begin (`starts`, with the broad ones last)."""

    template: npt.NDArray[np.int64]
    bound: Floats
    starts: npt.NDArray[np.int64]
    joins_s: Floats

    def __len__(self) -> int:
        return len(self.template)


class QuoteWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """Publishers and subscriptions of one experiment."""

    quotes: QuoteTable
    rates_per_s: Floats
    phases: Floats
    subscriptions: QuoteSubscriptions

    @classmethod
    def draw(
        cls,
        *,
        publishers: int,
        subscribers: int,
        zero_traffic: float,
        joins_s: tuple[float, float],
        seed: int,
        quotes: Path | None = None,
    ) -> QuoteWorkload:
        random = np.random.default_rng([seed, 4])
        table = QuoteTable.drawn(publishers, seed) if quotes is None else QuoteTable.read(quotes, publishers)
        return cls(
            quotes=table,
            rates_per_s=random.uniform(0, 1, publishers),
            phases=random.uniform(0, 1, publishers),
            subscriptions=_subscriptions(random, table, subscribers, zero_traffic, joins_s),
        )

    def publications(self, rates_per_s: Floats, progress: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
        """Advances every publisher by a second; the publishers of this second's quotes, and their progress."""
        after = progress + rates_per_s
        due = np.floor(after).astype(np.int64) - np.floor(progress).astype(np.int64)
        return np.repeat(np.arange(len(due)), due), after


def _subscriptions(
    random: np.random.Generator, table: QuoteTable, count: int, zero_traffic: float, joins_s: tuple[float, float]
) -> QuoteSubscriptions:
    publishers = len(table.high)
    without = random.permutation(count) < round(count * zero_traffic)
    template = random.choice(len(SHARES), count, p=SHARES)
    narrow = np.array(SHARES[:ANY_VOLUME]) / sum(SHARES[:ANY_VOLUME])
    template[without] = random.choice(ANY_VOLUME, int(without.sum()), p=narrow)
    symbol = random.integers(0, publishers, count)
    quote = random.integers(0, table.high.shape[1], count)
    bound = np.zeros(count)
    for of, values in ((HIGH, table.high), (LOW, table.low), (VOLUME, table.volume), (ANY_VOLUME, table.volume)):
        mine = template == of
        bound[mine] = values[symbol[mine], quote[mine]]
    # Symbols from `publishers` on: first those that nobody publishes, then none at all.
    symbol[without] = publishers
    symbol[template >= ANY_VOLUME] = publishers + 1
    order = np.argsort(symbol, kind="stable")
    starts = np.searchsorted(symbol[order], np.arange(publishers + 3))
    return QuoteSubscriptions(
        template=template[order].astype(np.int64),
        bound=bound[order],
        starts=starts.astype(np.int64),
        joins_s=random.uniform(*joins_s, count)[order],
    )


@kernel
def match_quotes(
    publishers: Any,
    high: Any,
    low: Any,
    volume: Any,
    template: Any,
    bound: Any,
    starts: Any,
    home: Any,
    leaving: Any,
    deliveries: Any,
    matched: Any,
) -> int:
    """Matches this second's quotes: deliveries by publication and broker, and (publication, subscription) pairs.

    A subscription that is leaving a broker is matched there too, until it has left. Returns the number of pairs.
    """
    found = 0
    broad = len(starts) - 2
    for k in range(len(publishers)):
        for part in range(2):
            begin = starts[publishers[k]] if part == 0 else starts[broad]
            end = starts[publishers[k] + 1] if part == 0 else starts[broad + 1]
            for s in range(begin, end):
                if home[s] < 0:
                    continue
                kind = template[s]
                if kind == HIGH:
                    is_match = high[k] > bound[s]
                elif kind == LOW:
                    is_match = low[k] < bound[s]
                elif kind in (VOLUME, ANY_VOLUME):
                    is_match = volume[k] > bound[s]
                else:
                    is_match = True
                if is_match:
                    deliveries[k, home[s]] += 1
                    if leaving[s] >= 0:
                        deliveries[k, leaving[s]] += 1
                    matched[found, 0] = k
                    matched[found, 1] = s
                    found += 1
    return found
