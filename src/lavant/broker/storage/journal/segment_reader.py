"""Reads a journal's segments: every record in order, and whether the end found is the true end.

found where the next block should begin              meaning
───────────────────────────────────────────────      ──────────────────────────────────────────────────────
a complete block with the next position              read it, continue after it
zeros up to the segment's end                        continue in the next segment; after the last one: the end
anything else, with blocks of this journal after it  damaged in the middle: refuse
anything else that a crash explains                  a torn end, never confirmed: cut it off
anything else                                        damaged: refuse
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from lavant.broker.storage.journal.blocks import (
    FORMAT,
    HEADER_BYTES,
    KIND,
    MAGIC,
    decode_block,
    end_of,
    find_header,
    is_empty,
    is_torn,
    read_block,
    read_header,
)
from lavant.broker.storage.journal.config import JournalConfig
from lavant.broker.storage.journal.disk import SECTOR_BYTES, Disk
from lavant.broker.storage.journal.manifest import JournalManifest, segment_name
from lavant.broker.storage.journal.segments import Extent
from lavant.core.errors import CorruptJournal, is_newer, too_new


class TornEnd(NamedTuple):
    """The remains of a block that was never confirmed, after a crash."""

    segment: int
    offset: int
    length: int
    """Of the remains; only zeros follow."""
    expected: int
    """The block's size according to its header; 0 if that is torn too."""

    def described(self, config: JournalConfig) -> str:
        """For the log: what is cut off, and how much of it never reached the disk."""
        missing = self.expected - self.length
        zeros = f"; of its {self.expected:,} bytes the last {missing:,} are zeros" if missing > 0 else ""
        return (
            f"{config.path(segment_name(self.segment))}: {self.length:,} bytes at byte {self.offset:,} are the "
            f"remains of a write that a crash interrupted before it was confirmed{zeros}"
        )


class JournalEnd(NamedTuple):
    """Where a journal ends."""

    position: int
    """Of the last record."""
    extents: list[Extent]
    """Of all segments from the first to the spare."""
    torn: list[TornEnd]


class SegmentReader:
    """Reads the segments that a manifest names."""

    def __init__(self, disk: Disk, manifest: JournalManifest, config: JournalConfig) -> None:
        self._disk = disk
        self._manifest = manifest
        self._config = config

    def read(self, after: int) -> Generator[list[bytes], None, JournalEnd]:
        """The records after position `after`, block by block. Raises `CorruptJournal` where they are damaged."""
        journal_id = self._manifest.journal_id
        expected = self._manifest.first_position
        extents: list[Extent] = []
        torn: list[TornEnd] = []
        for number in self._manifest.segments():
            data = self._disk.read(segment_name(number))
            first = expected
            offset = 0
            while (block := read_block(data, offset, first=expected, journal_id=journal_id)) is not None:
                offset = block.block_end
                expected += block.records
                if expected > after + 1:
                    records = decode_block(data, block, journal_id)
                    yield records[max(0, after + 1 - (expected - block.records)) :]
            extents.append(Extent(number, first, offset, len(data)))
            if not is_empty(data, offset):
                torn.append(self._examine(number, data, offset, expected))
        if expected <= self._manifest.durable:
            raise CorruptJournal(
                f"{self._config.path(segment_name(extents[-1].number))} is the last segment, and records {expected} "
                f"to {self._manifest.durable}, which were confirmed, are in none; restore the segments from a copy"
            )
        return JournalEnd(expected - 1, extents, torn)

    def _examine(self, number: int, data: bytes, offset: int, expected: int) -> TornEnd:
        """Decide what is here instead of the next block: a torn end, or else an error."""
        digit, rest = data[offset + len(KIND) : offset + len(MAGIC)], data[offset + len(MAGIC) : offset + HEADER_BYTES]
        is_other = read_header(MAGIC + rest, 0) is None
        if data.startswith(KIND, offset) and is_other and is_newer(digit, FORMAT):
            raise too_new(self._config.path(segment_name(number)), digit, FORMAT)
        header = read_header(data, offset)
        if header is not None and header.journal_id != self._manifest.journal_id:
            raise self._damaged(number, offset, "a block of another journal begins there; put back this journal's file")
        if header is not None and header.first != expected:
            problem = f"record {header.first} stands where {expected} should; restore this file and those before it"
            raise self._damaged(number, offset, f"{problem} from a copy")
        problem = f"record {expected} should begin there"
        later = self._later(number, data, offset + SECTOR_BYTES if header is None else end_of(offset, header), expected)
        if later is not None:
            raise self._damaged(number, offset, f"{problem}, and later ones are {later}; restore the file from a copy")
        if expected <= self._manifest.durable:
            raise self._damaged(number, offset, f"{problem}, and was confirmed; restore the file from a copy")
        if not is_torn(data, offset, header):
            give_up = f"truncate -s {offset} {self._config.path(segment_name(number))}"
            problem += ", and may have been confirmed; restore the file from a copy, or give up the journal's end:"
            raise self._damaged(number, offset, f"{problem} {give_up}")
        expected = 0 if header is None else end_of(offset, header) - offset
        return TornEnd(number, offset, len(data.rstrip(b"\0")) - offset, expected)

    def _later(self, number: int, data: bytes, offset: int, expected: int) -> str | None:
        """Where after this offset a later block of this journal begins, as text; None if there is none."""
        journal_id = self._manifest.journal_id
        found = find_header(data, offset, journal_id, expected)
        if found is not None:
            return f"at byte {found}"
        for later in range(number + 1, self._manifest.last_segment + 1):
            found = find_header(self._disk.read(segment_name(later)), 0, journal_id, expected)
            if found is not None:
                return f"at byte {found} of {segment_name(later)}"
        return None

    def _damaged(self, number: int, offset: int, problem: str) -> CorruptJournal:
        return CorruptJournal(f"{self._config.path(segment_name(number))} is damaged at byte {offset}: {problem}")
