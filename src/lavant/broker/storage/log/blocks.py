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

from lavant.core.errors import CorruptSnapshot, LimitExceeded

MAGIC = 0x4C564C31
HEADER = struct.Struct("<IIIIQI")
_CHECKED = struct.Struct("<IIQI")
"""The part of the header that its checksum covers: all after it."""
BODY_BYTES_MAX = 1 << 30


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
    if len(body) != block.length or zlib.crc32(body) != block.checksum:
        raise CorruptSnapshot(
            f"{block.path} is damaged at byte {block.position} (publication {block.first_offset}): "
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
            magic, header_checksum, *fields = HEADER.unpack(file.read(HEADER.size))
            checksum, length, first_offset, count = fields
            body = position + HEADER.size
            if magic != MAGIC or header_checksum != zlib.crc32(_CHECKED.pack(*fields)):
                raise CorruptSnapshot(
                    f"{path} is damaged at byte {position}: no block starts there; restore the file from a copy"
                )
            if body + length > size:
                return
            yield LogBlock(path, body, length, first_offset, count, checksum)
            position = body + length


def files_of(directory: Path) -> list[Path]:
    """The log's files in the order of their offsets."""
    return sorted(directory.glob("*.log"))


def file_name(first_offset: int) -> str:
    return f"{first_offset:020d}.log"
