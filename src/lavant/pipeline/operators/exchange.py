"""The results of a match task on their way to the exit: runs of rows where they are shorter, gaps of ids elsewhere.

A publication may match thousands of subscriptions, and each would be copied half a dozen times between Python, Java and
shuffle files. A run of rows takes some 5 bytes, and becomes ids where they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lavant.broker.matching import Matches
from lavant.broker.matching.interface import Ids
from lavant.broker.matching.merge import copy_lists
from lavant.broker.matching.runs import Runs, count_matches, expand_runs
from lavant.core.errors import LimitExceeded
from lavant.core.kernels.kernels import frozen
from lavant.pipeline.cluster.probes import Probe
from lavant.pipeline.operators.access import RefusedRow
from lavant.pipeline.operators.compact import decode_ids, encode_ids, narrow

MATCHES_MAX = 2**31 - 1
"""Of one record batch: the most that Arrow's lists can count."""
_ALIGNMENT = 8
_IDS = pa.schema([("id", pa.string())])


class SegmentKey(msgspec.Struct, frozen=True, array_like=True):
    """A segment of the snapshot that a slice's version builds on: everyone who opens it finds the same rows."""

    slice: int
    place: int


class _Header(msgspec.Struct, frozen=True, array_like=True):
    start: int
    count: int
    host: int
    runs: list[tuple[SegmentKey, int, list[int]]]
    """Of each segment: their number, and the bytes of an item of each array."""
    ids: int
    """Bytes of the gaps."""
    refused: list[RefusedRow]
    names: bytes
    probes: list[Probe]


class MatchedBlock(NamedTuple):
    """One host's matches of consecutive publications, counted from the first."""

    start: int
    """Offset of the first publication."""
    publications: int
    host: int
    runs: list[tuple[SegmentKey, Runs]]
    rest: Matches
    """Matches that are in no run."""
    refused: list[RefusedRow]
    """Reported by one host of all."""
    names: pa.Array | None
    """Ids of the publications; from one host of all."""
    probes: list[Probe]

    def between(self, first: int, last: int) -> MatchedBlock:
        """The part for an exit task, without the probes."""
        offsets = self.rest.offsets[first : last + 1]
        ids = self.rest.ids[offsets[0] : offsets[-1]]
        return MatchedBlock(
            self.start + first,
            last - first,
            self.host,
            [(key, runs.between(first, last)) for key, runs in self.runs],
            Matches(offsets - offsets[0], ids),
            [msgspec.structs.replace(each, row=each.row - first) for each in self.refused if first <= each.row < last],
            None if self.names is None else self.names.slice(first, last - first),
            [],
        )

    def to_bytes(self) -> bytes:
        """The header and the arrays, each aligned."""
        runs = [(key, runs, self._narrow(runs)) for key, runs in self.runs if len(runs.length)]
        ids = encode_ids(self.rest)
        header = _Header(
            self.start,
            self.publications,
            self.host,
            [(key, len(each.length), [array.itemsize for array in arrays]) for key, each, arrays in runs],
            len(ids),
            self.refused,
            b"" if self.names is None else _names_to_bytes(self.names),
            self.probes,
        )
        arrays: list[NDArray[Any]] = [
            np.diff(self.rest.offsets).astype(np.uint32),
            ids,
            *(array for _, _, group in runs for array in group),
        ]
        head = msgspec.msgpack.encode(header)
        parts: list[Any] = [len(head).to_bytes(_ALIGNMENT, "little"), head, bytes(-len(head) % _ALIGNMENT)]
        for array in arrays:
            parts += [np.ascontiguousarray(array).view(np.uint8).data, bytes(-array.nbytes % _ALIGNMENT)]
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> MatchedBlock:
        length = int.from_bytes(data[:_ALIGNMENT], "little")
        header = msgspec.msgpack.decode(data[_ALIGNMENT : _ALIGNMENT + length], type=_Header)
        place = _ALIGNMENT + length + -length % _ALIGNMENT

        def array(count: int, item_bytes: int) -> NDArray[Any]:
            nonlocal place
            found = np.frombuffer(data, f"<u{item_bytes}", count, place)
            place += found.nbytes + -found.nbytes % _ALIGNMENT
            return found

        offsets = np.append(0, np.cumsum(array(header.count, 4), dtype=np.int64))
        rest = Matches(offsets, decode_ids(offsets, array(header.ids, 1)))
        publications = np.arange(header.count, dtype=np.uint32)
        runs = []
        for key, count, sizes in header.runs:
            of_each, start, lengths = (
                array(items, size) for items, size in zip((header.count, count, count), sizes, strict=True)
            )
            wide = np.repeat(publications, of_each), start.astype(np.uint32), lengths.astype(np.uint32)
            runs.append((key, Runs(*wide)))
        names = _names_from_bytes(header.names) if header.names else None
        return cls(header.start, header.count, header.host, runs, rest, header.refused, names, header.probes)

    def _narrow(self, runs: Runs) -> list[NDArray[Any]]:
        """The number of runs of each publication, their starts, their lengths."""
        counts = np.bincount(runs.publication, minlength=self.publications).astype(np.uint32)
        return [narrow(counts), narrow(runs.start), narrow(runs.length)]


def new_ids(count: int) -> Ids:
    return np.empty(count, np.uint32)


def merge_blocks(
    blocks: Sequence[MatchedBlock], row_ids: Callable[[SegmentKey], Ids], allocate: Callable[[int], Ids] = new_ids
) -> Matches:
    """Exit (EP): the matches of all hosts for each publication. All blocks are of the same publications."""
    counts = np.zeros(blocks[0].publications, np.int64)
    for block in blocks:
        counts += np.diff(block.rest.offsets)
        for _, runs in block.runs:
            count_matches(_frozen(runs), counts)
    offsets = np.append(0, np.cumsum(counts))
    if offsets[-1] > MATCHES_MAX:
        raise LimitExceeded(f"an exit task has {offsets[-1]} matches, at most {MATCHES_MAX} fit; lower rowsMax")
    ids = allocate(int(offsets[-1]))
    cursor = offsets[:-1].copy()
    for block in sorted(blocks, key=lambda block: block.host):
        copy_lists(frozen(block.rest.offsets), frozen(block.rest.ids), cursor, ids)
        for key, runs in block.runs:
            expand_runs(_frozen(runs), frozen(row_ids(key)), cursor, ids)
    return Matches(offsets, ids)


def _frozen(runs: Runs) -> Runs:
    return Runs(*map(frozen, runs))


def _names_to_bytes(names: pa.Array) -> bytes:
    compact = pa.concat_arrays([names])  # a slice would carry the whole array
    return bytes(pa.RecordBatch.from_arrays([compact], schema=_IDS).serialize())


def _names_from_bytes(data: bytes) -> pa.Array:
    return pa.ipc.read_record_batch(pa.py_buffer(data), _IDS).column(0)
