"""The manifest: the files that belong to a journal, replaced atomically.

    manifest                         journal id, segments, snapshot, and how far the records are known to reach
    segment-0000000004               blocks, then zeros
    segment-0000000005               …
    segment-0000000006               the spare: only zeros yet
    snapshot-00000000000000071234    everything up to record 71234, folded

    lavant-journal 1 1f0c32ab        format, checksum of the next line
    {"journal_id":…,…}

A segment that the manifest names must exist. One that it does not name is left from a crash: created and not yet in
use, or already folded into the snapshot.
"""

from __future__ import annotations

import re
import zlib

import msgspec

from lavant.broker.storage.journal.config import JournalConfig
from lavant.core.errors import UNDECODABLE, CorruptJournal, NewerFormat, too_new

MANIFEST = "manifest"
FORMAT = 1
_FIRST_LINE = re.compile(rb"lavant-journal (\d{1,9}) ([0-9a-f]{8})\n")
_SEGMENT = re.compile(r"segment-\d{10}")
_SNAPSHOT = re.compile(r"snapshot-\d{20}")


class JournalManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    journal_id: int
    first_segment: int = 1
    last_segment: int = 0
    """The spare, if there is one."""
    first_position: int = 1
    """Of the first record in the first segment."""
    durable: int = 0
    """Records exist at least up to here: a journal that ends before has lost some."""
    snapshot: int | None = None
    """The last record that the snapshot includes; None without a snapshot."""
    snapshot_bytes: int = 0

    def segments(self) -> range:
        return range(self.first_segment, self.last_segment + 1)

    def snapshot_position(self) -> int:
        """The last record in the snapshot; 0 without one."""
        return 0 if self.snapshot is None else self.snapshot

    def encode(self) -> bytes:
        text = msgspec.json.encode(self)
        return b"lavant-journal %d %08x\n%b\n" % (FORMAT, zlib.crc32(text), text)


def decode_manifest(data: bytes, config: JournalConfig) -> JournalManifest:
    path = config.path(MANIFEST)
    match = _FIRST_LINE.match(data)
    if match is None:
        raise CorruptJournal(f"{path} is damaged at byte 0: no manifest begins there; restore the file from a copy")
    version = int(match[1])
    if version != FORMAT:
        raise too_new(path, version, FORMAT)
    text = data[match.end() :].removesuffix(b"\n")
    if zlib.crc32(text) != int(match[2], 16):
        raise CorruptJournal(
            f"{path} is damaged at byte {match.end()}: the checksum differs; restore the file from a copy"
        )
    try:
        return msgspec.json.decode(text, type=JournalManifest)
    except UNDECODABLE as error:
        raise NewerFormat(
            f"{path} has content that this version of Lavant does not know ({error}); use the version that wrote "
            "it, or a later one"
        ) from None


def segment_name(number: int) -> str:
    return f"segment-{number:010d}"


def snapshot_name(position: int) -> str:
    return f"snapshot-{position:020d}"


def is_segment(name: str) -> bool:
    return _SEGMENT.fullmatch(name) is not None


def is_snapshot(name: str) -> bool:
    return _SNAPSHOT.fullmatch(name) is not None
