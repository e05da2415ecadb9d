"""Access (AP): checks a range of the log, and encodes it as the block that every match task gets.

A row that cannot be a publication is left out here, once, with the reason; match tasks see only good ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lavant.broker.storage.log.blocks import LogBatch
from lavant.core.publications.publication import ID, PAYLOAD
from lavant.pipeline.stream.records import accept

PUBLICATIONS_AT_ONCE = 4096
"""Publications matched together: enough for the kernels, few enough for the memory."""


class RefusedRow(msgspec.Struct, frozen=True, array_like=True):
    """A row that is no publication: its place in the block, its id if it has one, and why."""

    row: int
    id: str | None
    reason: str


class AccessPiece(msgspec.Struct, frozen=True, array_like=True):
    """Publications with the same columns."""

    first: int
    """Place of the first row in the block."""
    count: int
    """Rows, including refused ones."""
    accepted: bytes | None
    """Places of the accepted rows in the piece, 32-bit integers; None if all are."""
    records: bytes
    """The accepted rows as an Arrow stream; empty if there are none."""

    def rows(self) -> NDArray[np.uint32]:
        """Places in the block of the accepted rows."""
        if self.accepted is None:
            return np.arange(self.first, self.first + self.count, dtype=np.uint32)
        return np.frombuffer(self.accepted, np.uint32) + np.uint32(self.first)

    def batch(self) -> pa.RecordBatch | None:
        return next(iter(pa.ipc.open_stream(self.records)), None) if self.records else None


class AccessBlock(msgspec.Struct, frozen=True, array_like=True):
    """A range of the log, ready to be matched."""

    start: int
    """Offset of its first row."""
    count: int
    log: str
    """Identity of the log."""
    pieces: list[AccessPiece]
    refused: list[RefusedRow]
    slice: int = 0
    """The access slice that made it."""
    cpu_s: float = 0.0

    @property
    def end(self) -> int:
        return self.start + self.count


def encode_range(scheme: str, log: str, start: int, batches: Iterable[LogBatch], *, slice: int = 0) -> AccessBlock:
    """Check the publications from offset `start` on."""
    began = time.thread_time()
    pieces: list[AccessPiece] = []
    refused: list[RefusedRow] = []
    count = 0
    for records in gathered(batch.records for batch in batches):
        accepted = accept(scheme, records)
        ids = records.column(ID).to_pylist() if accepted.rejected and ID in records.schema.names else None
        refused += [
            RefusedRow(count + row, None if ids is None else ids[row], reason)
            for row, reason in accepted.rejected.items()
        ]
        pieces.append(_piece(count, records, accepted.rows if accepted.rejected else None))
        count += records.num_rows
    return AccessBlock(start, count, log, pieces, refused, slice, time.thread_time() - began)


def gathered(records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same records in as few batches as `PUBLICATIONS_AT_ONCE` and their schemas allow.

    Publishing in small portions leaves small batches, and matching many of them one by one is slow.
    """
    for _, alike in groupby(records, key=lambda batch: batch.schema):
        yield from pa.Table.from_batches(alike).combine_chunks().to_batches(PUBLICATIONS_AT_ONCE)


def _piece(first: int, records: pa.RecordBatch, accepted: NDArray[np.int64] | None) -> AccessPiece:
    count = records.num_rows
    if accepted is not None:
        records = records.take(pa.array(accepted))
    # By place: an attribute that is a number here and a string there has two columns of one name.
    matched = records.select([place for place, name in enumerate(records.schema.names) if name != PAYLOAD])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, matched.schema) as writer:
        writer.write_batch(matched)
    places = None if accepted is None else accepted.astype(np.uint32).tobytes()
    return AccessPiece(first, count, places, sink.getvalue().to_pybytes() if records.num_rows else b"")
