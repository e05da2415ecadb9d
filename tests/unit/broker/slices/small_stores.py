"""Small slice stores for tests: subscription i wants x = some number, so that a match tells who is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lavant.broker.filters import Filter
from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.slices.reader import StoreVersion
from lavant.broker.storage.objects import ObjectStorage
from lavant.client.encryption import Key, NumericAttribute, Schema
from lavant.core.publications.batch import PublicationBatch

NUMBERS = 5
"""Publications are x = 0 to 4."""
KEY = Key.generate(Schema.of(NumericAttribute("x", 0, 10, 1)), entropy=np.random.default_rng(3).bytes)

Oracle = Mapping[int, int]
"""Each subscription's number."""
Found = list[list[int]]


def wants(scheme: str, numbers: Sequence[int]) -> Any:
    texts = [f"x = {number}" for number in numbers]
    return texts if scheme == "plain" else KEY.encrypt_filters([Filter.parse(text) for text in texts])


def add(store: SliceStore, subscriptions: Oracle) -> int:
    return store.add(list(subscriptions), wants(store.settings.scheme, list(subscriptions.values())))


def expected(oracle: Oracle) -> Found:
    return [sorted(id for id, number in oracle.items() if number == wanted) for wanted in range(NUMBERS)]


def found(matchers: Sequence[Any], scheme: str = "plain") -> Found:
    """Who gets each publication, from all slices together; fails if a slice repeats what another found."""
    rows = [{"x": number} for number in range(NUMBERS)]
    batch = PublicationBatch.from_dicts(rows) if scheme == "plain" else KEY.encrypt_publications(rows)
    parts = [matcher.match(batch) for matcher in matchers]
    lists = [[id for part in parts for id in part.of(number).tolist()] for number in range(NUMBERS)]
    assert all(len(set(ids)) == len(ids) for ids in lists)
    return [sorted(ids) for ids in lists]


def read(place: str | Path | ObjectStorage, number: int | None = None) -> Found:
    """What a reader finds at a version."""
    reader = SliceReader(place)
    version = reader.version(number)
    return found(open_all(reader, version), reader.settings.scheme)


def open_all(reader: SliceReader, version: StoreVersion, known: Sequence[Any] | None = None) -> list[Any]:
    opened = dict(enumerate([] if known is None else known))
    return [reader.matcher(slice, version, opened.get(slice)) for slice in range(len(version.slices))]


def files(directory: Path) -> dict[str, bytes]:
    """Everything on disk."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
