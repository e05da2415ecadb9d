"""Encrypted ranges over d attributes: the workload of e-StreamHub (section VI.B).

There, d = 4 and a publication matches a subscription with a probability of 1 %. Attributes are uniform; a subscription
has a range on each, all of the same width, chosen for the wanted probability. The key comes from the seed, which is
good for experiments and for nothing else.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from lavant.broker.matching.encrypted.values import EncryptedBatch, EncryptedFilters
from lavant.client.encryption import Key, NumericAttribute, Schema

STEPS = 100_000
"""Grid points of each attribute."""


class EncryptedWorkload:
    """`subscriptions` encrypted subscriptions over `attributes` attributes.

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
