"""Snapshot files: chunks of state, each with a checksum that also covers all chunks before it.

    magic | checksum | journal id | position
    length | checksum | chunk          as often as there are chunks
    0 | checksum                       the end

A snapshot is put in place atomically, so unlike a segment it has no torn end: any fault is damage.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

from lavant.broker.storage.journal.config import JournalConfig
from lavant.broker.storage.journal.disk import Disk
from lavant.broker.storage.journal.manifest import JournalManifest, snapshot_name
from lavant.core.errors import CorruptJournal, LimitExceeded, is_newer, too_new

FORMAT = 1
_KIND = b"LVSNAPS"
_MAGIC = b"%b%d" % (_KIND, FORMAT)
_START = struct.Struct("<8sI")
_FIELDS = struct.Struct("<QQ")
_FRAME = struct.Struct("<II")
_START_BYTES = _START.size + _FIELDS.size
CHUNK_BYTES_MAX = 1 << 30


def snapshot_parts(chunks: Iterable[bytes], *, journal_id: int, position: int) -> Iterator[bytes]:
    """A snapshot file, part by part."""
    fields = _FIELDS.pack(journal_id, position)
    checksum = zlib.crc32(fields)
    yield _START.pack(_MAGIC, checksum) + fields
    for chunk in chunks:
        if len(chunk) > CHUNK_BYTES_MAX:
            raise LimitExceeded(
                f"a chunk of a snapshot has {len(chunk)} bytes, at most {CHUNK_BYTES_MAX} are allowed; make it smaller"
            )
        if chunk:  # a chunk of no bytes would be the end
            checksum = _next_checksum(checksum, chunk)
            yield _FRAME.pack(len(chunk), checksum)
            yield chunk
    yield _FRAME.pack(0, _next_checksum(checksum, b""))


def read_snapshot(disk: Disk, manifest: JournalManifest, config: JournalConfig) -> Iterator[bytes]:
    """The chunks of the journal's snapshot; raises `CorruptJournal` where it is damaged."""
    assert manifest.snapshot is not None
    name = snapshot_name(manifest.snapshot)
    fields = _FIELDS.pack(manifest.journal_id, manifest.snapshot)
    checksum = zlib.crc32(fields)
    start = disk.read(name, 0, _START_BYTES)
    expected_start = _START.pack(_MAGIC, checksum) + fields
    digit = start[len(_KIND) : len(_MAGIC)]
    is_other = start[len(_MAGIC) :] != expected_start[len(_MAGIC) :]
    if start.startswith(_KIND) and is_other and is_newer(digit, FORMAT):
        raise too_new(config.path(name), digit, FORMAT)
    if start != expected_start:
        raise _damaged(config, name, 0, "no snapshot of this journal begins there")
    position = _START_BYTES
    while True:
        frame = disk.read(name, position, _FRAME.size)
        if len(frame) < _FRAME.size:
            raise _damaged(config, name, position, "it ends too early")
        length, expected = _FRAME.unpack(frame)
        chunk = disk.read(name, position + _FRAME.size, length)
        checksum = _next_checksum(checksum, chunk)
        if len(chunk) != length or checksum != expected:
            raise _damaged(config, name, position, "the checksum differs")
        position += _FRAME.size + length
        if not length:
            break
        yield chunk
    if disk.read(name, position, 1):
        raise _damaged(config, name, position, "something follows its end")


def read_start(disk: Disk, name: str) -> tuple[int, int] | None:
    """The journal's id and the position of a snapshot file, if it begins as one."""
    start = disk.read(name, 0, _START_BYTES)
    fields = start[_START.size :]
    if len(start) < _START_BYTES or start[: _START.size] != _START.pack(_MAGIC, zlib.crc32(fields)):
        return None
    journal_id, position = _FIELDS.unpack(fields)
    return journal_id, position


def _next_checksum(checksum: int, chunk: bytes) -> int:
    return zlib.crc32(chunk, zlib.crc32(len(chunk).to_bytes(4, "little"), checksum))


def _damaged(config: JournalConfig, name: str, position: int, problem: str) -> CorruptJournal:
    return CorruptJournal(f"{config.path(name)} is damaged at byte {position}: {problem}; restore the file from a copy")
