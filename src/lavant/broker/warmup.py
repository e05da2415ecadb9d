"""Calls every kernel of matching and routing with each combination of argument types in use, so that all get compiled.

Arrays that a kernel only reads are `frozen`, so there are few combinations: encrypted vectors have 2 to 17 dimensions,
with a kernel for each of these; every other kernel exists once.
"""

from __future__ import annotations

import numpy as np

from lavant.broker.matching import EncryptedMatcher, PlainMatcher
from lavant.broker.matching.encrypted.values import DIMENSIONS_MAX, DIMENSIONS_MIN, EncryptedBatch, EncryptedFilters
from lavant.broker.matching.interface import Matches
from lavant.broker.matching.merge import merge
from lavant.broker.matching.plain.bitmaps import BUCKET_ROWS_MIN
from lavant.broker.matching.plain.groups import GROUPS_FEW
from lavant.broker.subscriptions.routing import QueueRoutes
from lavant.core.kernels.warmup import KernelSet
from lavant.core.publications.row_batch import RowBatch


def _call_plain() -> None:
    found = _plain()
    routes = QueueRoutes()
    routes.add(0, 1)
    list(routes.fan_out(merge([found, found])))


def _call_encrypted() -> None:
    for dimensions in range(DIMENSIONS_MIN, DIMENSIONS_MAX + 1):
        _encrypted(dimensions)


def _plain() -> Matches:
    """Equalities, bounds, patterns, lists; enough ranges for bitmaps, and enough forms for keys to be chosen."""
    filters = [
        *(f"a between {i} and {i + 9} and b > {i}" for i in range(BUCKET_ROWS_MIN + 1)),
        *(f"k{i} = 1 and a > 0" for i in range(GROUPS_FEW + 1)),
        "c = 'x' and a between 0 and 2",
        "c like '%x'",
        "c in ('x', 'y')",
        "a > 0",
        "a < 2 and c = 'x'",
    ]
    matcher = PlainMatcher()
    matcher.add(range(len(filters)), filters)
    batch = RowBatch([{"a": 1, "b": 70, "c": "x"}])
    matcher.match(batch)
    other = PlainMatcher()
    other.add([0, 1, 2, 3, 4, 5], ["a > 0"] * 6)
    other.remove([0])
    merge([other.match(batch), matcher.match(batch)])
    simple = PlainMatcher()
    simple.add([0], ["a > 0"])
    return simple.match(batch)


def _encrypted(dimensions: int) -> None:
    matcher = EncryptedMatcher()
    matcher.add([0], EncryptedFilters(np.ones((1, 2, dimensions))))
    matcher.match(EncryptedBatch(np.ones((1, dimensions))))


PLAIN_KERNELS = KernelSet("plain", _call_plain, kinds=57)
ENCRYPTED_KERNELS = KernelSet("encrypted", _call_encrypted, kinds=40)
BROKER_KERNELS = (PLAIN_KERNELS, ENCRYPTED_KERNELS)
