"""A lane: one namespace's publications of one scheme: their log, their subscriptions in slices, and where those go.

The journal is the truth of what is subscribed, and of how far the log counts. So subscriptions in slices, which Spark
reads, are made anew at each start, and what the log holds beyond is cut off.
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
from lavant.service.runtime.match_delivery import DeliveryPart


class NamespaceLog:
    """What changes subscriptions and logs runs in the engine's thread; `owed…`, `stretch` and what they rest on are the
    loop's."""

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
        """`identity` is that of its log, which no other server's log has."""
        self.name = name
        self.scheme = scheme
        self.durable = offsets.delivered
        """Up to here publications are in queues, on disk; the log can do without them."""
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
        """The offset behind each block of the log that is not delivered as a whole, and its bytes."""
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
        """Onto the disk; their bytes."""
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
        """An appended block counts now."""
        self._blocks.append((end, size_bytes))
        self.owed_bytes += size_bytes

    def moved(self, delivered: int) -> None:
        while self._blocks and self._blocks[0][0] <= delivered:
            self.owed_bytes -= self._blocks.popleft()[1]

    def stretch(self, offsets: LogOffset) -> OffsetRange:
        """What comes next."""
        limits, size_bytes, end = self._limits, 0, offsets.delivered
        fitting = limits.stretch_matches_max // max(1, len(self._store))
        end_max = offsets.delivered + max(1, min(limits.stretch_publications_max, fitting))
        for behind, block_bytes in self._blocks:
            size_bytes += block_bytes
            if end > offsets.delivered and size_bytes > limits.stretch_bytes_max:
                break
            end = min(behind, end_max)
            if end == end_max:
                break
        directories = (str(self._log_directory), str(self._subscriptions_directory))
        identities = (self._log.identity, self._store.settings.identity)
        return OffsetRange(self.name, *directories, self._store.version, offsets.delivered, end, *identities)

    # ── what was found ────────────────────────────────────────────────────────────────────────────────────────────────

    def parts(self, found: MatchResults, delivered: int) -> list[DeliveryPart]:
        """Which queues get what of it, from offset `delivered` on: what is before has been there already."""
        self._log.trim(self.durable)
        if found.start > delivered:
            raise InvalidValue(
                f"lane {self.name!r} is delivered up to offset {delivered}, so what was found from {found.start} on "
                "comes too early"
            )
        if found.end <= delivered:
            return []
        if found.end > self._log.end:
            raise InvalidValue(f"the log of lane {self.name!r} ends at offset {self._log.end}, before {found.end}")
        matches = self._known(found.matches(), delivered - found.start)
        bodies = self._bodies(delivered, found.end)
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
        """From publication number `first` on, and without ids that nobody here ever had."""
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
    """At the offset up to which it counts. One of which nothing is owed, and that ends elsewhere, begins anew there: it
    was deleted before a crash let the journal forget that, or is what a lane of that name has left."""

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
    """For the log: what is matched, by column, and in the payload's place what subscribers get."""
    bodies = pa.array([publication.body for publication in publications], pa.binary())
    content = [publication.content for publication in publications]
    if scheme == ENCRYPTED:
        points = np.array(content, np.float64)
        column = pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), points.shape[1])
        return pa.RecordBatch.from_arrays([column, bodies], names=[POINT, PAYLOAD])
    records = PublicationBatch.from_dicts(content).records
    return pa.RecordBatch.from_arrays([*records.columns, bodies], names=[*records.schema.names, PAYLOAD])


def _blocks_behind(directory: Path, offset: int) -> Iterator[tuple[int, int]]:
    """The end of each block that ends behind an offset, and its bytes."""
    files = files_of(directory)
    for path, following in pairwise([*files, None]):
        assert path is not None
        if following is not None and int(following.stem) <= offset:
            continue
        for block in scan_blocks(path):
            if (end := block.first_offset + block.publications) > offset:
                yield end, block.length
