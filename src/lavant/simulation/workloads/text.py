"""A workload of texts: half of the filters hold a `like` pattern (prefix, suffix or contains), half numbers only.

Products have a name of three words, made from syllables, a category, a price and a stock. A pattern is a part of a word
of two to four letters; half of the filters with one also bound the price. The other half compares a category with a
bound, or a range of prices with a bound of the stock. A product matches about 600 of 100,000 filters.
"""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np
import pyarrow as pa

from lavant.core.publications.batch import PublicationBatch

CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeiou"
CATEGORIES = 400
PRICE_MAX = 1000.0
STOCK_MAX = 10_000


class TextWorkload(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """`subscriptions` filters as texts, and products by column.

    >>> workload = TextWorkload(subscriptions=4, seed=1)
    >>> len(workload.filters()), workload.publications(3).attributes
    (4, ('name', 'category', 'price', 'stock'))
    """

    subscriptions: int = 100_000
    words: int = 5000
    seed: int = 1

    @cached_property
    def vocabulary(self) -> list[str]:
        random = np.random.default_rng([self.seed, 0])
        letters = [[CONSONANTS, VOWELS][place % 2] for place in range(8)]
        return [
            "".join(choices[random.integers(len(choices))] for choices in letters[: random.integers(4, 9)])
            for _ in range(self.words)
        ]

    def publications(self, count: int, *, stream: int = 0) -> PublicationBatch:
        """A batch of products; another `stream` gives others."""
        random = np.random.default_rng([self.seed, 1, stream])
        chosen = random.integers(0, self.words, (count, 3)).tolist()
        columns = {
            "name": [" ".join(self.vocabulary[word] for word in line) for line in chosen],
            "category": [f"c{number}" for number in random.integers(0, CATEGORIES, count).tolist()],
            "price": np.round(random.random(count) * PRICE_MAX, 2),
            "stock": random.integers(0, STOCK_MAX, count),
        }
        return PublicationBatch(pa.RecordBatch.from_pydict(columns))

    def filters(self) -> list[str]:
        """Every second one has a pattern."""
        random = np.random.default_rng([self.seed, 2])
        return [self._pattern(random) if number % 2 else self._numbers(random) for number in range(self.subscriptions)]

    def _pattern(self, random: np.random.Generator) -> str:
        word = self.vocabulary[random.integers(self.words)]
        length = min(int(random.integers(2, 5)), len(word))
        kind = int(random.integers(3))
        start = (0, len(word) - length, int(random.integers(len(word) - length + 1)))[kind]
        part = word[start : start + length]
        text = f"name like '{('{}%', '%{}', '%{}%')[kind].format(part)}'"
        return f"{text} and price < {self._price(random)}" if random.random() < 0.5 else text

    def _numbers(self, random: np.random.Generator) -> str:
        low = self._price(random)
        if random.random() < 0.5:
            return f"category = 'c{random.integers(CATEGORIES)}' and price > {low}"
        return f"price between {low} and {round(low + 20, 2)} and stock > {random.integers(STOCK_MAX)}"

    @staticmethod
    def _price(random: np.random.Generator) -> float:
        return round(random.random() * PRICE_MAX, 2)
