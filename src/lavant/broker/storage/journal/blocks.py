"""Blocks: the unit of a group commit, records behind a header with checksums.

    header = magic | header checksum | body checksum | journal id | first position | records | body length | mask | mark
    body   = length of each record | the records
    filler = 255, at least once, up to the end of the sector

Blocks start at sectors, so a sector belongs to one block only, and unwritten space is zeros. The next block is written
when this one is durable, so a crash can tear only the last. Torn and damaged blocks are distinguished:

    torn      a sector is missing, that is, zeros: a crash before the block was confirmed; it may be cut off
    damaged   no sector is missing, and still the checksum differs: the block may have been confirmed

A single flipped bit never makes a whole block look torn: no sector has fewer than two bits set (see `hide`), and
neither the header's mark nor the filler, which reveal a block cut off at any byte, turn into zeros.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from hashlib import shake_128
from itertools import accumulate, pairwise
from typing import NamedTuple

from lavant.broker.storage.journal.disk import SECTOR_BYTES

_HOLLOW = bytes(SECTOR_BYTES // 2)
"""A sector with at most one bit set has at least this many zeros in a row."""
_MASKS_MAX = 255
_ZERO_SECTOR = bytes(SECTOR_BYTES)
_ZEROS = bytes(1 << 16)


def is_hollow(body: bytes) -> bool:
    """Whether a sector of this body may have fewer than two bits set."""
    return _HOLLOW in body


def hide(body: bytes, journal_id: int) -> tuple[int, bytes]:
    """A mask under which no sector is hollow, and the masked body."""
    for mask in range(1, _MASKS_MAX + 1):
        hidden = apply_mask(body, mask, journal_id)
        if not is_hollow(hidden):
            return mask, hidden
    raise AssertionError("a body cannot resemble all masks")


def apply_mask(body: bytes, mask: int, journal_id: int) -> bytes:
    """Mask or unmask: applied twice, it restores the body."""
    length = len(body)
    pattern = (_pattern(mask, journal_id) * (length // SECTOR_BYTES + 1))[:length]
    return (int.from_bytes(body, "little") ^ int.from_bytes(pattern, "little")).to_bytes(length, "little")


@lru_cache(16)
def _pattern(mask: int, journal_id: int) -> bytes:
    seed = mask.to_bytes(8, "little") + journal_id.to_bytes(8, "little")
    return shake_128(seed).digest(SECTOR_BYTES)


FORMAT = 1
KIND = b"LVBLOCK"
MAGIC = b"%b%d" % (KIND, FORMAT)
_MARK = b"\xa5\x5a\xa5\x5a"
_START = struct.Struct("<8sI")
_FIELDS = struct.Struct("<IQQIII4s")
"""The part of the header that its checksum covers."""
_HEADER = struct.Struct("<8sIIQQIII4s")
HEADER_BYTES = _HEADER.size
_FILLER = b"\xff" * SECTOR_BYTES
_LENGTH_BYTES = 4


class Header(NamedTuple):
    checksum: int
    journal_id: int
    first: int
    """The position of the first record."""
    records: int
    length: int
    """Of the body, in bytes."""
    mask: int
    """0 if there is none."""


class JournalBlock(NamedTuple):
    """A complete block, by the offsets of its parts."""

    start: int
    """Of the body."""
    end: int
    records: int
    mask: int
    block_end: int


def block_bytes(records: int, content_bytes: int) -> int:
    """The size of a block with so many records of so many bytes in total."""
    filled = HEADER_BYTES + _LENGTH_BYTES * records + content_bytes
    return (filled + SECTOR_BYTES) // SECTOR_BYTES * SECTOR_BYTES


def encode_block(records: list[bytes], first: int, journal_id: int) -> bytes:
    lengths = struct.pack(f"<{len(records)}I", *map(len, records))
    body = b"".join((lengths, *records))
    mask = 0
    if is_hollow(body):
        mask, body = hide(body, journal_id)
    fields = _FIELDS.pack(zlib.crc32(body), journal_id, first, len(records), len(body), mask, _MARK)
    start = _START.pack(MAGIC, zlib.crc32(fields))
    return b"".join((start, fields, body, _FILLER[(HEADER_BYTES + len(body)) % SECTOR_BYTES :]))


def read_header(data: bytes, offset: int) -> Header | None:
    """The header at this offset, or None if there is no complete one."""
    if not data.startswith(MAGIC, offset) or offset + HEADER_BYTES > len(data):
        return None
    _, header_checksum, *fields, _ = _HEADER.unpack_from(data, offset)
    if header_checksum != zlib.crc32(data[offset + _START.size : offset + HEADER_BYTES]):
        return None
    return Header(*fields)


def read_block(data: bytes, offset: int, *, first: int, journal_id: int) -> JournalBlock | None:
    """The block at this offset if it is complete and the expected one."""
    start = offset + HEADER_BYTES
    if start > len(data):
        return None
    magic, header_checksum, checksum, its_id, its_first, records, length, mask, _ = _HEADER.unpack_from(data, offset)
    if magic != MAGIC or its_first != first or its_id != journal_id:
        return None
    end = start + length
    block_end = end + SECTOR_BYTES - end % SECTOR_BYTES
    view = memoryview(data)
    if (
        block_end > len(data)
        or zlib.crc32(view[offset + _START.size : start]) != header_checksum
        or zlib.crc32(view[start:end]) != checksum
    ):
        return None
    return JournalBlock(start, end, records, mask, block_end)


def end_of(offset: int, header: Header) -> int:
    return offset + block_bytes(0, header.length)


def decode_block(data: bytes, block: JournalBlock, journal_id: int) -> list[bytes]:
    start = block.start
    if block.mask:
        data = apply_mask(data[start : block.end], block.mask, journal_id)
        start = 0
    elif block.records == 1:
        return [data[start + _LENGTH_BYTES : block.end]]
    lengths = struct.unpack_from(f"<{block.records}I", data, start)
    ends = accumulate(lengths, initial=start + _LENGTH_BYTES * block.records)
    return [data[a:b] for a, b in pairwise(ends)]


def is_torn(data: bytes, offset: int, header: Header | None) -> bool:
    """Whether a crash explains the incomplete block here: a part never reached the disk."""
    if offset + HEADER_BYTES > len(data):  # a crash does not shorten files
        return False
    if header is None:
        return data[offset + HEADER_BYTES - 1] == 0
    end = end_of(offset, header)
    if end > len(data):
        return False
    sectors = (data[start : start + SECTOR_BYTES] for start in range(offset, end, SECTOR_BYTES))
    return data[end - 1] == 0 or _ZERO_SECTOR in sectors


def is_empty(data: bytes, offset: int) -> bool:
    """Whether there are only zeros from here on."""
    return all(_ZEROS.startswith(data[start : start + len(_ZEROS)]) for start in range(offset, len(data), len(_ZEROS)))


def find_header(data: bytes, offset: int, journal_id: int, first_min: int) -> int | None:
    """The offset from here on of a block of this journal with this position or a later one."""
    while (offset := data.find(MAGIC, offset)) >= 0:
        header = read_header(data, offset) if offset % SECTOR_BYTES == 0 else None
        if header is not None and header.journal_id == journal_id and header.first >= first_min:
            return offset
        offset += 1
    return None
