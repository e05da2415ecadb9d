"""The tasks of a batch: match (M) and exit (EP), which run in Spark's Python workers.

block ──► match task of each host ──shuffle──► exit task of each host ──► Parquet part, report to the driver
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from lavant.broker.matching import Matches
from lavant.broker.matching.interface import Ids
from lavant.broker.matching.merge import merge
from lavant.broker.matching.runs import Runs
from lavant.broker.slices.layout import EXIT
from lavant.broker.slices.reader import StoreVersion
from lavant.core.errors import InvalidValue
from lavant.core.publications.publication import ID
from lavant.pipeline.cluster.probes import Probe
from lavant.pipeline.operators.access import AccessBlock, AccessPiece, RefusedRow
from lavant.pipeline.operators.exchange import MatchedBlock, SegmentKey, merge_blocks, new_ids
from lavant.pipeline.operators.open_slices import SlicePlace, open_slice, row_ids
from lavant.pipeline.operators.parts import Part, write_part
from lavant.pipeline.stream.records import make_batch

SCRATCH_IDS_MAX = 1 << 26
"""Ids for which an exit task keeps its memory: 256 MiB."""


class _Scratch(threading.local):
    """Memory for the next exit task: to get new pages from the system takes longer than to fill them."""

    def __init__(self) -> None:
        self._kept = new_ids(0)

    def ids(self, count: int) -> Ids:
        if count > SCRATCH_IDS_MAX:
            return new_ids(count)
        if len(self._kept) < count:
            self._kept = new_ids(min(count * 5 // 4, SCRATCH_IDS_MAX))
        return self._kept[:count]


_scratch = _Scratch()


class MatchTask(msgspec.Struct, frozen=True, kw_only=True):
    """A host's part of a batch."""

    store: SlicePlace
    version: StoreVersion
    host: int
    slices: tuple[int, ...]
    exits: tuple[int, ...]
    """Exit task i gets the publications from `exits[i]` to before `exits[i + 1]`."""
    in_runs: bool = True
    """Whether the exit can expand runs."""


class ExitTask(msgspec.Struct, frozen=True, kw_only=True):
    """A host's part of the exit of a batch."""

    store: SlicePlace
    version: StoreVersion
    host: int
    slices: tuple[int, ...]
    output: str | None
    """The storage of the notifications; None returns the part to the driver."""
    part: str
    """Name of the part; a repeated task replaces its own."""


class ExitReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver learns of an exit task."""

    part: Part
    content: bytes | None
    """The part itself, if the task could not write it."""
    probes: list[Probe]


def match_blocks(task: MatchTask, blocks: Sequence[AccessBlock]) -> list[MatchedBlock]:
    """Match consecutive blocks against the host's slices; one result for each exit task."""
    found = _match(task, blocks)
    parts = [found.between(first, last) for first, last in zip(task.exits[:-1], task.exits[1:], strict=True)]
    return [parts[0]._replace(probes=found.probes), *parts[1:]]


def exit_blocks(task: ExitTask, blocks: Sequence[MatchedBlock]) -> ExitReport:
    """Merge the results of all hosts, and write them as a part."""
    began = time.thread_time()
    matches = merge_blocks(blocks, lambda key: row_ids(task.store, key, task.version), _scratch.ids)
    part, content = write_part(task.output, task.part, blocks, matches)
    share = (time.thread_time() - began) / max(1, len(task.slices))
    probes = [
        Probe(
            host=task.host,
            slice=number,
            cpu_s=share,
            publications=blocks[0].publications // len(task.slices),
            matches=len(matches.ids) // len(task.slices),
            store=task.store.identity,
            operator=EXIT,
        )
        for number in task.slices
    ]
    probes += [probe for block in blocks for probe in block.probes]
    return ExitReport(part=part, content=content, probes=probes)


class _Found(NamedTuple):
    """Matches of a piece, by the place of its publications in the batch."""

    runs: dict[SegmentKey, Runs]
    rest: Matches


