"""Match (M) as functions over Arrow batches, which run in Spark's Python workers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lavant.broker.matching import Matches
from lavant.broker.matching.merge import merge
from lavant.broker.slices import SliceReader
from lavant.broker.slices.reader import StoreVersion
from lavant.core.errors import InvalidValue
from lavant.pipeline.cluster.probes import Probe, write_probes
from lavant.pipeline.stream.exchange import Lists, RefusedRecord, write_file
from lavant.pipeline.stream.records import AcceptedRecords, accept
from lavant.pipeline.stream.slice_cache import open_log, open_slice

PUBLICATIONS_AT_ONCE = 4096
"""Publications matched together: enough for the kernels, few enough for the memory."""

Batches = Iterator[pa.RecordBatch]


class HostTask(msgspec.Struct, frozen=True, kw_only=True):
    """A host's part of a batch: which publications, which slices at which version, and where the results go."""

    log: str
    log_identity: str
    store: str
    store_identity: str
    version: int
    host: int
    slices: tuple[int, ...]
    start: int
    end: int
    exchange: str
    probes: str | None
    part: str = ""
    """Distinguishes the logs of one job."""


def match_host(task: bytes) -> str:
    """Match an offset range of the log in the host's Python worker; return the name of the result file."""
    todo = msgspec.msgpack.decode(task, type=HostTask)
    probes = [Probe(host=todo.host, slice=number, store=todo.store_identity) for number in todo.slices]
    file = write_file(Path(todo.exchange), _finds(todo, probes))
    if todo.probes is not None:
        write_probes(todo.probes, todo.start, probes, part=todo.part)
    return file


def _finds(task: HostTask, probes: list[Probe]) -> Iterator[Lists]:
    store = SliceReader(Path(task.store), task.store_identity)
    version = store.version(task.version)
    start = task.start
    for records in gathered(batch.records for batch in open_log(task.log, task.log_identity).read(start, task.end)):
        keys = start + np.arange(records.num_rows)
        start += records.num_rows
        # Every host refuses the same publications; one of them reports it.
        yield match_records(store, version, records, keys, probes, report_rejected=task.host == 0)


def gathered(records: Iterable[pa.RecordBatch]) -> Batches:
    """The same records in as few batches as `PUBLICATIONS_AT_ONCE` and their schemas allow.

    Publishing in small portions leaves small batches, and matching many of them one by one is slow.
    """
    for _, alike in groupby(records, key=lambda batch: batch.schema):
        yield from pa.Table.from_batches(alike).combine_chunks().to_batches(PUBLICATIONS_AT_ONCE)


def match_records(
    store: SliceReader,
    version: StoreVersion,
    records: pa.RecordBatch,
    keys: NDArray[np.int64],
    probes: list[Probe],
    *,
    report_rejected: bool,
) -> Lists:
    """Match records against the slices that the probes name, and record the cost there."""
    accepted = accept(store.settings.scheme, records)
    refused = dict(accepted.rejected)
    try:
        matches = _match_slices(store, version, accepted, probes)
    except InvalidValue as error:  # well-formed, but not for these subscriptions: encrypted under another schema, say
        refused |= dict.fromkeys(accepted.rows.tolist(), str(error))
        matches = _nothing(len(accepted.rows))
    ids = _ids_of(records)
    rejected = {
        int(keys[row]): RefusedRecord(ids[row].as_py(), reason) for row, reason in refused.items() if report_rejected
    }
    some = np.flatnonzero(np.diff(matches.offsets))
    chosen = accepted.rows[some]
    ends = np.append(matches.offsets[some], matches.offsets[-1])
    return Lists(keys[chosen], ids.take(pa.array(chosen)), Matches(ends, matches.ids), rejected)


def _match_slices(store: SliceReader, version: StoreVersion, accepted: AcceptedRecords, probes: list[Probe]) -> Matches:
    parts: list[Matches] = []
    for probe in probes if len(accepted.rows) else ():
        matcher = open_slice(store, probe.slice, version)
        started = time.thread_time()
        parts.append(matcher.match(accepted.batch))
        cpu_s = time.thread_time() - started
        memory = probe.memory_bytes if probe.memory_bytes else matcher.statistics().memory_bytes
        probe.add(cpu_s=cpu_s, publications=len(accepted.rows), matches=len(parts[-1].ids), memory_bytes=memory)
    return merge(parts) if parts else _nothing(len(accepted.rows))


def _nothing(publications: int) -> Matches:
    return Matches(np.zeros(publications + 1, np.int64), np.empty(0, np.uint32))


def _ids_of(records: pa.RecordBatch) -> pa.Array:
    if "@id" in records.schema.names:
        return records.column("@id")
    return pa.nulls(records.num_rows, pa.string())
