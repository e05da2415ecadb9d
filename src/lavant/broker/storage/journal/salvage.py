"""Salvage: every record of a journal that can still be read, whatever is damaged, missing or misplaced.

The manifest is not needed: each block knows its journal and the position of its first record. So blocks are looked for
in all segments, and put in the order of their positions; bytes that belong to no whole block are gaps.
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


class Place(NamedTuple):
    """A whole block."""

    first: int
    """The position of its first record."""
    records: int
    file: str
    offset: int


class Gap(NamedTuple):
    """Bytes of a segment that are no whole block of the journal."""

    file: str
    offset: int
    length: int


class Unreadable(NamedTuple):
    file: str
    problem: str


class Salvaged(NamedTuple):
    """What there is of a journal."""

    journal_id: int
    manifest: JournalManifest | None
    """If it can be read."""
    snapshots: list[int]
    """The positions of those that begin as one of this journal, the latest first."""
    places: list[Place]
    """Of all whole blocks, by position; what is there twice is here once."""
    gaps: list[Gap]
    unreadable: list[Unreadable]


def salvage(disk: Disk, config: JournalConfig = DEFAULT) -> Salvaged | None:
    """What can be read; none if nothing says that there was ever a journal. One segment at a time is in memory."""
    names = disk.names()
    manifest = _manifest(disk, names, config)
    snapshots = [start for name in names if is_snapshot(name) and (start := _start(disk, name)) is not None]
    journal_id = _journal_id(disk, names, snapshots) if manifest is None else manifest.journal_id
    if journal_id is None:
        return None
    found: dict[int, Place] = {}
    gaps: list[Gap] = []
    unreadable: list[Unreadable] = []
    for name, data in _segments(disk, names):
        if isinstance(data, Unreadable):
            unreadable.append(data)
            continue
        for piece in _pieces(name, data, journal_id):
            if isinstance(piece, Gap):
                gaps.append(piece)
            else:
                found.setdefault(piece.first, piece)
    positions = sorted((position for its_id, position in snapshots if its_id == journal_id), reverse=True)
    return Salvaged(journal_id, manifest, positions, [found[first] for first in sorted(found)], gaps, unreadable)


def records_at(disk: Disk, place: Place, journal_id: int) -> list[bytes]:
    """The records of a block that `salvage` found."""
    header = disk.read(place.file, place.offset, SECTOR_BYTES)
    known = read_header(header, 0)
    assert known is not None
    data = disk.read(place.file, place.offset, known.length + 2 * SECTOR_BYTES)
    block = read_block(data, 0, first=place.first, journal_id=journal_id)
    assert block is not None
    return decode_block(data, block, journal_id)


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
    """Without a manifest, most of what is there decides whose journal it is."""
    ids = Counter(journal_id for journal_id, _ in snapshots)
    for _, data in _segments(disk, names):
        if isinstance(data, bytes):
            headers = (read_header(data, offset) for offset in range(0, len(data), SECTOR_BYTES))
            ids.update(header.journal_id for header in headers if header is not None)
    return ids.most_common(1)[0][0] if ids else None


def _pieces(name: str, data: bytes, journal_id: int) -> Iterator[Place | Gap]:
    offset = 0
    while offset < len(data) and not is_empty(data, offset):
        header = read_header(data, offset)
        block = None if header is None else read_block(data, offset, first=header.first, journal_id=journal_id)
        if header is not None and block is not None:
            yield Place(header.first, header.records, name, offset)
            offset = block.block_end
            continue
        after = find_header(data, offset + SECTOR_BYTES, journal_id, 0)
        end = len(data.rstrip(b"\0")) if after is None else after
        yield Gap(name, offset, end - offset)
        offset = len(data) if after is None else after
