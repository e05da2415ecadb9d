r"""A file of named arrays that can be memory-mapped: a header, then each array aligned for vector loads.

    LAVANT1\n | header length | header checksum | header (JSON) | padding | array | padding | array …

A file is written under a temporary name, synced and renamed, so it is always complete. Opening maps it and checks the
header and the file's length; `verify` also checks the arrays' checksums, which reads them all.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lavant.broker.storage.objects import ObjectStorage
from lavant.core.errors import UNDECODABLE, CorruptSnapshot, is_newer, too_new

FORMAT = 1
_KIND = b"LAVANT"
MAGIC = b"%b%d\n" % (_KIND, FORMAT)
ALIGNMENT = 64
_PREFIX = struct.Struct("<8sII")

Arrays = Mapping[str, NDArray[Any]]


class _Entry(msgspec.Struct, frozen=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    checksum: int


class _Header(msgspec.Struct, frozen=True):
    meta: dict[str, Any]
    entries: tuple[_Entry, ...]


def pack(meta: dict[str, Any], arrays: Arrays) -> list[bytes | memoryview]:
    """The parts of the file, in order."""
    entries: list[_Entry] = []
    body: list[bytes | memoryview] = []
    offset = 0
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        entries.append(_Entry(name, array.dtype.str, array.shape, offset, zlib.crc32(data)))
        padding = -len(data) % ALIGNMENT
        body += [data, bytes(padding)]
        offset += len(data) + padding
    header = msgspec.json.encode(_Header(meta, tuple(entries)))
    header += b" " * (-(_PREFIX.size + len(header)) % ALIGNMENT)
    return [_PREFIX.pack(MAGIC, len(header), zlib.crc32(header)), header, *body]


def write(storage: ObjectStorage, name: str, meta: dict[str, Any], arrays: Arrays) -> None:
    """Write the file atomically."""
    storage.write(name, pack(meta, arrays))


def map_file(path: Path, *, verify: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The file's metadata and its arrays, mapped and read-only."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < _PREFIX.size:
                raise CorruptSnapshot(f"{path} is cut short; restore it from a copy or take a new snapshot")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise CorruptSnapshot(f"{path} is missing; restore it from a copy or take a new snapshot") from None
    return unpack(memoryview(data), name=str(path), verify=verify)


def unpack(
    data: memoryview, *, name: str = "the data", verify: bool = True
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Metadata and arrays of the output of `pack`, as views into `data`."""
    if len(data) < _PREFIX.size:
        raise CorruptSnapshot(f"{name} has {len(data)} bytes, too few for a header")
    magic, header_length, checksum = _PREFIX.unpack_from(data)
    header_bytes = data[_PREFIX.size : _PREFIX.size + header_length]
    if magic != MAGIC:
        if magic.startswith(_KIND) and is_newer(magic[len(_KIND) : -1], FORMAT):
            raise too_new(name, magic[len(_KIND) : -1], FORMAT)
        raise CorruptSnapshot(f"{name} starts with {magic!r}, expected {MAGIC!r}: it is not of Lavant, or damaged")
    if zlib.crc32(header_bytes) != checksum:
        raise CorruptSnapshot(f"{name} has a damaged header (checksum differs)")
    try:
        header = msgspec.json.decode(bytes(header_bytes), type=_Header)
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"{name} has a header of another format or version: {error}") from None
    start = _PREFIX.size + header_length
    arrays: dict[str, NDArray[Any]] = {}
    for entry in header.entries:
        dtype = np.dtype(entry.dtype)
        count = int(np.prod(entry.shape, dtype=np.int64))
        begin = start + entry.offset
        end = begin + count * dtype.itemsize
        if end > len(data):
            raise CorruptSnapshot(f"{name} is cut short: {entry.name} ends at byte {end}, the file at {len(data)}")
        if verify and zlib.crc32(data[begin:end]) != entry.checksum:
            raise CorruptSnapshot(f"{name} is damaged: the checksum of {entry.name} differs")
        arrays[entry.name] = np.frombuffer(data, dtype, count, begin).reshape(entry.shape)
    return header.meta, arrays
