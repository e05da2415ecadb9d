"""The files of a log: blocks of publications, each an Arrow record batch behind a header with its checksum.

    00000000000000000000.log      the file whose first publication has offset 0
    00000000000000120000.log      the next one …

    block = magic | header checksum | body checksum | body length | first offset | publications | body (Arrow IPC)

An incomplete block does not count: a crash may tear the last one, which is cut off when the log is next opened for
writing. A damaged block with others after it is an error, because confirmed publications are lost. The header has a
checksum of its own, so that a damaged length is not taken for a torn end.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from lavant.core.errors import CorruptSnapshot, LimitExceeded, is_newer, too_new

FORMAT = 1
MAGIC = 0x4C564C00 | ord(str(FORMAT))
HEADER = struct.Struct("<IIIIQI")
_CHECKED = struct.Struct("<IIQI")
"""The part of the header that its checksum covers: all after it."""
BODY_BYTES_MAX = 1 << 30


class LogBatch(NamedTuple):
    """Consecutive publications, and the offset of the first."""

    first_offset: int
    records: pa.RecordBatch


class BlockExtent(NamedTuple):
    """The publications of a block, and about how many bytes they take."""

    first_offset: int
    publications: int
    length: int


class BlockHeader(NamedTuple):
    """What a header says, and the position of the body."""

    position: int
    length: int
    first_offset: int
    publications: int
    checksum: int


class LogBlock(NamedTuple):
    """The location of a block's body, and its publications."""

    path: Path
    position: int
    length: int
    first_offset: int
    publications: int
    checksum: int


def encode_block(records: pa.RecordBatch, first_offset: int) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as stream:
        stream.write_batch(records)
    body: bytes = sink.getvalue().to_pybytes()
    if len(body) > BODY_BYTES_MAX:
        raise LimitExceeded(
            f"{records.num_rows} publications take {len(body)} bytes, a block holds at most {BODY_BYTES_MAX}; "
            "append fewer at once"
        )
    fields = (zlib.crc32(body), len(body), first_offset, records.num_rows)
    return HEADER.pack(MAGIC, zlib.crc32(_CHECKED.pack(*fields)), *fields) + body


def read_block(block: LogBlock) -> pa.RecordBatch:
    """The publications of a block; verifies its checksum."""
    with block.path.open("rb") as file:
        file.seek(block.position)
        body = file.read(block.length)
    return _decoded(body, block, str(block.path))


def decode_body(data: bytes, block: BlockHeader, name: str) -> pa.RecordBatch:
    """The publications of a block in `data`; verifies its checksum."""
    return _decoded(memoryview(data)[block.position : block.position + block.length], block, name)


def _decoded(body: bytes | memoryview, block: LogBlock | BlockHeader, name: str) -> pa.RecordBatch:
    if len(body) != block.length or zlib.crc32(body) != block.checksum:
        raise CorruptSnapshot(
            f"{name} is damaged at byte {block.position} (publication {block.first_offset}): "
            "the checksum differs; restore the file from a copy"
        )
    with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
        return stream.read_next_batch()


def scan_blocks(path: Path, position: int = 0) -> Iterator[LogBlock]:
    """The blocks of a file from a position on, by their headers, up to the file's end or a torn block."""
    size = path.stat().st_size
    with path.open("rb") as file:
        while position + HEADER.size <= size:
            file.seek(position)
            block = _header(file.read(HEADER.size), position, str(path))
            position = block.position + block.length
            if position > size:
                return
            yield LogBlock(path, *block)


def headers_of(data: bytes, name: str, *, first_offset: int) -> list[BlockHeader]:
    """The blocks of an object, which is always complete."""
    blocks: list[BlockHeader] = []
    position = 0
    while position + HEADER.size <= len(data):
        block = _header(data[position : position + HEADER.size], position, name)
        position = block.position + block.length
        if position > len(data) or block.first_offset != first_offset:
            raise CorruptSnapshot(f"{name} is damaged: it is cut short, or of another name; restore it from a copy")
        first_offset += block.publications
        blocks.append(block)
    return blocks


def _header(data: bytes, position: int, name: str) -> BlockHeader:
    magic, header_checksum, *fields = HEADER.unpack(data)
    digit = bytes([magic & 0xFF])
    is_other = header_checksum != zlib.crc32(_CHECKED.pack(*fields))
    if magic >> 8 == MAGIC >> 8 and is_other and is_newer(digit, FORMAT):
        raise too_new(name, digit, FORMAT)
    if magic != MAGIC or is_other:
        raise CorruptSnapshot(
            f"{name} is damaged at byte {position}: no block starts there; restore the file from a copy"
        )
    checksum, length, first_offset, publications = fields
    return BlockHeader(position + HEADER.size, length, first_offset, publications, checksum)


def files_of(directory: Path) -> list[Path]:
    """The log's files in the order of their offsets."""
    return sorted(directory.glob("*.log"))


def file_name(first_offset: int) -> str:
    return f"{first_offset:020d}.log"
