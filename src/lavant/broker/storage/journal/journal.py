"""The journal: appends records to segments, and confirms each when it is durable.

    stage() ─► staged ─ begin() ─► Write ─ the caller writes and syncs ─► finish() ─► durable
    upkeep() ─► Upkeep ─ the caller applies it ─► finish_upkeep(), or refuse_upkeep() if the disk is full

Once open, the journal does nothing to the disk itself: it returns what to do, and is told when that is done. At most
one write and one upkeep are outstanding; they may run concurrently.

One spare segment is kept ready. While there is none and the disk has no space for it, the journal `is_full`: the rest
of the active segment is reserved for records that free space (receives and acknowledgements).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain

import msgspec

from lavant.broker.storage.journal.blocks import block_bytes, encode_block
from lavant.broker.storage.journal.config import DEFAULT, JournalConfig
from lavant.broker.storage.journal.disk import Disk
from lavant.broker.storage.journal.files import apply_upkeep, clean_up, read_manifest
from lavant.broker.storage.journal.manifest import MANIFEST, JournalManifest, segment_name, snapshot_name
from lavant.broker.storage.journal.segment_reader import JournalEnd, SegmentReader, TornEnd
from lavant.broker.storage.journal.segments import Segments, SegmentUpkeep, create_segment
from lavant.broker.storage.journal.snapshots import read_snapshot
from lavant.core.errors import InvalidValue, LimitExceeded

EXHAUSTED_FRACTION = 16
"""A full journal is exhausted when less than this part of a segment is left; outstanding records still fit then."""


class Write(msgspec.Struct, frozen=True):
    """Write this, sync the file, then call `finish`."""

    name: str
    offset: int
    data: bytes
    last: int
    """The position of its last record."""


class RecoveredJournal(msgspec.Struct, frozen=True):
    """The contents of an opened journal. Read `records` to the end before you stage anything."""

    position: int
    """Of the last record in the snapshot; 0 without one."""
    chunks: Iterator[bytes] | None
    """The snapshot, if there is one."""
    records: Iterator[bytes]
    """Records after the snapshot, in order. Raises `CorruptJournal` where they are damaged."""


class Journal:
    """One journal on one disk; create it with `open`."""

    def __init__(self, manifest: JournalManifest, config: JournalConfig) -> None:
        self.durable = 0
        """The position up to which all records are durable."""
        self.position = 0
        """Of the last record that was staged."""
        self.staged_bytes = 0
        """Of the records staged and not yet being written."""
        self.is_full = False
        """No space for new content: there is no spare segment, and the disk has no space for one."""
        self.torn: list[TornEnd] = []
        """The torn end that was cut off when the journal was opened."""
        self._config = config
        self._record_bytes_max = config.record_bytes_max
        self._block_bytes_max = min(config.block_bytes_max, config.segment_bytes)
        self.identity = manifest.journal_id
        """Identifies its own blocks."""
        self._segments = Segments(manifest, [])
        self._staged: list[bytes] = []
        self._is_open = False
        self._writing: Write | None = None
        self._upkeep: SegmentUpkeep | None = None
        self._is_waiting = False
        """An upkeep was refused, and the next waits for `retry`."""
        self._snapshot: tuple[int, int] | None = None
        """A snapshot that is written and not yet in use: its position and its size."""

    @classmethod
    def open(cls, disk: Disk, config: JournalConfig = DEFAULT, *, new_id: int = 0) -> tuple[Journal, RecoveredJournal]:
        """Open the journal on this disk, or create one. The disk must not be shared.

        A new journal gets the 64-bit id `new_id`, random except in tests, which marks its blocks. Raises
        `CorruptJournal`, and `StorageFull` if there is no space for a new one.
        """
        manifest = read_manifest(disk, config)
        if manifest is None:
            manifest = JournalManifest(journal_id=new_id)
            disk.replace(MANIFEST, [manifest.encode()])
        if not manifest.segments():
            clean_up(disk, manifest, config)
            upkeep = create_segment(manifest, config.next_segment_bytes(0, 0))
            apply_upkeep(disk, upkeep)
            manifest = upkeep.manifest
        journal = cls(manifest, config)
        chunks = None if manifest.snapshot is None else read_snapshot(disk, manifest, config)
        records = chain.from_iterable(journal._recover(disk, manifest))
        return journal, RecoveredJournal(manifest.snapshot_position(), chunks, records)

    def _recover(self, disk: Disk, manifest: JournalManifest) -> Generator[list[bytes], None, None]:
        end: JournalEnd = yield from SegmentReader(disk, manifest, self._config).read(manifest.snapshot_position())
        clean_up(disk, manifest, self._config)  # not before: leftovers may help to repair a damaged journal
        for torn in end.torn:
            # The next block must not precede the remains of a torn one, nor be mixed with them if torn
            # itself.
            name = segment_name(torn.segment)
            disk.write(name, torn.offset, bytes(torn.length))
            disk.sync(name)
        self.torn = end.torn
        self.durable = self.position = end.position
        self._segments = Segments(manifest, end.extents)
        # A process that died may have left its last block written and not synced.
        disk.sync(segment_name(self._segments.active.number))
        self._is_open = True

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def stage(self, record: bytes) -> int:
        """Take a record, to be written with the next block, and return its position."""
        assert self._is_open, "read the recovered records to their end first"
        if len(record) > self._record_bytes_max:
            raise LimitExceeded(
                f"a record has {len(record)} bytes, a segment of {self._config.segment_bytes} bytes holds at most "
                f"{self._record_bytes_max}; send less at once, or set larger segments"
            )
        self._staged.append(record)
        self.staged_bytes += len(record)
        self.position += 1
        return self.position

    def begin(self) -> Write | None:
        """The staged records as one block; None if there are none, a write is outstanding, or there is no room."""
        if self._writing is not None or not self._staged:
            return None
        records = self._take()
        if not records:
            return None
        data = encode_block(records, self.durable + 1, self.identity)
        active = self._segments.active
        self._writing = Write(segment_name(active.number), active.filled_bytes, data, self.durable + len(records))
        return self._writing

    def finish(self, write: Write) -> int:
        """The write is durable; return the position up to which everything is."""
        assert write is self._writing, "this is not the outstanding write"
        self._segments.fill(write.offset + len(write.data))
        self._writing = None
        self.durable = write.last
        return self.durable

    @property
    def is_exhausted(self) -> bool:
        """Full, and even the reserve is used up: stage nothing more."""
        return self.is_full and self._segments.room_bytes < self._segments.active.size_bytes // EXHAUSTED_FRACTION

    def _take(self) -> list[bytes]:
        """The staged records for the next block, which then fits into the active segment; there may be none."""
        count = len(self._staged)
        size = block_bytes(count, self.staged_bytes)
        if size > self._block_bytes_max:
            count, size = self._fitting(self._block_bytes_max)
            if not count:  # a large record is a block of its own
                count, size = 1, block_bytes(1, len(self._staged[0]))
        while size > self._segments.room_bytes and self._segments.has_spare:
            self._segments.roll(self.durable + 1)
        if size > self._segments.room_bytes:
            count, _ = self._fitting(self._segments.room_bytes)
        records, self._staged = self._staged[:count], self._staged[count:]
        self.staged_bytes = sum(map(len, self._staged))
        return records

    def _fitting(self, size_max: int) -> tuple[int, int]:
        """How many of the first records fit into a block of this size, and their size."""
        count = content = size = 0
        for record in self._staged:
            content += len(record)
            larger = block_bytes(count + 1, content)
            if larger > size_max:
                break
            count, size = count + 1, larger
        return count, size

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def upkeep(self) -> SegmentUpkeep | None:
        """The next change of files, if any: put a new snapshot to use, or create a spare segment."""
        if self._upkeep is not None or self._is_waiting or not self._is_open:
            return None
        if self._snapshot is not None:
            self._upkeep = self._segments.use_snapshot(self.durable, *self._snapshot)
        elif not self._segments.has_spare:
            waiting_bytes = block_bytes(1, len(self._staged[0])) if self._staged else 0
            size_bytes = self._config.next_segment_bytes(self._segments.active.size_bytes, waiting_bytes)
            self._upkeep = self._segments.create_spare(self.durable, size_bytes)
        return self._upkeep

    def finish_upkeep(self, upkeep: SegmentUpkeep) -> None:
        """The upkeep was applied."""
        assert upkeep is self._upkeep, "this is not the outstanding upkeep"
        self._upkeep = None
        self._segments.update(upkeep)
        if upkeep.create is None:
            self._snapshot = None
        self.is_full = self.is_full and not self._segments.has_spare

    def refuse_upkeep(self, upkeep: SegmentUpkeep) -> None:
        """The upkeep was not applied, since the disk is full. The next one is due after `retry`."""
        assert upkeep is self._upkeep, "this is not the outstanding upkeep"
        self._upkeep = None
        self._is_waiting = True
        self.is_full = not self._segments.has_spare

    def retry(self) -> None:
        """There may be space again: call from time to time after a refusal."""
        self._is_waiting = False

    def adopt(self, position: int, size_bytes: int) -> None:
        """A snapshot up to this position is written: the next upkeep puts it to use and drops what it includes."""
        in_use = self._segments.manifest.snapshot_position()
        if not in_use < position <= self.durable:
            raise InvalidValue(
                f"a snapshot up to record {position} cannot be used: the one in use includes record {in_use}, and "
                f"record {self.durable} is the last durable one"
            )
        self._snapshot = (position, size_bytes)
        self._is_waiting = False

    def closing(self) -> SegmentUpkeep:
        """The last upkeep, applied when the journal is closed: the manifest then records where it ends."""
        return SegmentUpkeep(manifest=msgspec.structs.replace(self._segments.manifest, durable=self.durable))

    def durable_files(self) -> tuple[JournalManifest, dict[str, int | None]]:
        """A journal that ends with the last durable record: its manifest, and how many bytes of each file it needs.

        None stands for the whole file. These bytes never change, though compaction may remove the files.
        """
        manifest, filled = self._segments.filled(self.durable)
        files: dict[str, int | None] = {segment_name(extent.number): extent.filled_bytes for extent in filled}
        if manifest.snapshot is not None:
            files[snapshot_name(manifest.snapshot)] = None
        return manifest, files

    @property
    def sealed_bytes(self) -> int:
        """Bytes in filled segments, which compaction could fold and drop."""
        return self._segments.sealed_bytes

    @property
    def wants_compaction(self) -> bool:
        """There is enough to fold, or the disk is full and compaction may free space."""
        manifest = self._segments.manifest
        if self._snapshot is not None or self.durable <= manifest.snapshot_position():
            return False  # a full segment's records may all be in the snapshot: there is nothing to fold yet
        if self.is_exhausted:
            return True  # no segment would be dropped, but the next snapshot may be smaller than the last
        enough = max(self._config.compaction_bytes_min, manifest.snapshot_bytes)
        return self.sealed_bytes > (0 if self.is_full else enough)
