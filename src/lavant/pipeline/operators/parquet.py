"""Writes notifications as a Parquet file. The lists of ids are written as they lie in memory.

A Parquet writer computes two levels for each value of a list, and packs them: several times the cost of all else that
the exit does, for levels that follow from the lengths of the lists. So the column of ids is encoded here, as plain
pages whose levels are run-length encoded, list by list; pyarrow writes the other columns, whose pages are taken over as
they are. The metadata is in Thrift's compact protocol, as Parquet's specification says.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lavant.broker.matching import Matches
from lavant.core.kernels.kernels import frozen, kernel

MAGIC = b"PAR1"
PAGE_IDS = 1 << 20
"""Ids of a page, unless a single list has more."""
CREATED_BY = f"lavant version {version('lavant')}".encode()
"""In this form; Java's readers log an exception for any other."""

_INT32, _INT64, _BYTE_ARRAY = 1, 2, 6
_OPTIONAL, _REPEATED = 1, 2
_UTF8, _LIST, _UINT_32 = 0, 3, 13
_PLAIN, _RLE = 0, 3
_PRESENT, _EMPTY = 3, 1
"""Definition levels of an id in a list, and of an empty list."""


def encode(rows: pa.RecordBatch, matches: Matches) -> list[bytes | memoryview]:
    """The file's content: columns `key`, `id`, `rejected` of the rows, and a list of ids for each row."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([rows]), sink, compression="none", use_dictionary=False)
    written = sink.getvalue()
    group = pq.read_metadata(pa.BufferReader(written)).row_group(0)
    content: list[bytes | memoryview] = [MAGIC]
    place = len(MAGIC)
    chunks: dict[str, bytes] = {}
    for number, name in enumerate(rows.schema.names):
        column = group.column(number)
        pages = memoryview(written)[column.data_page_offset :][: column.total_compressed_size]
        content.append(pages)
        kind = _INT64 if name == "key" else _BYTE_ARRAY
        chunks[name] = _column([name], kind, rows.num_rows, len(pages), place)
        place += len(pages)
    pages_of_ids, levels = _id_pages(matches)
    size = sum(len(part) for part in pages_of_ids)
    chunks["subscriptions"] = _column(["subscriptions", "list", "element"], _INT32, levels, size, place)
    content += pages_of_ids
    total = place + size - len(MAGIC)
    columns = [chunks[name] for name in ("key", "id", "subscriptions", "rejected")]
    footer = _footer(rows.num_rows, columns, total)
    return [*content, footer, len(footer).to_bytes(4, "little"), MAGIC]


def _id_pages(matches: Matches) -> tuple[list[bytes | memoryview], int]:
    """Headers and bodies of the pages, and the number of their level entries."""
    ids = np.ascontiguousarray(matches.ids, "<u4").view(np.uint8).data
    parts: list[bytes | memoryview] = []
    total = first = 0
    rows = len(matches.offsets) - 1
    while first < rows:
        fitting = int(np.searchsorted(matches.offsets, matches.offsets[first] + PAGE_IDS, "right")) - 1
        last = min(max(fitting, first + 1), rows)
        counts = np.diff(matches.offsets[first : last + 1])
        repetition, definition, entries = encode_levels(frozen(counts))
        body = ids[4 * int(matches.offsets[first]) : 4 * int(matches.offsets[last])]
        levels = b"".join(
            part for level in (repetition, definition) for part in (len(level).to_bytes(4, "little"), level.tobytes())
        )
        size = len(levels) + len(body)
        header = _struct((1, 5, 0), (2, 5, size), (3, 5, size), (5, 12, _page(int(entries))))
        parts += [header, levels, body]
        total += int(entries)
        first = last
    return parts, total


def _page(entries: int) -> bytes:
    return _struct((1, 5, entries), (2, 5, _PLAIN), (3, 5, _RLE), (4, 5, _RLE))


@kernel
def encode_levels(counts: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.uint8], int]:
    """Repetition and definition levels of lists of these lengths, run-length encoded, and the number of entries."""
    repetition, definition = np.empty(2 + 14 * len(counts), np.uint8), np.empty(24 + 24 * len(counts), np.uint8)
    r = d = entries = present = 0
    for count in counts:
        r = _run(repetition, r, 1, 0)
        if count > 1:
            r = _run(repetition, r, count - 1, 1)
        if count == 0:
            if present:
                d = _run(definition, d, present, _PRESENT)
                present = 0
            d = _run(definition, d, 1, _EMPTY)
            entries += 1
        else:
            present += count
            entries += count
    if present:
        d = _run(definition, d, present, _PRESENT)
    return repetition[:r], definition[:d], entries


@kernel
def _run(out: NDArray[np.uint8], place: int, length: int, value: int) -> int:
    """A run: its doubled length as a variable-length integer, then the value; returns the place behind it."""
    left = length << 1
    while left >= 128:
        out[place] = left & 127 | 128
        left >>= 7
        place += 1
    out[place] = left
    out[place + 1] = value
    return place + 2


# ---- metadata in Thrift's compact protocol ---------------------------------------------------------------------------


def _footer(rows: int, columns: Sequence[bytes], size: int) -> bytes:
    schema = [
        _struct((4, 8, b"schema"), (5, 5, 4)),
        _struct((1, 5, _INT64), (3, 5, _OPTIONAL), (4, 8, b"key")),
        _struct((1, 5, _BYTE_ARRAY), (3, 5, _OPTIONAL), (4, 8, b"id"), (6, 5, _UTF8)),
        _struct((3, 5, _OPTIONAL), (4, 8, b"subscriptions"), (5, 5, 1), (6, 5, _LIST)),
        _struct((3, 5, _REPEATED), (4, 8, b"list"), (5, 5, 1)),
        _struct((1, 5, _INT32), (3, 5, _OPTIONAL), (4, 8, b"element"), (6, 5, _UINT_32)),
        _struct((1, 5, _BYTE_ARRAY), (3, 5, _OPTIONAL), (4, 8, b"rejected"), (6, 5, _UTF8)),
    ]
    group = _struct((1, 9, _list(12, columns)), (2, 6, size), (3, 6, rows))
    return _struct((1, 5, 1), (2, 9, _list(12, schema)), (3, 6, rows), (4, 9, _list(12, [group])), (6, 8, CREATED_BY))


def _column(path: list[str], kind: int, values: int, size: int, place: int) -> bytes:
    """A column chunk of one data page or more, from byte `place` of the file on."""
    encodings = _list(5, [_varint(_zigzag(_PLAIN)), _varint(_zigzag(_RLE))])
    names = _list(8, [_binary(name.encode()) for name in path])
    sizes = ((5, 6, values), (6, 6, size), (7, 6, size), (9, 6, place))
    about = _struct((1, 5, kind), (2, 9, encodings), (3, 9, names), (4, 5, 0), *sizes)
    return _struct((2, 6, place), (3, 12, about))


def _struct(*fields: tuple[int, int, int | bytes]) -> bytes:
    """Fields as (number, type, value): 5 and 6 are integers, 8 is a string, 9 and 12 are encoded lists and structs."""
    parts, last = [], 0
    for number, kind, value in fields:
        parts.append(bytes([(number - last) << 4 | kind]))
        last = number
        if isinstance(value, int):
            parts.append(_varint(_zigzag(value)))
        else:
            parts.append(_binary(value) if kind == 8 else value)
    return b"".join([*parts, b"\0"])


def _list(kind: int, items: Sequence[bytes]) -> bytes:
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + _varint(len(items))
    return head + b"".join(items)


def _binary(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
