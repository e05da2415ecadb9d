"""Synthetic workloads: ranges over many numeric attributes, in plaintext and encrypted.

Attributes are uniform in [0, 1). A subscription has ranges of the same width on distinct attributes, chosen such that a
publication, which has all attributes, matches it with the wanted probability. The plaintext workload, with 5 to 7
ranges, is the one on which published matchers are usually compared; the encrypted one, with a range on each of d
attributes, is that of e-StreamHub (section VI.B: d = 4, a match probability of 1 %).
"""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np
import pyarrow as pa

from lavant.broker.matching.encrypted.values import EncryptedBatch, EncryptedFilters
from lavant.broker.matching.plain.extras import ExtraConstraints
from lavant.broker.matching.plain.strings import StringTable
from lavant.broker.matching.plain.table import ConstraintKind, FilterTable
from lavant.client.encryption import Key, NumericAttribute, Schema
from lavant.core.publications.batch import PublicationBatch

STEPS = 100_000
"""Grid points of each attribute."""


class EncryptedWorkload:
    """`subscriptions` encrypted subscriptions over `attributes` attributes. The key comes from the seed.

    >>> workload = EncryptedWorkload(subscriptions=10, seed=1)
    >>> workload.filters(), len(workload.publications(3))
    (EncryptedFilters(10 filters of 8 tests in 5 dimensions), 3)
    """

    def __init__(
        self, *, attributes: int = 4, subscriptions: int = 100_000, match_probability: float = 0.01, seed: int = 1
    ) -> None:
        self.attributes = attributes
        self.subscriptions = subscriptions
        self.match_probability = match_probability
        self.seed = seed

    @cached_property
    def key(self) -> Key:
        schema = Schema.of(*(NumericAttribute(f"a{i}", 0, STEPS, 1) for i in range(self.attributes)))
        return Key.generate(schema, entropy=np.random.default_rng([self.seed, 0]).bytes)

    def publications(self, count: int, *, stream: int = 0) -> EncryptedBatch:
        """A batch of encrypted publications; another `stream` gives others."""
        return self.key.encrypt_publications(self.plain_publications(count, stream=stream))

    def plain_publications(self, count: int, *, stream: int = 0) -> dict[str, np.ndarray]:
        """The same before encryption: a column for each attribute."""
        random = np.random.default_rng([self.seed, 1, stream])
        return {f"a{i}": random.integers(0, STEPS + 1, count) for i in range(self.attributes)}

    def filters(self) -> EncryptedFilters:
        return self.key.encrypt_ranges(*self.ranges())

    def ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """The filters before encryption, low ≤ x < high: lower and upper ends, subscriptions × attributes."""
        random = np.random.default_rng([self.seed, 2])
        width = self.match_probability ** (1 / self.attributes)
        low = random.random((self.subscriptions, self.attributes)) * (1 - width)
        return np.round(low * STEPS), np.round((low + width) * STEPS)

    @staticmethod
    def part(batch: EncryptedBatch, start: int, length: int) -> EncryptedBatch:
        return EncryptedBatch(batch.points[start : start + length])


PREDICATES_MIN, PREDICATES_MAX = 5, 7


class SyntheticWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """`subscriptions` subscriptions over `attributes` attributes, each matched with probability `match_probability`.

    >>> workload = SyntheticWorkload(attributes=20, subscriptions=10, match_probability=0.01, seed=1)
    >>> len(workload.filters()), len(workload.publications(3).attributes)
    (10, 20)
    """

    attributes: int = 20
    subscriptions: int = 100_000
    match_probability: float = 0.01
    seed: int = 1

    def publications(self, count: int, *, stream: int = 0) -> PublicationBatch:
        """A batch of publications; another `stream` gives others."""
        random = np.random.default_rng([self.seed, 1, stream])
        values = random.random((self.attributes, count))
        columns = [pa.array(column) for column in values]
        return PublicationBatch(pa.RecordBatch.from_arrays(columns, names=self.names()))

    def filters(self) -> FilterTable:
        random = np.random.default_rng([self.seed, 2])
        count = self.subscriptions
        predicates = random.integers(PREDICATES_MIN, PREDICATES_MAX + 1, count)
        start = np.concatenate([[0], np.cumsum(predicates)]).astype(np.uint32)
        # The first k of a random permutation of all attributes are k distinct ones.
        shuffled = np.argsort(random.random((count, self.attributes)), axis=1)[:, :PREDICATES_MAX]
        dimension = shuffled[np.arange(PREDICATES_MAX) < predicates[:, None]]
        width = np.repeat(self.match_probability ** (1 / predicates), predicates)
        low = random.random(len(width)) * (1 - width)
        return FilterTable(
            count,
            tuple((name, ConstraintKind.NUMBER) for name in self.names()),
            StringTable.of([]),
            np.arange(count, dtype=np.uint32),
            start,
            dimension.astype(np.uint16),
            low,
            low + width,
            ExtraConstraints.none(),
        )

    def names(self) -> list[str]:
        return [f"a{number}" for number in range(self.attributes)]
