"""A small world for the pipeline's tests: subscriptions, publications, and what the oracle says of them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from lavant.broker.matching import EncryptedMatcher, ScanMatcher
from lavant.broker.matching.encrypted.values import EncryptedBatch
from lavant.broker.slices import SliceStore
from lavant.broker.storage.log import LogWriter
from lavant.broker.storage.objects import open_storage
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.stream.records import encrypted_records
from lavant.pipeline.stream.sinks import read_notifications
from lavant.simulation.workloads.synthetic import EncryptedWorkload

SYMBOLS = ["IBM", "YHOO", "SPY", "AIG", "BAC"]
Row = dict[str, Any]


def filters(count: int, seed: int = 1) -> list[str]:
    random = Random(seed)
    forms = (
        lambda: f"symbol = '{random.choice(SYMBOLS)}' and volume > {random.randint(0, 100)}",
        lambda: (
            f"volume between {random.randint(0, 50)} and {random.randint(50, 100)} and price < {random.randint(1, 100)}"
        ),
        lambda: f"symbol like '{random.choice(SYMBOLS)[0]}%' or price > {random.randint(90, 100)}",
        lambda: f"not exists(price) and symbol != '{random.choice(SYMBOLS)}'",
    )
    return [random.choice(forms)() for _ in range(count)]


def rows(count: int, seed: int = 2) -> list[Row]:
    random = Random(seed)
    made: list[Row] = []
    for number in range(count):
        row: Row = {"@id": f"p{number}", "symbol": random.choice(SYMBOLS), "volume": random.randint(0, 110)}
        if random.random() < 0.9:
            row["price"] = random.random() * 110
        made.append(row)
    return made


def expected(texts: dict[int, str], publications: list[Row]) -> dict[str, list[int]]:
    """Whom each publication must reach, by its id; those that nobody wants are left out."""
    scan = ScanMatcher()
    scan.add(list(texts), list(texts.values()))
    matches = scan.match(PublicationBatch.from_dicts(publications)).sorted()
    found = {row["@id"]: matches.of(number).tolist() for number, row in enumerate(publications)}
    return {id: ids for id, ids in found.items() if ids}


def notified(directory: str | Path) -> dict[str, list[int]]:
    """Whom each publication did reach; fails if a publication was notified twice."""
    table = read_notifications(directory)
    found: dict[str, list[int]] = {}
    for id, ids in zip(table.column("id").to_pylist(), table.column("subscriptions").to_pylist(), strict=True):
        if not ids:  # refused
            continue
        assert id not in found, f"publication {id} was notified twice"
        assert len(set(ids)) == len(ids), f"a subscriber was notified twice of {id}"
        found[id] = sorted(ids)
    return found


def append(log: Path, publications: list[Row]) -> None:
    with LogWriter(log, durable=False) as writer:
        for first in range(0, len(publications), 500):
            writer.append(PublicationBatch.from_dicts(publications[first : first + 500]).records)


def below(place: str | Path, name: str) -> str:
    """The address of a folder of a directory or URI."""
    return open_storage(place).below(name).address


class EncryptedWorld:
    """An encrypted store and log, and the matcher alone as the oracle (itself checked against plaintext elsewhere)."""

    def __init__(self, directory: str | Path, *, subscriptions: int, publications: int, slices: int = 8) -> None:
        self._workload = EncryptedWorkload(subscriptions=subscriptions)
        self._filters = self._workload.filters()
        self.store, self.log = below(directory, "subscriptions"), below(directory, "log")
        SliceStore.create(self.store, scheme="encrypted", slices=slices).add(np.arange(subscriptions), self._filters)
        self._published: list[EncryptedBatch] = []
        self.publish(publications)

    def publish(self, count: int) -> None:
        """So many more, at the end of the log."""
        first = sum(map(len, self._published))
        batch = self._workload.publications(count, stream=len(self._published))
        self._published.append(batch)
        with LogWriter(self.log, durable=False) as writer:
            for start in range(0, count, 500):
                part = self._workload.part(batch, start, 500)
                writer.append(encrypted_records(part, [f"e{first + start + n}" for n in range(len(part))]))

    def expected(self) -> dict[str, list[int]]:
        matcher = EncryptedMatcher()
        matcher.add(np.arange(len(self._filters)), self._filters)
        points = EncryptedBatch(np.concatenate([batch.points for batch in self._published]))
        matches = matcher.match(points).sorted()
        found = {f"e{number}": matches.of(number).tolist() for number in range(len(points))}
        return {id: ids for id, ids in found.items() if ids}
