"""Brute force: every filter is tried on every publication. Slow and simple: the oracle of the other matchers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from lavant.broker.filters import CANONICAL_LIMITS, Filter, filter_of
from lavant.broker.matching import container, snapshots
from lavant.broker.matching.changes import ChangeLog, MatcherChange
from lavant.broker.matching.interface import Ids, MatcherStatistics, Matches
from lavant.broker.matching.segmented import as_ids
from lavant.broker.storage.objects import ObjectStorage
from lavant.core.errors import DuplicateSubscription, InvalidValue, UnknownSubscription
from lavant.core.publications.batch import PublicationBatch, check_batch


class ScanMatcher:
    """A dictionary of filters.

    >>> matcher = ScanMatcher()
    >>> matcher.add([7], ["volume > 300"])
    >>> matcher.match(PublicationBatch.from_dicts([{"volume": 500}, {"volume": 5}])).of(0).tolist()
    [7]
    """

    scheme = "scan"

    def __init__(self) -> None:
        self._filters: dict[int, Filter] = {}
        self._changes: ChangeLog[_Texts] = ChangeLog()
        self._version = 0

    def add(self, ids: Sequence[int] | NDArray[Any], filters: Sequence[Filter | str]) -> None:
        """Subscribe the i-th id to the i-th filter. All or nothing; an existing id is an error."""
        taken = as_ids(ids)
        if len(taken) != len(filters):
            raise InvalidValue(f"got {len(taken)} ids for {len(filters)} filters; give each filter one id")
        additions: dict[int, Filter] = {}
        for id, filter in zip(taken.tolist(), filters, strict=True):
            if id in additions or id in self._filters:
                raise DuplicateSubscription(f"subscription {id} exists already; remove it first")
            additions[id] = filter_of(filter)
        if additions:
            self._publish({**self._filters, **additions}, MatcherChange(taken, _Texts(map(str, additions.values()))))

    def remove(self, ids: Sequence[int] | NDArray[Any]) -> None:
        """Unsubscribe. All or nothing; an unknown id is an error."""
        gone = np.unique(as_ids(ids))
        for id in gone.tolist():
            if id not in self._filters:
                raise UnknownSubscription(f"no subscription has id {id}; nothing was removed")
        if len(gone):
            kept = {id: filter for id, filter in self._filters.items() if id not in set(gone.tolist())}
            self._publish(kept, MatcherChange(gone, None))

    def _publish(self, filters: dict[int, Filter], change: MatcherChange[_Texts]) -> None:
        self._version += 1
        self._changes.append(self._version, change)
        self._filters = filters

    def match(self, batch: PublicationBatch) -> Matches:
        """The subscriptions that each publication of the batch matches."""
        check_batch(batch)
        filters = self._filters
        found = [[id for id, filter in filters.items() if filter.matches(row)] for row in batch.to_dicts()]
        offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in found], dtype=np.int64)]).astype(np.int64)
        return Matches(offsets, np.array([id for ids in found for id in ids], np.uint32))

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, id: int) -> bool:
        return id in self._filters

    def holds(self, ids: Ids) -> NDArray[np.bool_]:
        """Which of these are subscribed."""
        return np.array([id in self._filters for id in ids.tolist()], np.bool_)

    @property
    def version(self) -> int:
        """Counts the calls that changed something."""
        return self._version

    def statistics(self) -> MatcherStatistics:
        return MatcherStatistics(
            subscriptions=len(self._filters),
            segments=1,
            removed=0,
            memory_bytes=sum(len(str(filter)) for filter in self._filters.values()),
            version=self._version,
        )

    def snapshot(self, place: Path | ObjectStorage) -> int:
        """Write everything there and return the version written."""
        snapshots.write(place, scheme=self.scheme, version=self._version, parts=[self._part()])
        return self._version

    @classmethod
    def open(cls, place: Path | ObjectStorage) -> Self:
        return cls._of(*snapshots.read(place, scheme=cls.scheme))

    def to_bytes(self) -> bytes:
        return snapshots.pack(scheme=self.scheme, version=self._version, parts=[self._part()])

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        return cls._of(*snapshots.unpack(data, scheme=cls.scheme))

    def _part(self) -> snapshots.SnapshotPart:
        meta, arrays = _Texts(map(str, self._filters.values())).to_arrays()
        ids: Ids = np.fromiter(self._filters, np.uint32, len(self._filters))
        return snapshots.SnapshotPart(meta, {**arrays, "ids": ids}, {})

    @classmethod
    def _of(cls, version: int, parts: Sequence[snapshots.SnapshotPart]) -> Self:
        (part,) = parts
        matcher = cls()
        texts = _Texts.from_arrays(part.meta, part.arrays)
        matcher._filters = dict(zip(part.arrays["ids"].tolist(), texts.parse(), strict=True))
        matcher._version = version
        matcher._changes = ChangeLog(start=version)
        return matcher

    def delta(self, since: int) -> bytes:
        """Changes after version `since`, for `apply` on a matcher of that version."""
        return self._changes.pack(self.scheme, since)

    def apply(self, delta: bytes) -> None:
        """Bring a matcher from the delta's first version to its last."""
        for change in ChangeLog.unpack(self.scheme, delta, self._version, _Texts):
            if change.filters is None:
                self.remove(change.ids)
            else:
                self.add(change.ids, change.filters.parse())


class _Texts(tuple[str, ...]):
    """Canonical texts of filters, as stored in files."""

    __slots__ = ()

    def parse(self) -> list[Filter]:
        return [Filter.parse(text, CANONICAL_LIMITS) for text in self]

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {}, {"texts": np.frombuffer(msgspec.json.encode(list(self)), np.uint8)}

    @classmethod
    def from_arrays(cls, meta: dict[str, Any], arrays: container.Arrays) -> Self:
        return cls(msgspec.json.decode(arrays["texts"].tobytes(), type=list[str]))
