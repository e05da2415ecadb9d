"""The publication log of one namespace and scheme, with its subscriptions in slices and their queues.

The journal is authoritative for subscriptions and for the accepted offset of the log. So the slices, which Spark reads,
are rebuilt at each start, and the log is truncated to the accepted offset.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from lavant.broker.matching.interface import Matches
from lavant.broker.protocol.match_protocol import MatchResults, OffsetRange
from lavant.broker.slices import SliceStore
from lavant.broker.storage.log import LogReader, LogWriter
from lavant.broker.storage.log.blocks import files_of, scan_blocks
from lavant.broker.subscriptions.filter_quota import Filters
from lavant.broker.subscriptions.log_offsets import LogOffset
from lavant.broker.subscriptions.parsing import ENCRYPTED, ParsedPublication
from lavant.broker.subscriptions.routing import QueueRoutes
from lavant.core.errors import InvalidValue
from lavant.core.publications.batch import PublicationBatch
from lavant.core.publications.publication import PAYLOAD, POINT
from lavant.service.engines.spark.settings import SparkLimits
from lavant.service.runtime.ingest.match_delivery import DeliveryPart


class NamespaceLog:
    """Methods that change subscriptions and logs run in the engine's thread; `owed_bytes`, `next_range`, `count` and
    `moved` in the loop."""

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        scheme: str,
        slices: int,
        offsets: LogOffset,
        limits: SparkLimits,
        identity: str | None = None,
    ) -> None:
        """`identity` is that of its log, unique among servers."""
        self.name = name
        self.scheme = scheme
        self.durable = offsets.delivered
        """Publications up to here are durably in queues; the log may delete them."""
        self.blocked_until_ms = 0
        self._limits = limits
        self._log_directory = directory / "log"
        self._subscriptions_directory = directory / "subscriptions"
        shutil.rmtree(self._subscriptions_directory, ignore_errors=True)
        self._store = SliceStore.create(self._subscriptions_directory, scheme=scheme, slices=slices)
        self._routes = QueueRoutes()
        self._number_max = -1
        self._log = _opened(self._log_directory, offsets, identity, limits.file_bytes_max)
        self._reader = LogReader(self._log_directory)
        self._blocks = deque(_blocks_behind(self._log_directory, offsets.delivered))
        """End offset and bytes of each block that is not completely delivered."""
        self.owed_bytes = sum(size_bytes for _, size_bytes in self._blocks)

    def __len__(self) -> int:
        return len(self._store)

    # ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, numbers: Sequence[int], filters: Filters, serials: Sequence[int]) -> None:
        self._store.add(numbers, filters)
        for number, serial in zip(numbers, serials, strict=True):
            self._routes.add(number, serial)
        self._number_max = max(self._number_max, *numbers)

    def remove(self, numbers: Sequence[int]) -> None:
        self._store.remove(numbers)
        for number in numbers:
            self._routes.remove(number)

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def end(self) -> int:
        return self._log.end

    def append(self, publications: Sequence[ParsedPublication]) -> int:
        """Append durably; returns the bytes."""
        before = self._log.end
        records = _records(self.scheme, publications)
        try:
            self._log.append(records)
        except OSError:
            self.cut(before)
            raise
        return int(records.nbytes)

    def cut(self, offset: int) -> None:
        self._log.cut(offset)
        self._reader = LogReader(self._log_directory)

    def count(self, end: int, size_bytes: int) -> None:
        """An appended block was accepted."""
        self._blocks.append((end, size_bytes))
        self.owed_bytes += size_bytes

    def moved(self, delivered: int) -> None:
        while self._blocks and self._blocks[0][0] <= delivered:
            self.owed_bytes -= self._blocks.popleft()[1]

    def next_range(self, offsets: LogOffset) -> OffsetRange:
        """The next range to match."""
        limits, size_bytes, end = self._limits, 0, offsets.delivered
        fitting = limits.range_matches_max // max(1, len(self._store))
        end_max = offsets.delivered + max(1, min(limits.range_publications_max, fitting))
        for block_end, block_bytes in self._blocks:
            size_bytes += block_bytes
            if end > offsets.delivered and size_bytes > limits.range_bytes_max:
                break
            end = min(block_end, end_max)
            if end == end_max:
                break
        directories = (str(self._log_directory), str(self._subscriptions_directory))
        identities = (self._log.identity, self._store.settings.identity)
        return OffsetRange(self.name, *directories, self._store.version, offsets.delivered, end, *identities)

    # ── match results ─────────────────────────────────────────────────────────────────────────────────────────────────

    def parts(self, results: MatchResults, delivered: int) -> list[DeliveryPart]:
        """Deliveries from offset `delivered` on; everything before was delivered already."""
        self._log.trim(self.durable)
        if results.start > delivered:
            raise InvalidValue(
                f"the log {self.name!r} is delivered up to offset {delivered}, so match results from offset "
                f"{results.start} on are too early"
            )
        if results.end <= delivered:
            return []
        if results.end > self._log.end:
            raise InvalidValue(f"the log {self.name!r} ends at offset {self._log.end}, before {results.end}")
        matches = self._known(results.matches(), delivered - results.start)
        bodies = self._bodies(delivered, results.end)
        return [
            DeliveryPart(
                piece,
                [
                    body if is_wanted else b""
                    for body, is_wanted in zip(bodies[piece.start : piece.stop], piece.wanted.tolist(), strict=True)
                ],
                delivered + piece.stop,
            )
            for piece in self._routes.fan_out(matches)
        ]

    def close(self) -> None:
        self._log.close()

    def _known(self, matches: Matches, first: int) -> Matches:
        """The matches from publication `first` on, without ids that never existed here."""
        offsets = matches.offsets[first:]
        ids = matches.ids[offsets[0] :]
        offsets = offsets - offsets[0]
        known = ids <= self._number_max
        if known.all():
            return Matches(offsets, ids)
        kept = np.concatenate([[0], np.cumsum(known)])
        return Matches(kept[offsets], ids[known])

    def _bodies(self, start: int, end: int) -> list[bytes]:
        return [
            body
            for slab in self._reader.read(start, end)
            for body in slab.records.column(slab.records.schema.get_field_index(PAYLOAD)).to_pylist()
        ]


def _opened(directory: Path, offsets: LogOffset, identity: str | None, file_bytes_max: int) -> LogWriter:
    """Open a log at its accepted offset. A log without lag that ends elsewhere starts again at that offset: it was
    deleted before a crash kept the journal from recording that, or is left over from an earlier log of that name."""

    def open_() -> LogWriter:
        return LogWriter(directory, file_bytes_max=file_bytes_max, identity=identity, start=offsets.accepted)

    log = open_()
    if not offsets.lag and log.end != offsets.accepted:
        log.close()
        shutil.rmtree(directory)
        log = open_()
    log.cut(offsets.accepted)
    return log


def _records(scheme: str, publications: Sequence[ParsedPublication]) -> pa.RecordBatch:
    """The columns that are matched, with the notification in place of the payload."""
    bodies = pa.array([publication.body for publication in publications], pa.binary())
    content = [publication.content for publication in publications]
    if scheme == ENCRYPTED:
        points = np.array(content, np.float64)
        column = pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), points.shape[1])
        return pa.RecordBatch.from_arrays([column, bodies], names=[POINT, PAYLOAD])
    records = PublicationBatch.from_dicts(content).records
    return pa.RecordBatch.from_arrays([*records.columns, bodies], names=[*records.schema.names, PAYLOAD])


def _blocks_behind(directory: Path, offset: int) -> Iterator[tuple[int, int]]:
    """End and bytes of each block that ends after an offset."""
    files = files_of(directory)
    for path, following in pairwise([*files, None]):
        assert path is not None
        if following is not None and int(following.stem) <= offset:
            continue
        for block in scan_blocks(path):
            if (end := block.first_offset + block.publications) > offset:
                yield end, block.length
