"""How the conformance suite drives each matcher: the same filters and publications, in each matcher's own form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lavant.broker.filters import Filter
from lavant.broker.matching import MATCHERS
from lavant.client.encryption import Key, NumericAttribute, Schema
from lavant.core.publications.batch import PublicationBatch

NAMES = ("a", "b", "c", "d")
KEY = Key.generate(Schema.of(*(NumericAttribute(name, 0, 1000, 1) for name in NAMES)))

Row = dict[str, int]


class Case(NamedTuple):
    """A matcher with what turns filters and rows into what it takes."""

    matcher: type[Any]
    filters: Callable[[list[Filter]], Any]
    batch: Callable[[list[Row]], Any]


def plain_filters(filters: list[Filter]) -> Any:
    return filters


CASES = {
    "scan": Case(MATCHERS["scan"], plain_filters, PublicationBatch.from_dicts),
    "plain": Case(MATCHERS["plain"], plain_filters, PublicationBatch.from_dicts),
    "encrypted": Case(MATCHERS["encrypted"], KEY.encrypt_filters, KEY.encrypt_publications),
}


def random_filters(random: np.random.Generator, count: int) -> list[Filter]:
    texts = []
    for _ in range(count):
        low = random.integers(0, 700, len(NAMES))
        width = random.integers(0, 700, len(NAMES))
        kept = random.random(len(NAMES)) < 0.7
        ranges = [
            f"{name} between {a} and {a + b}" for name, a, b, keep in zip(NAMES, low, width, kept, strict=True) if keep
        ]
        texts.append(" and ".join(ranges) if ranges else "a >= 0")
    return [Filter.parse(text) for text in texts]


def random_rows(random: np.random.Generator, count: int) -> list[Row]:
    return [dict(zip(NAMES, line, strict=True)) for line in random.integers(0, 1001, (count, len(NAMES))).tolist()]