def _match(task: MatchTask, blocks: Sequence[AccessBlock]) -> MatchedBlock:
    count = sum(block.count for block in blocks)
    start = blocks[0].start
    probes = [Probe(host=task.host, slice=number, store=task.store.identity) for number in task.slices]
    counts = np.zeros(count + 1, np.int64)
    ids: list[Ids] = []
    runs: dict[SegmentKey, list[Runs]] = {}
    refused = [_shifted(each, block.start - start) for block in blocks for each in block.refused]
    names: list[pa.Array] = []
    for first, piece in ((block.start - start, piece) for block in blocks for piece in block.pieces):
        records, rows = piece.batch(), piece.rows() + np.uint32(first)
        names.append(_names(records, rows, first + piece.first, piece))
        if records is None:
            continue
        try:
            found = _match_piece(task, records, probes)
        except (
            InvalidValue
        ) as error:  # well-formed, but not for these subscriptions: encrypted under another schema, say
            refused += [
                RefusedRow(int(row), name, str(error))
                for row, name in zip(rows, _ids_of(records).to_pylist(), strict=True)
            ]
            continue
        counts[rows + 1] = np.diff(found.rest.offsets)
        ids.append(found.rest.ids)
        for key, each in found.runs.items():
            runs.setdefault(key, []).append(each._replace(publication=rows[each.publication]))
    is_reporter = task.host == 0  # every host gets the same publications; one of them says which
    return MatchedBlock(
        start,
        count,
        task.host,
        [(key, _joined(parts)) for key, parts in runs.items()],
        Matches(np.cumsum(counts), np.concatenate([np.empty(0, np.uint32), *ids])),
        refused if is_reporter else [],
        pa.concat_arrays(names) if is_reporter else None,
        probes,
    )


def _match_piece(task: MatchTask, records: pa.RecordBatch, probes: list[Probe]) -> _Found:
    batch = make_batch(task.store.scheme, records)
    parts: list[Matches] = []
    runs: dict[SegmentKey, Runs] = {}
    for probe in probes:
        slice = open_slice(task.store, probe.slice, task.version)
        began = time.thread_time()
        in_runs, rest = slice.matcher.match_in_runs(batch, slice.segments if task.in_runs else ())
        cpu_s = time.thread_time() - began
        parts.append(rest)
        runs |= {SegmentKey(probe.slice, place): each for place, each in in_runs}
        matches = len(rest.ids) + sum(each.matches for _, each in in_runs)
        probe.add(cpu_s=cpu_s, publications=len(batch), matches=matches, memory_bytes=slice.memory_bytes)
    return _Found(runs, merge(parts))


def _joined(parts: list[Runs]) -> Runs:
    return Runs(*map(np.concatenate, zip(*parts, strict=True))) if len(parts) > 1 else parts[0]


def _shifted(refused: RefusedRow, by: int) -> RefusedRow:
    return msgspec.structs.replace(refused, row=refused.row + by) if by else refused


def _ids_of(records: pa.RecordBatch) -> pa.Array:
    if ID in records.schema.names:
        return records.column(ID)
    return pa.nulls(records.num_rows, pa.string())


def _names(records: pa.RecordBatch | None, rows: Ids, first: int, piece: AccessPiece) -> pa.Array:
    """The ids of all rows of a piece; null where a row is refused."""
    if records is None:
        return pa.nulls(piece.count, pa.string())
    ids = _ids_of(records).cast(pa.string())
    if piece.accepted is None:
        return ids
    places = np.full(piece.count, -1, np.int64)
    places[rows - np.uint32(first)] = np.arange(len(rows))
    return ids.take(pa.array(places, mask=places < 0))


def exit_bounds(count: int, tasks: Sequence[Iterable[int]]) -> tuple[int, ...]:
    """Where the publications of each exit task begin and end: as many for each of its slices.

    >>> exit_bounds(100, [(0, 1, 2), (3,)])
    (0, 75, 100)
    """
    slices = [len(tuple(numbers)) for numbers in tasks]
    ends = np.cumsum([0, *slices]) * count // max(1, sum(slices))
    return tuple(int(end) for end in ends)
