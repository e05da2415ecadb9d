"""The results of a match task on their way to the exit: runs of rows where they are shorter, 32-bit ids elsewhere.

A publication may match thousands of subscriptions. As ids, each would be copied half a dozen times between Python, Java
and shuffle files; a run of rows is 12 bytes, and becomes ids where they are written.
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
    segments: list[tuple[SegmentKey, int]]
    """With the number of runs of each."""
    ids: int
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
        runs = [(key, runs) for key, runs in self.runs if len(runs.length)]
        header = _Header(
            self.start,
            self.publications,
            self.host,
            [(key, len(each.length)) for key, each in runs],
            len(self.rest.ids),
            self.refused,
            b"" if self.names is None else _names_to_bytes(self.names),
            self.probes,
        )
        arrays = [np.diff(self.rest.offsets).astype(np.uint32), self.rest.ids]
        for _, each in runs:
            arrays += [each.publication, each.start, each.length]
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

        def array(count: int) -> NDArray[np.uint32]:
            nonlocal place
            found = np.frombuffer(data, np.uint32, count, place)
            place += found.nbytes + -found.nbytes % _ALIGNMENT
            return found

        offsets = np.append(0, np.cumsum(array(header.count), dtype=np.int64))
        rest = Matches(offsets, array(header.ids))
        runs = [(key, Runs(array(count), array(count), array(count))) for key, count in header.segments]
        names = _names_from_bytes(header.names) if header.names else None
        return cls(header.start, header.count, header.host, runs, rest, header.refused, names, header.probes)


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
