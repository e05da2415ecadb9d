"""What the clients of one source do: subscribe, change their minds, unsubscribe, publish, in both schemes."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from lavant.broker.filters import Filter
from lavant.broker.matching.plain.encoder import encode_filters
from lavant.broker.slices.values import SlicePublish, SliceSubscribe, SliceUnsubscribe
from lavant.client.encryption import Key, NumericAttribute, Schema
from lavant.core.publications.batch import PublicationBatch
from lavant.simulation.slices.oracle import Oracle

VALUES = 5
IDS = 12
"""Subscriptions of one source in one scheme; few, so that ids are used again."""
BATCH_MAX = 3
TEMPLATES = ("x = {0}", "x >= {0}", "x = {0} and y < {1}", "x >= {0} and y >= {1}")


def make_key(random: Random) -> Key:
    """A key from the seed: good for simulations, and for nothing else."""
    schema = Schema.of(NumericAttribute("x", 0, VALUES, 1), NumericAttribute("y", 0, VALUES, 1))
    return Key.generate(schema, entropy=random.randbytes)


class Clients:
    """All clients of one source. What they do is told to the oracle."""

    def __init__(self, source: int, sources: int, oracle: Oracle, key: Key) -> None:
        self._source = source
        self._sources = sources
        self._oracle = oracle
        self._key = key

    def act(self, random: Random) -> SliceSubscribe | SliceUnsubscribe | SlicePublish:
        """The next thing that somebody wants."""
        scheme = random.choice(("plain", "encrypted"))
        chance = random.random()
        if chance < 0.6:
            return self._publish(scheme, random)
        ids = random.sample(range(IDS), random.randint(1, 3))
        own = [id * self._sources + self._source for id in ids]
        return self._subscribe(scheme, own, random) if chance < 0.88 else self._unsubscribe(scheme, own)

    def _publish(self, scheme: str, random: Random) -> SlicePublish:
        rows = [
            {"x": random.randrange(VALUES), "y": random.randrange(VALUES)} for _ in range(random.randint(1, BATCH_MAX))
        ]
        self._oracle.published(self._source, scheme, rows)
        batch: Any = PublicationBatch.from_dicts(rows) if scheme == "plain" else self._key.encrypt_publications(rows)
        return SlicePublish(scheme, batch)

    def _subscribe(self, scheme: str, ids: list[int], random: Random) -> SliceSubscribe:
        texts = {
            id: random.choice(TEMPLATES).format(random.randrange(VALUES), random.randrange(1, VALUES)) for id in ids
        }
        self._oracle.subscribed(self._source, scheme, texts)
        parsed = list(map(Filter.parse, texts.values()))
        filters: Any = encode_filters(parsed) if scheme == "plain" else self._key.encrypt_filters(parsed)
        return SliceSubscribe(scheme, np.array(ids, np.uint32), filters)

    def _unsubscribe(self, scheme: str, ids: list[int]) -> SliceUnsubscribe:
        self._oracle.unsubscribed(self._source, scheme, ids)
        return SliceUnsubscribe(scheme, np.array(ids, np.uint32))
