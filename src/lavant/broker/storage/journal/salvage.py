"""Salvage: every record of a journal that can still be read, whatever is damaged, missing or misplaced.

The manifest is not needed: each block has the id of its journal and the position of its first record. So all segments
are scanned for blocks, which are sorted by position; bytes outside complete blocks are gaps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from lavant.broker.storage.journal.blocks import decode_block, find_header, is_empty, read_block, read_header
from lavant.broker.storage.journal.config import DEFAULT, JournalConfig
from lavant.broker.storage.journal.disk import SECTOR_BYTES, Disk
from lavant.broker.storage.journal.manifest import MANIFEST, JournalManifest, decode_manifest, is_segment, is_snapshot
from lavant.broker.storage.journal.snapshots import read_start
from lavant.core.errors import UNDECODABLE, CorruptJournal


class SalvagedBlock(NamedTuple):
    """A complete block."""

    first: int
    """The position of its first record."""
    records: int
    file: str
    offset: int


class Gap(NamedTuple):
    """Bytes of a segment that belong to no complete block of the journal."""

    file: str
    offset: int
    length: int


class Unreadable(NamedTuple):
    file: str
    problem: str


class Salvaged(NamedTuple):
    """What is left of a journal."""

    journal_id: int
    manifest: JournalManifest | None
    """If it can be read."""
    snapshots: list[int]
    """Positions of the files that begin as snapshots of this journal, the latest first."""
    blocks: list[SalvagedBlock]
    """All complete blocks, by position; duplicates once."""
    gaps: list[Gap]
    unreadable: list[Unreadable]


def salvage(disk: Disk, config: JournalConfig = DEFAULT) -> Salvaged | None:
    """What can be read; None if there is no sign of a journal. Holds one segment at a time in memory."""
    names = disk.names()
    manifest = _manifest(disk, names, config)
    snapshots = [start for name in names if is_snapshot(name) and (start := _start(disk, name)) is not None]
    journal_id = _journal_id(disk, names, snapshots) if manifest is None else manifest.journal_id
    if journal_id is None:
        return None
    found: dict[int, SalvagedBlock] = {}
    gaps: list[Gap] = []
    unreadable: list[Unreadable] = []
    for name, data in _segments(disk, names):
        if isinstance(data, Unreadable):
            unreadable.append(data)
            continue
        for part in _parts(name, data, journal_id):
            if isinstance(part, Gap):
                gaps.append(part)
            else:
                found.setdefault(part.first, part)
    positions = sorted((position for its_id, position in snapshots if its_id == journal_id), reverse=True)
    return Salvaged(journal_id, manifest, positions, [found[first] for first in sorted(found)], gaps, unreadable)


def records_at(disk: Disk, block: SalvagedBlock, journal_id: int) -> list[bytes]:
    """The records of a block that `salvage` found."""
    header = disk.read(block.file, block.offset, SECTOR_BYTES)
    known = read_header(header, 0)
    assert known is not None
    data = disk.read(block.file, block.offset, known.length + 2 * SECTOR_BYTES)
    found = read_block(data, 0, first=block.first, journal_id=journal_id)
    assert found is not None
    return decode_block(data, found, journal_id)


def _manifest(disk: Disk, names: list[str], config: JournalConfig) -> JournalManifest | None:
    try:
        return decode_manifest(disk.read(MANIFEST), config) if MANIFEST in names else None
    except (CorruptJournal, OSError, *UNDECODABLE):
        return None


def _segments(disk: Disk, names: list[str]) -> Iterator[tuple[str, bytes | Unreadable]]:
    for name in filter(is_segment, names):
        try:
            yield name, disk.read(name)
        except OSError as error:
            yield name, Unreadable(name, str(error.strerror))


def _start(disk: Disk, name: str) -> tuple[int, int] | None:
    try:
        return read_start(disk, name)
    except OSError:
        return None


def _journal_id(disk: Disk, names: list[str], snapshots: list[tuple[int, int]]) -> int | None:
    """Without a manifest, the most frequent id decides."""
    ids = Counter(journal_id for journal_id, _ in snapshots)
    for _, data in _segments(disk, names):
        if isinstance(data, bytes):
            headers = (read_header(data, offset) for offset in range(0, len(data), SECTOR_BYTES))
            ids.update(header.journal_id for header in headers if header is not None)
    return ids.most_common(1)[0][0] if ids else None


def _parts(name: str, data: bytes, journal_id: int) -> Iterator[SalvagedBlock | Gap]:
    offset = 0
    while offset < len(data) and not is_empty(data, offset):
        header = read_header(data, offset)
        block = None if header is None else read_block(data, offset, first=header.first, journal_id=journal_id)
        if header is not None and block is not None:
            yield SalvagedBlock(header.first, header.records, name, offset)
            offset = block.block_end
            continue
        after = find_header(data, offset + SECTOR_BYTES, journal_id, 0)
        end = len(data.rstrip(b"\0")) if after is None else after
        yield Gap(name, offset, end - offset)
        offset = len(data) if after is None else after
