"""The sink: parts of notifications, and a manifest for each batch that counts.

    notifications/
      part-0000000007-1f0c9a2e-0001.parquet     of batch 7, by exit task 1 of the stream's present run
      _manifests/0000000007.json                its parts, and the offsets that it covers; plain readers skip it

The manifest is the only record of how far a stream is: it says both what was notified and up to where, so a stream
starts again after the last one, whatever was lost with its driver. A part that no manifest names does not count. The
next run of the stream removes it, after its own first commit: until then the run that wrote it may still be alive, and
commit it.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lavant.broker.storage.objects import ObjectStorage, open_storage
from lavant.core.errors import UNDECODABLE, CorruptSnapshot, FailedStream, IdentityMismatch, InvalidValue
from lavant.core.identities import UNKNOWN, is_other
from lavant.pipeline.operators.parts import PARTS, SCHEMA, Part

MANIFESTS = "_manifests/"
REASONS_MAX = 3


class SinkOrigin(msgspec.Struct, frozen=True):
    """The origin of notifications: the identities of the log and of the store."""

    log: str = UNKNOWN
    store: str = UNKNOWN


class BatchManifest(msgspec.Struct, frozen=True, kw_only=True):
    batch: int
    start: int
    """Offset of the batch's first publication."""
    end: int
    """Offset after its last."""
    rows: int
    matches: int
    parts: tuple[Part, ...]
    log: str = UNKNOWN
    store: str = UNKNOWN
    version: int = 0
    """Of the subscriptions."""
    rejected: int = 0
    """Rows of refused publications."""
    time_ms: int = 0
    """When the driver committed it."""


class Notifications:
    """The notifications of one stream, for its driver."""

    def __init__(self, place: str | Path | ObjectStorage) -> None:
        self.storage = open_storage(place)
        self.run = uuid.uuid4().hex[:8]
        """Of the stream, in the names of its parts."""
        self._last = self._latest()
        self._has_committed = False

    @property
    def next_batch(self) -> int:
        return 0 if self._last is None else self._last.batch + 1

    @property
    def next_offset(self) -> int | None:
        """Where the next batch starts in the log; None before the first."""
        return None if self._last is None else self._last.end

    def check(self, origin: SinkOrigin, log_end: int) -> None:
        """Raise if existing notifications are of another log or other subscriptions."""
        if self._last is None:
            return
        for kind, there, here in (("log", self._last.log, origin.log), ("store", self._last.store, origin.store)):
            if is_other(there, here):
                raise IdentityMismatch(
                    f"{self.storage.uri} holds the notifications of another {kind}: its identity was {there}, this "
                    f"one's is {here}; choose another output directory, or put the original {kind} back"
                )
        if self._last.end > log_end:
            raise IdentityMismatch(
                f"{self.storage.uri} is at offset {self._last.end}, but the log ends at {log_end}: it is another log, "
                "or has lost its end; choose another output directory, or put the original log back"
            )

    def commit(self, manifest: BatchManifest) -> None:
        """Make a batch count, once its parts are written."""
        if self._last is not None and manifest.start != self._last.end:
            raise FailedStream(
                f"batch {manifest.batch} starts at offset {manifest.start}, but the last one ended at {self._last.end}"
            )
        if not self.storage.create(f"{MANIFESTS}{manifest.batch:010d}.json", [msgspec.json.encode(manifest)]):
            raise FailedStream(
                f"batch {manifest.batch} of {self.storage.uri} was committed by another driver; run one stream for "
                "each output directory"
            )
        self._last = manifest
        if not self._has_committed:
            self._has_committed = True
            self._remove_leftovers(manifest.batch)

    def _remove_leftovers(self, first: int) -> None:
        """Remove parts of other runs, from this batch on: runs commit in order, so none of these can count any more."""
        for name in self.storage.names(PARTS):
            if name >= f"{PARTS}{first:010d}" and f"-{self.run}-" not in name:
                self.storage.remove(name)

    def _latest(self) -> BatchManifest | None:
        if self.storage.names("batch-"):
            raise InvalidValue(
                f"{self.storage.uri} was written by an earlier version of Lavant; choose another output directory"
            )
        names = self.storage.names(MANIFESTS)
        return _read(self.storage, names[-1]) if names else None


def read_manifests(place: str | Path | ObjectStorage, after: int = -1) -> list[BatchManifest]:
    """The batches that count, after number `after`, in order."""
    storage = open_storage(place)
    last = f"{MANIFESTS}{after:010d}.json" if after >= 0 else ""
    return [_read(storage, name) for name in storage.names(MANIFESTS, last)]


def read_notifications(place: str | Path | ObjectStorage) -> pa.Table:
    """All notifications, in the order of the log."""
    storage = open_storage(place)
    tables = [read_part(storage, part) for each in read_manifests(storage) for part in each.parts if part.rows]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def read_part(storage: ObjectStorage, part: Part, columns: list[str] | None = None) -> pa.Table:
    return pq.read_table(pa.BufferReader(storage.read(part.name)), columns=columns)


def read_reasons(place: str | Path | ObjectStorage) -> list[str]:
    """The reasons why publications were refused, one for each."""
    storage = open_storage(place)
    rejecting = [part for each in read_manifests(storage) for part in each.parts if part.rejected]
    tables = [read_part(storage, part, ["rejected"]) for part in rejecting]
    return [reason for table in tables for reason in table.column("rejected").drop_null().to_pylist()]


def count_reasons(reasons: Iterable[str]) -> dict[str, int]:
    """Reasons with their counts, the most frequent first; ties in the order of arrival."""
    return dict(Counter(reasons).most_common())


def reasons_text(reasons: Mapping[str, int]) -> str:
    """
    >>> reasons_text({"not JSON": 2, "no number": 1})
    '2 for: not JSON; 1 for: no number'
    """
    shown = [f"{count} for: {reason}" for reason, count in list(reasons.items())[:REASONS_MAX]]
    others = sum(list(reasons.values())[REASONS_MAX:])
    return "; ".join([*shown, f"{others} for other reasons"] if others else shown)


def _read(storage: ObjectStorage, name: str) -> BatchManifest:
    try:
        return msgspec.json.decode(storage.read(name), type=BatchManifest)
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"{storage.uri}: {name} is damaged: {error}; restore it from a copy") from None
